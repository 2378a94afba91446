"""What the console costs on real evidence of jobs of several sizes.

    python benchmarks/console_sizes.py [--ranks 32 512 4096]

Prints Markdown. A saved incident of a simulated hang, about 500 operations a rank, is opened in a
pseudo-terminal of 120x40. Seconds from the start of the process to the first frame and to the
verdict on the screen; from a key to the screen that it shows (each of nine, three times over); from
a step of the time cursor until that moment is shown (with the CPU that took), and until all
rulebooks have run for it; the most memory the process held, and what it holds in the end; and CPU
of one core while nobody touches it.
"""

from __future__ import annotations

import argparse
import os
import select
import signal
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from console import QUIET_S, cpu_s, start, watch

from oncall_lab import TrainingFault, TrainingScenario, simulate

SIZE = (120, 40)
FRAME, VERDICT, PENDING = b"Quit", b"Not-entered", b"have yet to run"
MOST_S = 300.0
KEYS = b"2345678910"[:9]
POINTER = b"\x1b]22;default\x07"  # the shape of the mouse's pointer: nothing is drawn yet
RESTS_S, AT_REST = 1.0, 0.1  # nothing is drawn for so long, on less than this share of a core


@dataclass(frozen=True)
class Step:
    """Seconds from a key until the moment is shown, and until it is judged; CPU of the first."""

    shown_s: float
    judged_s: float
    cpu_s: float


@dataclass(frozen=True)
class Cost:
    """Of one console on one recording."""

    frame_s: float
    verdict_s: float
    keys_s: list[float]
    steps: list[Step]
    most_bytes: int
    held_bytes: int
    idle: float


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, nargs="+", default=[32, 512, 4096])
    arguments = parser.parse_args()
    print(
        "| ranks | first frame | verdict | key p50 / p95 | cursor step | its CPU | judged "
        "| most memory | in the end | idle | load |"
    )
    print("|---|---|---|---|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        for ranks in arguments.ranks:
            path = Path(folder, f"{ranks}.oncall")
            record(ranks, path)
            cost = measure(path)
            p50, p95 = np.percentile(cost.keys_s, [50, 95])
            print(
                f"| {ranks:,} | {cost.frame_s:.2f} s | {cost.verdict_s:.2f} s "
                f"| {1000 * p50:.0f} / {1000 * p95:.0f} ms "
                f"| {median([one.shown_s for one in cost.steps]):.2f} s "
                f"| {median([one.cpu_s for one in cost.steps]):.2f} s "
                f"| {median([one.judged_s for one in cost.steps]):.2f} s "
                f"| {cost.most_bytes / 2**20:,.0f} MiB | {cost.held_bytes / 2**20:,.0f} MiB "
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
        steps = [step(child, terminal, b"[") for _ in range(3)]
        cpu, at = cpu_s(child), time.monotonic()
        watch(terminal, 10.0)
        idle = (cpu_s(child) - cpu) / (time.monotonic() - at)
        most, held = memory(child, "VmHWM"), memory(child, "VmRSS")
        return Cost(frame_s, verdict_s, keys_s, steps, most, held, idle)
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
    while time.monotonic() - pressed < 10.0:
        if select.select([terminal], [], [], 10.0)[0] and os.read(terminal, 1 << 16) != POINTER:
            break
    return time.monotonic() - pressed


def step(child: int, terminal: int, key: bytes) -> Step:
    """A step of the time cursor. Where some rulebooks run later, the screen says so as soon as it
    shows the moment; else it is shown by the last thing drawn."""
    while watch(terminal, QUIET_S):
        pass
    cpu_before = cpu_s(child)
    pressed = last = time.monotonic()
    shown: tuple[float, float] | None = None
    seen = b""
    os.write(terminal, key)
    while True:
        busy = wanted_s(child)
        if select.select([terminal], [], [], RESTS_S)[0]:
            seen = seen[-len(PENDING) :] + os.read(terminal, 1 << 16)
            last = time.monotonic()
            if PENDING in seen and shown is None:
                shown = last - pressed, cpu_s(child) - cpu_before
        elif wanted_s(child) - busy < AT_REST * RESTS_S:
            shown_s, took_s = shown or (last - pressed, cpu_s(child) - cpu_before)
            return Step(shown_s, last - pressed, took_s)


def wanted_s(child: int) -> float:
    """Seconds of CPU that its threads had, or waited for: a busy machine makes nobody idle."""
    total_ns = 0
    for task in Path(f"/proc/{child}/task").glob("[0-9]*"):
        with suppress(OSError):  # it ended
            had_ns, waited_ns, _ = (task / "schedstat").read_text().split()
            total_ns += int(had_ns) + int(waited_ns)
    return total_ns / 10**9


def median(values: list[float]) -> float:
    return float(np.median(values))


def memory(child: int, what: str) -> int:
    """Bytes that the process holds (VmRSS), or held at most (VmHWM)."""
    status = Path(f"/proc/{child}/status").read_text()
    line = next(line for line in status.splitlines() if line.startswith(what))
    return int(line.split()[1]) * 1024


if __name__ == "__main__":
    main()
