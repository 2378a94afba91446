"""What the console costs on the fleet screen: CPU a new snapshot, bytes to the terminal, keys.

    python benchmarks/console.py [--seconds 20]

Prints Markdown. The console runs in a pseudo-terminal, as it would over SSH, on a session that has
a new snapshot each second in which some of the ranks do something else than before. CPU is of the
whole process, making the snapshots included; its share is of one core at one snapshot a second.
"""

from __future__ import annotations

import argparse
import fcntl
import os
import pty
import select
import signal
import struct
import sys
import tempfile
import termios
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from oncall.console.evidence_queries import GetRankCard
from oncall.console.queries import GatherSnapshot, GetSnapshot, ListJobs, OpenJob
from oncall.console.session import Query
from oncall.core.diagnosis import Coverage, Diagnosis
from oncall.views.ranks.rank_card import RankCard
from oncall.views.snapshot import JobLine, Moment, Ranks, RankState, Snapshot, Table

RANKS = (4096, 16_384)
SIZES = ((80, 24), (200, 60))
CHANGING = (0.005, 0.05)  # share of the ranks that do something else in a new snapshot
TICKS = os.sysconf("SC_CLK_TCK")
JOB = "benchmark"
QUIET_S = 0.3  # a terminal that says nothing for so long has said all


def main() -> None:
    """Measure each size, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--console", nargs=3, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.console:
        ranks, changing, counted = arguments.console
        run_console(int(ranks), float(changing), Path(counted))
        return
    print(
        "| ranks | terminal | ranks that change | CPU at 1 Hz | bytes a snapshot | key to screen |"
    )
    print("|---|---|---|---|---|---|")
    for ranks in RANKS:
        for size in SIZES:
            for changing in CHANGING:
                cost = measure(ranks, size, changing, arguments.seconds)
                print(
                    f"| {ranks:,} | {size[0]}x{size[1]} | {100 * changing:g} % "
                    f"| {100 * cost.cpu_s / cost.snapshots:.1f} % "
                    f"| {cost.sent_bytes / cost.snapshots:,.0f} | {1000 * cost.key_s:.0f} ms |"
                )
    idle = measure(RANKS[-1], SIZES[-1], -1, arguments.seconds)
    print(
        f"\nIdle, on a recording of {RANKS[-1]:,} ranks: {100 * idle.cpu_s / idle.wall_s:.1f} % "
        f"CPU, {idle.sent_bytes / idle.wall_s:,.0f} bytes/s."
    )


# ----------------------------------------------------------- inside the terminal


def run_console(count: int, changing: float, counted: Path) -> None:
    """The console, until it is left. Each snapshot adds a byte to `counted`."""
    from oncall.tui.run import _calm

    _calm()
    from oncall.tui.app import ConsoleApp

    session = ChangingSession(count, changing, counted)
    app = ConsoleApp(lambda: session, job=JOB, refresh_every_s=1.0)
    app.run()


class ChangingSession:
    """A job whose ranks do something else each second; without `changing`, a recording."""

    def __init__(self, count: int, changing: float, counted: Path) -> None:
        self.title, self.live = JOB, changing >= 0
        self._changing = round(max(changing, 0) * count)
        self._counted = counted.open("ab", buffering=0)
        self._random = np.random.default_rng(7)
        self._version = 0
        rank = np.arange(count)
        self._ranks = Ranks(
            rank=rank,
            state=np.zeros(count, dtype=np.int64),
            node=tuple(f"gpu{one // 8:04d}" for one in range(count)),
            gpu=rank % 8,
            nic=tuple(f"mlx5_{one % 8}" for one in range(count)),
            waited_ns=np.full(count, -1),
            groups={"tp": rank // 8, "dp": rank % 64, "pp": rank % (count // 8)},
            comm=np.zeros(count, dtype=np.uint64),
            seq=np.full(count, -1),
        )

    def ask(self, query: Query[Any]) -> Any:
        match query:
            case ListJobs():
                return (JobLine(JOB, len(self._ranks) // 8, len(self._ranks), None),)
            case GatherSnapshot():
                self._change()
                return self._snapshot()
            case OpenJob() | GetSnapshot():
                return self._snapshot()
            case GetRankCard(rank):
                return RankCard(rank, (("node", self._ranks.node[rank]),), Table((), (), 0))
        return ()

    def progress(self, lane: str = "snapshots") -> str:  # noqa: ARG002
        return ""

    def _change(self) -> None:
        state = self._ranks.state.copy()
        which = self._random.choice(len(state), self._changing, replace=False)
        state[which] = self._random.integers(0, RankState.HUNG + 1, self._changing)
        self._ranks = replace(self._ranks, state=state)

    def _snapshot(self) -> Snapshot:
        self._version += 1
        self._counted.write(b".")
        number = len(self._ranks)
        coverage = Coverage(number // 8, number // 8, number, number)
        now_ns = time.time_ns()
        return Snapshot(
            version=self._version,
            moment=Moment(now_ns, now_ns - 10**12, now_ns, self.live),
            job=JOB,
            diagnosis=Diagnosis(JOB, None, None, coverage, (), checked=("hang",)),
            ranks=self._ranks,
        )

    def cancel(self, lane: str | None = None) -> None: ...

    def close(self) -> None: ...


# ---------------------------------------------------------- outside the terminal


@dataclass(frozen=True)
class Cost:
    """Of one console over some time; `key_s` the median time from a key to what it draws."""

    cpu_s: float
    wall_s: float
    sent_bytes: int
    snapshots: int
    key_s: float


def measure(ranks: int, size: tuple[int, int], changing: float, seconds: float) -> Cost:
    """Start a console, go to the fleet, let it settle, and watch it."""
    with tempfile.TemporaryDirectory() as folder:
        counted = Path(folder) / "snapshots"
        command = [sys.executable, __file__, "--console", str(ranks), str(changing), str(counted)]
        child, terminal = start(command, size)
        try:
            watch(terminal, 4.0)
            os.write(terminal, b"2")
            watch(terminal, 3.0)
            cpu, snapshots, began = cpu_s(child), counted.stat().st_size, time.monotonic()
            sent = watch(terminal, seconds)
            wall = time.monotonic() - began
            cpu = cpu_s(child) - cpu
            made = counted.stat().st_size - snapshots
            keys = [key_s(terminal) for _ in range(15)]
            return Cost(cpu, wall, sent, max(made, 1), median(keys))
        finally:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            os.close(terminal)


def start(command: list[str], size: tuple[int, int]) -> tuple[int, int]:
    """A program in a pseudo-terminal of that size: its process id and the terminal."""
    child, terminal = pty.fork()
    if child == 0:
        environment = os.environ | {"TERM": "xterm-256color", "COLORTERM": "truecolor"}
        os.execve(command[0], command, environment)
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", size[1], size[0], 0, 0))
    return child, terminal


def watch(terminal: int, seconds: float, until: Callable[[int], bool] = lambda _: False) -> int:
    """Read what comes for so long; returns how many bytes came."""
    deadline, read = time.monotonic() + seconds, 0
    while (left := deadline - time.monotonic()) > 0 and not until(read):
        if select.select([terminal], [], [], left)[0]:
            read += len(os.read(terminal, 1 << 16))
    return read


def key_s(terminal: int) -> float:
    """Seconds from a key that moves the cursor to the first thing drawn for it."""
    while watch(terminal, QUIET_S):
        pass
    pressed = time.monotonic()
    os.write(terminal, b"l")
    watch(terminal, 2.0, until=lambda read: read > 0)
    return time.monotonic() - pressed


def cpu_s(child: int) -> float:
    """CPU time of a process, user and system."""
    fields = Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


if __name__ == "__main__":
    main()
