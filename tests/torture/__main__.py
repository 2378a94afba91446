"""Runs scenarios within a budget and prints the table of what they found."""

from __future__ import annotations

import argparse
import multiprocessing
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from . import REPOSITORY, clocks, disks, job, nodes, rivals
from .interrupts import interrupts
from .kills import ignore_interrupts, kills
from .outcome import Outcome, table, timed


@dataclass(frozen=True)
class Budget:
    """How much is done; `until` is a moment of the monotonic clock."""

    kills: int
    workers: int
    seed: int
    until: float


def _kills(folder: Path, budget: Budget) -> Outcome:
    """Workers share the kills; each has a node of its own."""
    share = [budget.kills // budget.workers] * budget.workers
    share[0] += budget.kills - sum(share)
    context = multiprocessing.get_context("spawn")
    # Ctrl-C ends the kills in order, so that what was done is judged.
    signal.signal(signal.SIGINT, lambda *_: (folder / "stop").touch())
    with ProcessPoolExecutor(
        budget.workers, mp_context=context, initializer=ignore_interrupts
    ) as pool:
        asked = [
            pool.submit(kills, folder, count, budget.seed + number, budget.until)
            for number, count in enumerate(share)
        ]
        found = [each.result() for each in asked]
    signal.signal(signal.SIGINT, signal.default_int_handler)
    return Outcome(
        found[0].what,
        sum(each.times for each in found),
        lost=sum(each.lost for each in found),
        doubled=sum(each.doubled for each in found),
        note="; ".join(each.note for each in found),
        failures=tuple(failure for each in found for failure in each.failures),
    )


SCENARIOS: dict[str, Callable[[Path, Budget], Outcome]] = {
    "kills": _kills,
    "interrupts": lambda folder, budget: interrupts(
        folder, budget.kills, budget.seed, budget.until
    ),
    **{
        name: lambda folder, _, run=run: run(folder)  # type: ignore[misc]
        for name, run in {
            "disk-full": disks.full,
            "no-inodes": disks.no_inodes,
            "read-only": disks.read_only,
            "file-size-limit": disks.no_large_files,
            "slow-disk": disks.slow,
            "clock-steps": clocks.steps,
            "second-collector": rivals.second_collectors,
            "collector-race": rivals.race,
            "stale-locks": rivals.stale_locks,
            "reused-pids": rivals.reused_numbers,
            "silent-nodes": nodes.silent,
            "job-results": job.results,
            "job-full-rings": job.full_ring_directory,
            "job-limits": job.limits,
        }.items()
    },
}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.torture", description=__doc__)
    parser.add_argument("scenario", nargs="*", help=f"of {', '.join(SCENARIOS)}; all, if none")
    parser.add_argument(
        "--kills", type=int, default=60, help="of the collector, and Ctrl-Cs of commands (60)"
    )
    parser.add_argument("--minutes", type=float, default=8, help="for the kills at most (8)")
    parser.add_argument("--workers", type=int, default=2, help="nodes killed at once (2)")
    parser.add_argument("--seed", type=int, default=None, help="of random moments; printed")
    arguments = parser.parse_args()
    unknown = set(arguments.scenario) - set(SCENARIOS)
    if unknown:
        parser.error(f"unknown scenario {', '.join(sorted(unknown))}")
    seed = int(time.time()) if arguments.seed is None else arguments.seed
    until = time.monotonic() + arguments.minutes * 60
    budget = Budget(arguments.kills, arguments.workers, seed, until)
    print(f"{datetime.now(UTC):%Y-%m-%d} commit {_commit()} seed {seed}", flush=True)
    with tempfile.TemporaryDirectory(prefix="oncall-torture-", ignore_cleanup_errors=True) as name:
        outcomes = []
        for what in arguments.scenario or SCENARIOS:
            folder = Path(name, what)
            folder.mkdir()
            outcomes.append(timed(what, lambda w=what, f=folder: SCENARIOS[w](f, budget)))  # type: ignore[misc]
            print(table(outcomes[-1:]).splitlines()[2], file=sys.stderr, flush=True)
    print(table(outcomes))
    return 0 if all(each.kept for each in outcomes) else 1


def _commit() -> str:
    asked = ["git", "-C", str(REPOSITORY), "describe", "--always", "--dirty", "--abbrev=10"]
    done = subprocess.run(asked, capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"


if __name__ == "__main__":
    sys.exit(main())
