"""What the hooks and the profiler plugin cost a job: alternating pairs of blocks of steps.

Two jobs are started at once, one with the environment that `oncall hooks env` prints, and take
turns on the same GPUs. After ten pairs both are started anew: how a process happens to lie in
memory is the same for all its blocks.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

from pairs import interval, shown
from ranks import Worker
from steps import arguments

GOAL = 0.002
PAIRS, PAIRS_A_START = 30, 10
BLOCK_S, MOST_STEPS = 1.0, 2000
WHAT, BY = ("transformer", "all_reduce"), ("median_s", "mean_s")
RING_RECORDS = 1 << 21  # no collector empties the rings, and a full one would not be written to


def oncall_hooks(*words: str) -> str:
    """What `oncall hooks` prints."""
    command = [Path(sys.executable).parent / "oncall", "hooks", *words]
    said = subprocess.run(command, capture_output=True, check=False, text=True)
    return said.stdout or said.stderr


def hooked(run_dir: str) -> dict[str, str]:
    """The variables that a shell has after `eval "$(oncall hooks env)"`."""
    script = oncall_hooks("env", "--job", "gpu", "--run-dir", run_dir) + "\nenv -0"
    clean = {"PATH": os.environ["PATH"], "ONCALL_RING_RECORDS": str(RING_RECORDS)}
    clean |= {"ONCALL_RUN_DIR_ON_DISK": "1"}
    has = subprocess.check_output(["sh", "-c", script], env=clean, text=True).split("\0")
    pairs = (one.partition("=") for one in has)
    ours = ("ONCALL_", "NCCL_", "LD_PRELOAD")
    return {name: value for name, _, value in pairs if name.startswith(ours)}


def measured(asked: Namespace, pairs: int) -> tuple[list[dict[str, Any]], str]:
    """Pairs of blocks of two jobs, and what `oncall hooks show` says of the hooked one."""
    memory, needed = Path("/dev/shm"), (asked.gpus + 1) * RING_RECORDS * 64 * 2
    roomy = memory.is_dir() and shutil.disk_usage(memory).free > needed
    jobs: dict[str, Worker] = {}
    with tempfile.TemporaryDirectory(dir=memory if roomy else None) as run_dir:
        try:
            for name, added in (("bare", {}), ("hooked", hooked(run_dir))):
                with (asked.out / f"{name}.log").open("ab") as log:
                    jobs[name] = Worker(asked.python, asked.gpus, added, log)
            return list(blocks(jobs, pairs)), oncall_hooks("show", "--run-dir", run_dir)
        finally:
            for job in jobs.values():
                job.end()


def blocks(jobs: dict[str, Worker], pairs: int) -> Iterator[dict[str, Any]]:
    """In turn, as many steps each as take about a second, if the rings have room for them."""
    for what in WHAT:
        took_s = max(job.ask(what, 20)["mean_s"] for job in jobs.values())
        steps = max(20, min(MOST_STEPS, round(BLOCK_S / took_s)))
        for pair in range(pairs):
            order = list(jobs) if pair % 2 == 0 else list(reversed(jobs))
            yield {"what": what, "steps": steps, **{on: jobs[on].ask(what, steps) for on in order}}


def write(asked: Namespace, made: list[dict[str, Any]], show: str) -> None:
    """The figures so far: after each start, so that none is lost."""
    figures = {"gpus": asked.gpus, "goal": GOAL, "blocks": made, "hooks_show": show}
    (asked.out / "figures.json").write_text(json.dumps(figures, indent=1) + "\n")
    over = f"{asked.gpus} GPUs, NCCL" if asked.gpus else "STAND-IN: 2 ranks of gloo on CPUs"
    lines = [f"{over}; goal: below {GOAL:.1%} of a median step of the transformer.", ""]
    lines += ["| what | pairs | bare | median step longer by | mean step longer by | goal |"]
    lines += ["|---|---|---|---|---|---|"]
    # Rank, job, process, state, records, unread, dropped: a ring not written to costs nothing.
    rings = [line.split() for line in show.splitlines()[1:]]
    void = not rings or any(ring[4] == "0" or ring[6] != "0" for ring in rings)
    for what in WHAT:
        ours = [one for one in made if one["what"] == what]
        longer = [[100 * (one["hooked"][by] / one["bare"][by] - 1) for one in ours] for by in BY]
        low, high = interval(longer[0])
        met = "met" if high < 100 * GOAL else "missed" if low > 100 * GOAL else "not decided"
        goal = ("void" if void else met) if asked.gpus and what == "transformer" else ""
        bare_ms = median(one["bare"]["median_s"] for one in ours) * 1e3
        cells = " | ".join(shown(values, "%", 2) for values in longer)
        lines.append(f"| {what} | {len(ours)} | {bare_ms:.3f} ms | {cells} | {goal} |")
    lines += [
        "",
        "What the last hooked job recorded; without records, or with some dropped, void:",
        "",
    ]
    lines += ["    " + line for line in show.splitlines()]
    (asked.out / "section.md").write_text("\n".join(lines) + "\n")


def standin(asked: Namespace) -> None:
    """The job of the demo over the stand-in for NCCL, hooked, to see the hooks record."""
    command = [sys.executable, str(Path(__file__).parents[1] / "job_overhead.py")]
    command += ["--pairs", "2", "--steps", "20", "--pp", "1", "--dp", "1"]
    said = subprocess.check_output(command, text=True)
    with (asked.out / "section.md").open("a") as section:
        section.write(f"\nSTAND-IN for NCCL, on CPUs:\n\n{said}")


def main() -> None:
    asked = arguments()
    total, each = (PAIRS, PAIRS_A_START) if asked.gpus else (2, 2)
    end = time.monotonic() + asked.seconds - 60
    made: list[dict[str, Any]] = []
    while len(made) < len(WHAT) * total and time.monotonic() < end:
        more, show = measured(asked, each)
        made += more
        write(asked, made, show)
    if not asked.gpus:
        standin(asked)


if __name__ == "__main__":
    main()
