"""What the hooks cost a training job: its step with and without them, in turn, in one run.

    python benchmarks/job_overhead.py [--pairs 20] [--steps 60] [--tp 2] [--pp 2] [--dp 2]

The small job of the demo runs over and over: bare, with the shim of NCCL's calls, and with shim
and profiler plugin, every proxy step recorded; forwards in one round and backwards in the next, so
that what drifts meets all alike. A round's figure is the ratio of two step times: of the median
step, and of the quickest tenth, which other work on the machine disturbs least. Shown is the median
over rounds with a 95 % confidence interval from order statistics, which assumes nothing of the
noise; and what more of a processor a step takes, starting not counted, which is the sharper bound.
"""

from __future__ import annotations

import argparse
import os
import platform
import resource
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import median

from pairs import shown

from oncall.native import hooks_library, standin_folder

WARM_UP_STEPS = 5
GOAL = 0.0016  # VenusTrace's figure
JOB_TAKES_S = 120.0


@dataclass(frozen=True)
class Job:
    """The shape of the job and how long it runs."""

    tp: int
    pp: int
    dp: int
    steps: int

    @property
    def ranks(self) -> int:
        return self.tp * self.pp * self.dp


@dataclass(frozen=True)
class Run:
    """One run of the job: seconds of a median step and of the quickest tenth, and processor
    seconds of a rank's step."""

    step_s: float
    quick_s: float
    processor_s: float


def variants(run_dir: Path) -> dict[str, dict[str, str]]:
    """What is compared: the environment that each adds."""
    hooks = str(hooks_library())
    place = {"ONCALL_RUN_DIR": str(run_dir), "ONCALL_RUN_DIR_ON_DISK": "1"}
    shim = {"LD_PRELOAD": hooks, **place, "ONCALL_JOB": "overhead"}
    return {
        "bare": {},
        "calls": shim,
        "calls, kernels and proxy steps": shim | {"NCCL_PROFILER_PLUGIN": hooks},
    }


def measure(job: Job, folder: Path, added: Mapping[str, str]) -> Run:
    """Run the job, and a job of one step beside it to know what starting takes."""
    steps_s, used_s = run_once(job, folder, added)
    _, starting_s = run_once(replace(job, steps=1), folder, added)
    steps_s = sorted(steps_s[WARM_UP_STEPS:])
    processor_s = (used_s - starting_s) / (job.steps - 1) / job.ranks
    return Run(median(steps_s), steps_s[len(steps_s) // 10], processor_s)


def run_once(job: Job, folder: Path, added: Mapping[str, str]) -> tuple[list[float], float]:
    """Run the job once: seconds of each step, and processor seconds in all."""
    report = folder / "steps"
    command = [str(standin_folder() / "train"), "--quiet", "--report", str(report)]
    command += ["--unique-id-file", str(folder / "rendezvous")]
    for name, size in asdict(job).items():
        command += [f"--{name}", str(size)]
    base = {key: value for key, value in os.environ.items() if not key.startswith("ONCALL_")}
    before = _processor_s()
    ranks = [
        subprocess.Popen(
            command, env={**base, **added, "RANK": str(rank), "WORLD_SIZE": str(job.ranks)}
        )
        for rank in range(job.ranks)
    ]
    try:
        for rank in ranks:
            if rank.wait(JOB_TAKES_S) != 0:
                raise SystemExit("the job failed")
    finally:
        for rank in ranks:
            rank.kill()
            rank.wait()
    used_s = _processor_s() - before
    for ring in folder.glob("rings/*.ring"):
        ring.unlink()
    return [int(line) / 1e9 for line in report.read_text().split()], used_s


def _processor_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    for name, default in (("pairs", 20), ("steps", 60), ("tp", 2), ("pp", 2), ("dp", 2)):
        parser.add_argument(f"--{name}", type=int, default=default)
    asked = parser.parse_args()
    job = Job(asked.tp, asked.pp, asked.dp, asked.steps)
    with tempfile.TemporaryDirectory() as name:
        added = variants(Path(name))
        runs: dict[str, list[Run]] = {variant: [] for variant in added}
        for pair in range(asked.pairs):
            for variant in list(added) if pair % 2 == 0 else reversed(added):
                runs[variant].append(measure(job, Path(name), added[variant]))
    print(
        f"{job.ranks} ranks on {os.cpu_count()} cores ({platform.machine()}), {asked.pairs} rounds "
        f"of {job.steps} steps, load {os.getloadavg()[0]:.1f} at the end; goal: below {GOAL:.2%}\n"
    )
    print("| hooks | step | longer by | quickest tenth longer by | processor a rank and step |")
    print("|---|---|---|---|---|")
    for variant, measured in runs.items():
        print(_row(variant, measured, runs["bare"]))


def _row(variant: str, measured: Sequence[Run], bare: Sequence[Run]) -> str:
    step = f"{median(run.step_s for run in measured) * 1e3:.2f} ms"
    if measured is bare:
        return (
            f"| {variant} | {step} | | | {median(run.processor_s for run in bare) * 1e6:.0f} µs |"
        )
    pairs = list(zip(measured, bare, strict=True))
    longer = shown([100 * (run.step_s / other.step_s - 1) for run, other in pairs], "%", 2)
    quick = shown([100 * (run.quick_s / other.quick_s - 1) for run, other in pairs], "%", 2)
    more = shown([1e6 * (run.processor_s - other.processor_s) for run, other in pairs], "µs", 0)
    return f"| {variant} | {step} | {longer} | {quick} | {more} |"


if __name__ == "__main__":
    main()
