"""What the console costs on real evidence of jobs of several sizes.

    python benchmarks/console_sizes.py [--ranks 32 512 4096]

Prints Markdown. A saved incident of a simulated hang, about 500 operations a rank, is opened in a
pseudo-terminal of 120x40. Seconds from the start of the process to the first frame and to the
verdict on the screen; from a key to the screen that it shows (each of nine, three times over); from
a step of the time cursor until the last thing drawn for it; the most memory the process held; and
CPU of one core while nobody touches it.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from console import QUIET_S, cpu_s, start, watch

from oncall_lab import TrainingFault, TrainingScenario, simulate

SIZE = (120, 40)
FRAME, VERDICT = b"Quit", b"Not-entered"
MOST_S = 300.0
KEYS = b"2345678910"[:9]
RESTS_S, AT_REST = 1.0, 0.1  # nothing is drawn for so long, on less than this share of a core


@dataclass(frozen=True)
class Cost:
    """Of one console on one recording."""

    frame_s: float
    verdict_s: float
    keys_s: list[float]
    steps_s: list[float]
    most_bytes: int
    idle: float


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, nargs="+", default=[32, 512, 4096])
    arguments = parser.parse_args()
    print("| ranks | first frame | verdict | key p50 / p95 | cursor step | memory | idle | load |")
    print("|---|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        for ranks in arguments.ranks:
            path = Path(folder, f"{ranks}.oncall")
            record(ranks, path)
            cost = measure(path)
            p50, p95 = np.percentile(cost.keys_s, [50, 95])
            print(
                f"| {ranks:,} | {cost.frame_s:.2f} s | {cost.verdict_s:.2f} s "
                f"| {1000 * p50:.0f} / {1000 * p95:.0f} ms "
                f"| {np.median(cost.steps_s):.2f} s | {cost.most_bytes / 2**20:,.0f} MiB "
                f"| {100 * cost.idle:.1f} % | {os.getloadavg()[0]:.1f} |",
                flush=True,
            )


def record(ranks: int, path: Path) -> None:
    """Five minutes of a job that hangs in the fourth."""
    fault = TrainingFault("H1", (5,), at_ns=200 * 10**9)
    shape = {"tp": 8, "pp": 4, "dp": ranks // 32}
    scenario = TrainingScenario(**shape, tp_operations=1, forward_ns=500 * 10**6, faults=(fault,))
    with simulate(scenario)[0] as incident:
        incident.save(path)


def measure(path: Path) -> Cost:
    """Open it, press keys, step back in time, leave it alone."""
    began = time.monotonic()
    child, terminal = start([sys.executable, "-m", "oncall.cli.main", "open", str(path)], SIZE)
    try:
        frame_s = seen_s(terminal, FRAME, began)
        verdict_s = seen_s(terminal, VERDICT, began)
        watch(terminal, 5.0)
        keys_s = [key_s(terminal, bytes([key])) for key in KEYS * 3]
        os.write(terminal, b"1")
        watch(terminal, 2.0)
        steps_s = [step_s(child, terminal, b"[") for _ in range(3)]
        cpu, at = cpu_s(child), time.monotonic()
        watch(terminal, 10.0)
        idle = (cpu_s(child) - cpu) / (time.monotonic() - at)
        return Cost(frame_s, verdict_s, keys_s, steps_s, most_bytes(child), idle)
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.close(terminal)


def seen_s(terminal: int, text: bytes, began: float) -> float:
    """Seconds from `began` until the text is drawn."""
    seen = b""
    while text not in seen:
        if time.monotonic() - began > MOST_S:
            raise TimeoutError(f"{text!r} was not drawn within {MOST_S:g} s")
        seen = seen[-len(text) :] + os.read(terminal, 1 << 16)
    return time.monotonic() - began


def key_s(terminal: int, key: bytes) -> float:
    """Seconds from a key to the first thing drawn for it."""
    while watch(terminal, QUIET_S):
        pass
    pressed = time.monotonic()
    os.write(terminal, key)
    watch(terminal, 10.0, until=lambda read: read > 0)
    return time.monotonic() - pressed


def step_s(child: int, terminal: int, key: bytes) -> float:
    """Seconds from a step of the time cursor to the last thing drawn for it."""
    while watch(terminal, QUIET_S):
        pass
    pressed = last = time.monotonic()
    os.write(terminal, key)
    while True:
        cpu = cpu_s(child)
        if watch(terminal, RESTS_S, until=lambda read: read > 0):
            last = time.monotonic()
        elif cpu_s(child) - cpu < AT_REST * RESTS_S:
            return last - pressed


def most_bytes(child: int) -> int:
    """The most memory that the process held."""
    status = Path(f"/proc/{child}/status").read_text()
    line = next(line for line in status.splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) * 1024


if __name__ == "__main__":
    main()
