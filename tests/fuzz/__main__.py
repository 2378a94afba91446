"""Runs targets within a budget, and prints how many inputs each took."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path

from .worker import Result, fuzz, names

REPOSITORY = Path(__file__).parents[2]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("target", nargs="*", help="all, if none is named")
    parser.add_argument("--inputs", type=int, default=2_000, help="of each target at most (2000)")
    parser.add_argument("--seconds", type=float, default=20, help="for each target at most (20)")
    parser.add_argument("--seed", type=int, default=None, help="of the first input; printed")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--guided", action="store_true", help="by coverage; needs atheris")
    parser.add_argument("--list", action="store_true", help="the targets, and nothing else")
    arguments = parser.parse_args()
    wanted = names(arguments.target)
    if arguments.list:
        print("\n".join(wanted))
        return 0
    if arguments.guided:
        from .guided import run

        return max(run(name, arguments.seconds) for name in wanted)
    seed = time.time_ns() // 10**6 % 10**12 if arguments.seed is None else arguments.seed
    print(f"{datetime.now(UTC):%Y-%m-%d} commit {_commit()} first seed {seed}", flush=True)
    known: set[str] = set()

    def one(name: str) -> Result:
        result = fuzz(name, seed, arguments.inputs, time.monotonic() + arguments.seconds, known)
        print(f"{name}: {result.inputs:,} in {result.seconds:,.0f} s", file=sys.stderr, flush=True)
        return result

    with ThreadPoolExecutor(arguments.jobs) as pool:
        results = list(pool.map(one, wanted))
    print(_table(results))
    return 1 if any(result.failures for result in results) else 0


def _table(results: list[Result]) -> str:
    rows = [
        "| target | inputs | broken | slowest | memory | seconds |",
        "|---|---|---|---|---|---|",
    ]
    rows += [
        f"| {r.target} | {r.inputs:,} | {len(r.failures)} | {r.slowest_s:.1f} s "
        f"| {r.peak_bytes / 1e6:,.0f} MB | {r.seconds:,.0f} |"
        for r in results
    ]
    broken = sum(len(result.failures) for result in results)
    rows.append(f"| all | {sum(r.inputs for r in results):,} | {broken} | | | |")
    return "\n".join(rows)


def _commit() -> str:
    asked = ["git", "-C", str(REPOSITORY), "describe", "--always", "--dirty", "--abbrev=10"]
    done = subprocess.run(asked, capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"


if __name__ == "__main__":
    sys.exit(main())
