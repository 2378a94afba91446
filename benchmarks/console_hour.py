"""Whether the console grows: an hour of a running job, replayed faster than real time.

    python benchmarks/console_hour.py [--minutes 60]

Prints Markdown: memory (RSS) at the start, after each quarter, and at the end. The console runs in
a pseudo-terminal and is taken from screen to screen meanwhile. Twice: 4,096 ranks of which 5 % do
something else each second, as snapshots made by hand; and real gathers of two nodes' shards with a
fault in them, one each fifteen seconds, merged, diagnosed, kept as history.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from console import JOB, ChangingSession, start, watch

from oncall.console.cancellation import Task
from oncall.console.live import Fleet
from oncall.console.replay import Replay
from oncall.console.rulebook_store import RulebookStore
from oncall.core.units import NS_PER_S
from oncall.fleet.reach import reach_shards
from oncall.node.store.catalog import nodes_in
from oncall_lab import TrainingFault, TrainingScenario, simulate, write

if TYPE_CHECKING:
    from oncall.console.session import Session

SIZE = (160, 48)
RANKS, CHANGING = 4096, 0.05
SCREENS = b"2341"
QUARTERS = 4
STEP_S = {"snapshots": 1, "gathers": 15}  # of a job's time, from one snapshot to the next
SETTLED_SNAPSHOTS = 20
MOST_S = 1500.0


def main() -> None:
    """Run both, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=int, default=60)
    parser.add_argument("--console", nargs=3, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.console:
        kind, folder, counted = arguments.console
        run_console(kind, Path(folder), Path(counted))
        return
    print("| an hour of | start | 1/4 | 2/4 | 3/4 | end | took |")
    print("|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory(prefix="oncall-hour-") as name:
        folder = Path(name)
        write_shards(folder / "nodes")
        for kind, step_s in STEP_S.items():
            began = time.monotonic()
            sizes = measure(kind, folder, arguments.minutes * 60 // step_s)
            shown = " | ".join(f"{size / 2**20:,.0f} MiB" for size in sizes)
            print(f"| {kind}, one in {step_s} s | {shown} | {time.monotonic() - began:,.0f} s |")


def write_shards(folder: Path) -> None:
    """A minute of two nodes whose sixteen ranks hang at half of it, as our hooks record it."""
    fault = TrainingFault("H1", (5,), at_ns=30 * NS_PER_S)
    incident, truth = simulate(
        TrainingScenario(duration_ns=60 * NS_PER_S, faults=(fault,), recorder="hooks")
    )
    with incident:
        write(incident, truth, folder, shards=True)


def measure(kind: str, folder: Path, snapshots: int) -> list[int]:
    """RSS in bytes once it has settled, after each quarter of so many snapshots."""
    counted = folder / f"{kind}.snapshots"
    counted.touch()
    command = [sys.executable, __file__, "--console", kind, str(folder / "nodes"), str(counted)]
    child, terminal = start(command, SIZE)
    deadline = time.monotonic() + MOST_S
    sizes, keys = [], 0
    try:
        for goal in [SETTLED_SNAPSHOTS, *(snapshots * part // QUARTERS for part in range(1, 5))]:
            while counted.stat().st_size < goal:
                if time.monotonic() > deadline:
                    raise SystemExit(f"{kind}: {counted.stat().st_size} snapshots in {MOST_S:g} s")
                watch(terminal, 0.5)
                os.write(terminal, SCREENS[keys % 4 : keys % 4 + 1])
                keys += 1
            sizes.append(rss_bytes(child))
        return sizes
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.close(terminal)


def rss_bytes(child: int) -> int:
    """Memory of a process that is in use now."""
    status = Path(f"/proc/{child}/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0]) * 1024


# ----------------------------------------------------------- inside the terminal


def run_console(kind: str, folder: Path, counted: Path) -> None:
    """The console, gathering as fast as it can. Each snapshot adds a byte to `counted`."""
    from oncall.tui.run import _calm

    _calm()
    from oncall.tui import app

    class Hasty(app.ConsoleApp):
        """Looks twenty times more often whether it is time to gather."""

        CSS_PATH = Path(app.__file__).with_name("oncall.tcss")

        def on_ready(self) -> None:
            super().on_ready()
            self.set_interval(0.025, self.timekeeping.beat)

    def opener() -> Session:
        if kind == "snapshots":
            return ChangingSession(RANKS, CHANGING, counted)  # type: ignore[return-value]
        return gathering(folder, counted)

    Hasty(opener, job=None if kind == "gathers" else JOB, refresh_every_s=0.0).run()


def gathering(folder: Path, counted: Path) -> Session:
    """A live session on folders of shards, for which each gather comes fifteen seconds later."""
    reach = replace(reach_shards(nodes_in(folder)), source="benchmark")
    passed_ns = [time.time_ns()]
    file = counted.open("ab", buffering=0)

    class Later(Fleet):
        def refresh(self, task: Task) -> None:
            passed_ns[0] += STEP_S["gathers"] * NS_PER_S
            super().refresh(task)
            file.write(b".")

    store = RulebookStore(site=folder / "none")
    return Replay(Later(reach, store, since_ns=None, clock=lambda: passed_ns[0]), store)


if __name__ == "__main__":
    main()
