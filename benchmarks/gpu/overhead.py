"""What the hooks and the profiler plugin cost a job: alternating pairs of blocks of steps.

    overhead.py OUT --python TORCH_PYTHON --gpus N [--seconds S]

Two jobs are started at once, one with the environment that `oncall hooks env` prints, and take
turns on the same GPUs; after six pairs both are started anew, as how a process happened to lie in
memory is the same for all its blocks. Without a GPU: gloo, in which there is nothing to hook, to
show that the command works, and the stand-in for NCCL, which is hooked.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

from pairs import interval, shown
from ranks import Worker
from steps import arguments

GOAL = 0.002
PAIRS, PAIRS_A_START = 30, 6
BLOCK_S = 1.2
RING_RECORDS = 1 << 20  # no collector reads them: one that is full would record for nothing
RING_BYTES = 64 * RING_RECORDS + (8 << 20)
ONCALL = Path(sys.executable).parent / "oncall"


def hooks(run_dir: Path) -> dict[str, str]:
    """The variables that a user's shell has after `eval "$(oncall hooks env)"`."""
    printed = _said("env", "--job", "gpu", "--run-dir", str(run_dir))
    script = f"{printed}\nenv -0"
    clean = {"PATH": os.environ["PATH"]}
    told = subprocess.run(
        ["sh", "-c", script], env=clean, capture_output=True, check=True, text=True
    )
    pairs = (line.partition("=") for line in told.stdout.split("\0") if line)
    ours = ("ONCALL_", "NCCL_", "LD_PRELOAD")
    return {name: value for name, _, value in pairs if name.startswith(ours)} | {
        "ONCALL_RING_RECORDS": str(RING_RECORDS),
        "ONCALL_RUN_DIR_ON_DISK": "1",
    }


def _said(*words: str) -> str:
    said = subprocess.run([ONCALL, "hooks", *words], capture_output=True, text=True, check=False)
    return said.stdout or said.stderr


def run_dirs(world: int) -> Path:
    """Memory if it has the room for the rings; else a disk, which costs a job more."""
    memory = Path("/dev/shm")
    roomy = memory.is_dir() and shutil.disk_usage(memory).free > 2 * world * RING_BYTES
    return memory if roomy else Path(tempfile.gettempdir())


def started(asked: Any, world: int, pairs: int) -> tuple[list[dict[str, Any]], str]:
    """`pairs` pairs of blocks of two jobs; and what `oncall hooks show` says of the hooked one."""
    backend = "nccl" if asked.gpus else "gloo"
    jobs: dict[str, Worker] = {}
    with tempfile.TemporaryDirectory(dir=run_dirs(world), prefix="oncall-gpu-") as run_dir:
        try:
            for name, added in (("bare", {}), ("hooked", hooks(Path(run_dir)))):
                log = asked.out / f"{name}.log"
                jobs[name] = Worker(asked.python, world, backend, added, log)
            made = list(blocks(jobs, pairs))
            return made, _said("show", "--run-dir", run_dir)
        finally:
            for job in jobs.values():
                job.end()


def blocks(jobs: dict[str, Worker], pairs: int) -> Any:
    steps = {}
    for what in ("transformer", "all_reduce"):
        took_s = max(job.ask(what, 20)["mean_s"] for job in jobs.values())
        steps[what] = max(20, min(500, round(BLOCK_S / took_s)))
    for pair in range(pairs):
        order = list(jobs) if pair % 2 == 0 else list(reversed(jobs))
        for what, count in steps.items():
            yield {"what": what, "steps": count} | {
                name: jobs[name].ask(what, count) for name in order
            }


def report(asked: Any, world: int, made: list[dict[str, Any]], showed: list[str]) -> None:
    """Figures so far, as JSON and as text: written after each start, so that none is lost."""
    figures = {"world": world, "goal": GOAL, "blocks": made, "hooks_show": showed}
    (asked.out / "figures.json").write_text(json.dumps(figures, indent=1) + "\n")
    over = f"{world} GPUs, NCCL" if asked.gpus else f"STAND-IN: {world} ranks of gloo on CPUs"
    lines = [f"{over}; goal: below {GOAL:.1%} of a step of the transformer.", ""]
    lines += ["| what | pairs | bare | median step longer by | mean step longer by | goal |"]
    lines += ["|---|---|---|---|---|---|"]
    for what in ("transformer", "all_reduce"):
        ours = [one for one in made if one["what"] == what]
        ratios = {
            by: [100 * (one["hooked"][by] / one["bare"][by] - 1) for one in ours]
            for by in ("median_s", "mean_s")
        }
        low, high = interval(ratios["median_s"])
        met = "met" if high < 100 * GOAL else "missed" if low > 100 * GOAL else "not decided"
        judged = met if asked.gpus and what == "transformer" else ""
        bare = f"{median(one['bare']['median_s'] for one in ours) * 1e3:.3f} ms"
        cells = [shown(ratios[by], "%", 2) for by in ("median_s", "mean_s")]
        lines.append(f"| {what} | {len(ours)} | {bare} | {' | '.join(cells)} | {judged} |")
    lines += ["", "What the last hooked job had recorded (`oncall hooks show`):", ""]
    lines += ["    " + line for line in showed[-1].splitlines()]
    if asked.gpus and not any(line.split()[4:5] > ["0"] for line in showed[-1].splitlines()[1:]):
        lines += ["", "**The hooks recorded nothing: the figures above are not their cost.**"]
    (asked.out / "section.md").write_text("\n".join(lines) + "\n")


def standin(out: Path) -> None:
    """The job of the demo over the stand-in for NCCL, hooked: three pairs, to see it work."""
    script = Path(__file__).parents[1] / "job_overhead.py"
    command = [sys.executable, str(script), "--pairs", "3", "--steps", "30", "--pp", "1"]
    said = subprocess.run([*command, "--dp", "1"], capture_output=True, text=True, check=True)
    with (out / "section.md").open("a") as section:
        section.write(f"\nSTAND-IN for NCCL, on CPUs:\n\n{said.stdout}")


def main() -> None:
    asked = arguments()
    world = asked.gpus or 2
    total, each = (PAIRS, PAIRS_A_START) if asked.gpus else (4, 2)
    end = time.monotonic() + asked.seconds
    made: list[dict[str, Any]] = []
    showed: list[str] = []
    while len(made) < 2 * total and time.monotonic() < end:
        some, show = started(asked, world, each)
        made, showed = made + some, [*showed, show]
        report(asked, world, made, showed)
    if not asked.gpus:
        standin(asked.out)


if __name__ == "__main__":
    main()
