"""How far oncall is from what the machine can do: whole commands beside the least work.

    python benchmarks/limits.py [ROW...] [--against PYTHON] [--torch-python PYTHON] [--place DIR]

One row an input. The limit is a process of its own (least.py) that imports numpy and DuckDB and
does the least that reads the input: the C unpickler over dumps, the C parser over a trace, lines
split in a log, one pass over every column of an incident's tables. PYTHON of `--against` has
another oncall, such as a checkout's `.venv/bin/python`; that of `--torch-python` has torch, for
torchfrtrace. All of a row run in turn. Seconds are CPU (user and system, children included) and
wall, medians; MB are those of a process and its children together, at most. `ratio` is the CPU of
this oncall to the limit's. Inputs are kept in DIR, if it is given, and taken from there.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).parent))

import logs
import make_megatrace
import profiler_traces
from make_flight_recorder import Shape, make
from speed import family_bytes, machine, torchfrtrace

from oncall_lab import TrainingFault, TrainingScenario, simulate
from oncall_lab.pipeline import PipelineFault, PipelineScenario, simulate_pipeline

ENTRIES, ABSENT = 500, 5
LONG_S = 30.0  # a row that has taken longer is not run once more
SHORT_S = 3.0  # one that is shorter runs once before it counts, so that its modules are compiled
LEAST = str(Path(__file__).with_name("least.py"))
_ENVIRONMENT = {**os.environ, "TORCHDYNAMO_DISABLE": "1"}
_ENVIRONMENT.pop("PYTHONDONTWRITEBYTECODE", None)  # an installation's modules are compiled
Make = Callable[[Path], object]


# ----------------------------------------------------------------- the inputs


def dumps(ranks: int) -> Make:
    return lambda place: make(place, Shape(ranks, 4, 2), ENTRIES, ABSENT)


def saved(scenario: TrainingScenario) -> Make:
    def save(place: Path) -> None:
        with simulate(scenario)[0] as incident:
            incident.save(place)

    return save


def hang(tp: int, pp: int, dp: int) -> Make:
    """Five minutes of about 500 operations a rank."""
    fault = TrainingFault("H1", (ABSENT,), at_ns=250 * 10**9)
    return saved(
        TrainingScenario(
            tp=tp, pp=pp, dp=dp, tp_operations=1, forward_ns=500 * 10**6, faults=(fault,)
        )
    )


def every_collector() -> Make:
    """512 ranks with hooks, NICs, GPUs, hosts, pings and a topology; one rank is slow."""
    return saved(
        TrainingScenario(
            tp=8, pp=4, dp=16, tp_operations=1, forward_ns=250 * 10**6, recorder="hooks",
            measured=True, links_known=True, faults=(TrainingFault("S1", (ABSENT,)),),
        )
    )  # fmt: skip


def megatrace(place: Path) -> None:
    """64 ranks, 40 iterations: 593,280 calls. Rank 2 is slow in the second half."""
    scenario = PipelineScenario(
        recorder="calls", host_ahead=True, iterations=40, tp=2, pp=4, dp=8, layers=24,
        configuration_stated=False, faults=(PipelineFault("slow", 2, 20, factor=2.0),),
    )  # fmt: skip
    with simulate_pipeline(scenario)[0] as incident:
        make_megatrace.write_logs(incident, place)


def trace(place: Path) -> None:
    place.mkdir()
    with (place / "rank0.json").open("w") as out:
        profiler_traces.write(out, rank=0, ranks=2, size=500 * 10**6)


def dense_log(place: Path) -> None:
    place.mkdir()
    logs.write(place / "job.log", 100, 5.0)


@dataclass(frozen=True)
class Row:
    """An input, the least work that reads it, and what is wanted: wall time and memory."""

    title: str
    make: Make
    least: str
    goal: str
    rules: bool = False  # alone, in memory
    torch: bool = False

    @property
    def is_incident(self) -> bool:
        return self.least == "passed_over"


ROWS: Mapping[str, Row] = {
    "fr16": Row("Flight Recorder, 16 ranks", dumps(16), "unpickled", "0.6 s", torch=True),
    "fr64": Row("64 ranks", dumps(64), "unpickled", "0.8 s", torch=True),
    "fr256": Row("256 ranks", dumps(256), "unpickled", "1.2 s", torch=True),
    "fr1024": Row("1,024 ranks", dumps(1024), "unpickled", "3 s", torch=True),
    "fr4096": Row("4,096 ranks", dumps(4096), "unpickled", "7 s, 800 MB"),
    "all512": Row("512 ranks, every collector", every_collector(), "passed_over", "4 s, 1 GB"),
    "rules16": Row("rules alone, 16 ranks", hang(4, 2, 2), "passed_over", "0.146 s", rules=True),
    "rules4096": Row("rules, 4,096 ranks", hang(8, 4, 128), "passed_over", "1.5 s", rules=True),
    "megatrace": Row("64 Megatrace logs, 80 MB", megatrace, "split_lines", "3 s"),
    "kineto": Row("Kineto trace of 500 MB", trace, "parsed", "20 s, 1 GB"),
    "log": Row("log of 100 MB, 5 % of interest", dense_log, "split_lines", "1 s"),
}


# ------------------------------------------------------------------ measuring


@dataclass
class Cost:
    """Runs of one command; `inside`: it prints its own CPU and wall seconds, which count."""

    command: Sequence[str]
    inside: bool
    cpu_s: list[float] = field(default_factory=list)
    wall_s: list[float] = field(default_factory=list)
    most_bytes: int = 0

    def run(self) -> None:
        """Once more."""
        began = time.perf_counter()
        with tempfile.TemporaryFile() as said:
            process = subprocess.Popen(self.command, stdout=said, stderr=said, env=_ENVIRONMENT)
            over = threading.Event()
            watcher = threading.Thread(target=self._watch, args=(process.pid, over))
            watcher.start()
            _, status, used = os.wait4(process.pid, 0)
            wall_s = time.perf_counter() - began
            over.set()
            watcher.join()
            process.returncode = os.waitstatus_to_exitcode(status)
            said.seek(0)
            text = said.read().decode(errors="replace")
        if process.returncode not in (0, 1, 3):  # oncall found something, or cannot be sure
            sys.exit(f"{' '.join(self.command)} failed:\n{text}")
        cpu_s = used.ru_utime + used.ru_stime
        if self.inside:
            cpu_s, wall_s = map(float, text.split())
        self.cpu_s.append(cpu_s)
        self.wall_s.append(wall_s)

    def forget(self) -> None:
        """What was measured so far does not count."""
        self.cpu_s.clear()
        self.wall_s.clear()

    def _watch(self, pid: int, over: threading.Event) -> None:
        while not over.wait(0.02):
            self.most_bytes = max(self.most_bytes, family_bytes(pid))

    def __str__(self) -> str:
        megabytes = f"{self.most_bytes / 1e6:,.0f} MB"
        return f"{_s(median(self.cpu_s))} / {_s(median(self.wall_s))} s, {megabytes}"


def _s(seconds: float) -> str:
    return f"{seconds:.{3 if seconds < 0.3 else 2 if seconds < 10 else 1}f}"


def measured(row: Row, place: Path, options: argparse.Namespace) -> dict[str, Cost]:
    """Each command of the row `times` times, in turn."""
    commands = {"limit": [sys.executable, LEAST, row.least, str(place)]}
    for name, python in (("before", options.against), ("after", sys.executable)):
        if python and row.rules:
            commands[name] = [python, LEAST, "rules", str(place)]
        elif python:
            commands[name] = [python, "-m", "oncall.cli.main", "diagnose", str(place)]
    if row.torch and options.torch_python:
        commands["torch"] = torchfrtrace(options.torch_python, place)
    costs = {name: Cost(command, inside=row.rules) for name, command in commands.items()}
    began = time.perf_counter()
    for cost in costs.values():
        cost.run()
    if time.perf_counter() - began < SHORT_S * len(costs):
        for cost in costs.values():
            cost.forget()
    while (runs := len(costs["after"].cpu_s)) < options.times:
        if runs and time.perf_counter() - began > LONG_S:
            break
        for cost in costs.values():
            cost.run()
    return costs


def line(row: Row, costs: Mapping[str, Cost]) -> str:
    """The row of the table."""
    after = costs["after"]
    cells = [row.title, str(costs["limit"]), str(costs.get("before", "")), str(after)]
    for other in ("before", "limit"):
        if other in costs:
            cells.append(f"{median(after.cpu_s) / median(costs[other].cpu_s):.2f}")
        else:
            cells.append("")
    torch = costs.get("torch")
    factor = f" ({median(torch.cpu_s) / median(after.cpu_s):.1f} ×)" if torch else ""
    cells += [row.goal, f"{torch}{factor}" if torch else "", f"{os.getloadavg()[0]:.1f}"]
    return f"| {' | '.join(cells)} |"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("rows", nargs="*", default=list(ROWS), metavar="ROW", help=", ".join(ROWS))
    parser.add_argument("--against", help="a Python with another oncall")
    parser.add_argument("--torch-python", help="a Python that has torch")
    parser.add_argument("--place", type=Path, help="a folder for the inputs")
    parser.add_argument("--times", type=int, default=5, help="runs of each, at most")
    options = parser.parse_args()
    print(f"{machine()}\n")
    print("| input | limit | before | after | to before | to limit | goal | torchfrtrace | load |")
    print("|---|---|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        for name in options.rows:
            row = ROWS[name]
            place = (options.place or Path(folder)) / f"{name}{'.oncall' * row.is_incident}"
            if not place.exists():
                row.make(place)
            print(line(row, measured(row, place, options)), flush=True)


if __name__ == "__main__":
    main()
