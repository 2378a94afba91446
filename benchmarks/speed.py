"""How fast oncall is: start-up, whole diagnoses beside torchfrtrace, growth, rules alone.

    python benchmarks/speed.py all [--torch-python PYTHON] [--times 7]
    python benchmarks/speed.py startup | recordings | growth | rules      (one section)
    python benchmarks/speed.py against --other PYTHON                     (another installation)

Prints the Markdown that docs/performance.md holds. Whole processes are timed from outside, and
what is compared runs in turn, so that both meet the same machine; the memory is that of the
process and its children together, looked at every 10 ms. PYTHON is one that has torch; without
it, nothing is compared.
"""

from __future__ import annotations

import argparse
import gc
import os
import platform
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).parent))

from make_flight_recorder import Shape, make

from oncall import __version__
from oncall.evidence import Incident
from oncall.importers import detect
from oncall.rules.engine.engine import run as run_rules
from oncall.rules.language.load import load_rulebooks, shipped_folder
from oncall_lab import TrainingFault, TrainingScenario, simulate

SHARED = Path(__file__).parents[2] / "shared" / "data"
SIZES = (16, 64, 256, 1024, 4096)
LARGEST_FOR_TORCH = 256
ENTRIES = 500
ABSENT = 5
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


@dataclass
class Measured:
    """Runs of one thing: seconds of each, the most bytes any of them held, and the load then."""

    seconds: list[float] = field(default_factory=list)
    rss_bytes: int = 0
    load: float = 0.0

    def add(self, seconds: float, rss_bytes: int = 0) -> None:
        self.seconds.append(seconds)
        self.rss_bytes = max(self.rss_bytes, rss_bytes)
        self.load = os.getloadavg()[0]

    @property
    def best(self) -> float:
        return min(self.seconds)

    def __str__(self) -> str:
        return f"{_time(self.best)} / {_time(median(self.seconds))}"


def _time(seconds: float) -> str:
    return f"{seconds * 1e3:.0f} ms" if seconds < 1 else f"{seconds:.2f} s"


# ------------------------------------------------------------- whole processes


def in_turn(commands: Mapping[str, Sequence[str]], times: int) -> dict[str, Measured]:
    """Each command `times` times, one after the other, over and over."""
    found = {name: Measured() for name in commands}
    for _ in range(times):
        for name, command in commands.items():
            found[name].add(*one_process(command))
    return found


def one_process(command: Sequence[str]) -> tuple[float, int]:
    """Seconds until the command has ended, and the most bytes it and its children held."""
    began = time.perf_counter()
    with subprocess.Popen(
        command,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env={**os.environ, "TORCHDYNAMO_DISABLE": "1"},
    ) as process:
        peak = [0]
        watcher = threading.Thread(target=_watch, args=(process, peak))
        watcher.start()
        _, said = process.communicate()
        seconds = time.perf_counter() - began
        watcher.join()
    if process.returncode not in (0, 1):  # 1: oncall has found something
        sys.exit(f"{' '.join(command)} failed:\n{said.decode()}")
    return seconds, peak[0]


def _watch(process: subprocess.Popen[bytes], peak: list[int]) -> None:
    while process.poll() is None:
        peak[0] = max(peak[0], family_bytes(process.pid))
        time.sleep(0.01)


def family_bytes(pid: int) -> int:
    """What a process and all that came of it hold now."""
    return sum(map(_rss_bytes, _family(pid)))


def _family(pid: int) -> Iterator[int]:
    """The process and all that came of it."""
    yield pid
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return
    for child in children:
        yield from _family(int(child))


def _rss_bytes(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * PAGE_BYTES
    except (OSError, IndexError):
        return 0  # it has just ended


def oncall(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "oncall.cli.main", *arguments]


def torchfrtrace(python: str, folder: Path) -> list[str]:
    first = next(path.name for path in sorted(folder.iterdir()) if path.name.endswith("0"))
    module = "torch.distributed.flight_recorder.fr_trace"
    return [python, "-m", module, str(folder), "-p", first.removesuffix("0")]


# -------------------------------------------------------------------- sections


def startup(options: argparse.Namespace) -> None:
    """What every command pays."""
    print("\n## Start-up\n")
    loaded = "import oncall.cli.main, sys; sys.exit(2 if 'textual' in sys.modules else 0)"
    one_process([sys.executable, "-c", loaded])  # fails if textual is loaded
    commands = {
        "`python -c pass`": [sys.executable, "-c", "pass"],
        "`oncall --help`": oncall("--help"),
        "`oncall diagnose --help`": oncall("diagnose", "--help"),
    }
    print("Importing the command line does not import textual. Best and median of each:\n")
    print("| command | best / median | load |\n|---|---|---|")
    for name, found in in_turn(commands, options.times).items():
        print(f"| {name} | {found} | {found.load:.1f} |")


def against(options: argparse.Namespace) -> None:
    """CPU time of small commands beside that of another installation, in turn."""
    if not options.other:
        return
    print("\n## Against another installation: CPU time, median\n")
    print("| command | the other | this one | ratio |\n|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        commands = {"`oncall --help`": ("--help",)}
        for ranks in (16, 64):
            place = _recording(Path(folder), ranks)
            commands[f"diagnose, {ranks} ranks"] = ("diagnose", str(place))
        for name, arguments in commands.items():
            seconds: dict[str, list[float]] = {options.other: [], sys.executable: []}
            for _ in range(options.times):
                for python, found in seconds.items():
                    found.append(_cpu_seconds([python, "-m", "oncall.cli.main", *arguments]))
            other, own = map(median, seconds.values())
            print(f"| {name} | {_time(other)} | {_time(own)} | {own / other:.2f} |", flush=True)


def _cpu_seconds(command: Sequence[str]) -> float:
    """User and system time of a process and its children."""
    before = os.times()
    subprocess.run(command, stdout=subprocess.DEVNULL, check=False)
    after = os.times()
    used = after.children_user - before.children_user
    return used + after.children_system - before.children_system


def recordings(options: argparse.Namespace) -> None:
    """Whole processes on recordings of 16 ranks, beside torchfrtrace."""
    print("\n## A recording of 16 ranks, whole process\n")
    _head("recording")
    with tempfile.TemporaryDirectory() as folder:
        made = _recording(Path(folder), 16)
        real = SHARED / "nvrx" / "gpu_error_2nd"
        for name, place in ((f"generated, {ENTRIES} entries a rank", made), (real.name, real)):
            if place.is_dir():
                _row(name, place, options, compare=True)


def growth(options: argparse.Namespace) -> None:
    """Whole processes on ever larger recordings."""
    print(f"\n## Growth: Flight Recorder, {ENTRIES} entries a rank, one rank absent\n")
    _head("ranks")
    for ranks in SIZES:
        if ranks <= options.largest:
            with tempfile.TemporaryDirectory() as folder:
                place = _recording(Path(folder), ranks)
                _row(f"{ranks:,}", place, options, compare=ranks <= LARGEST_FOR_TORCH)


def _recording(folder: Path, ranks: int) -> Path:
    place = folder / f"{ranks}_ranks"
    make(place, Shape(ranks, 4, 2), ENTRIES, ABSENT)
    return place


def _head(first: str) -> None:
    print(
        f"| {first} | oncall, best / median | memory | torchfrtrace | its memory | ratio | load |"
    )
    print("|---|---|---|---|---|---|---|")


def _row(name: str, place: Path, options: argparse.Namespace, compare: bool) -> None:
    commands = {"oncall": oncall("diagnose", str(place))}
    if compare and options.torch_python:
        commands["torch"] = torchfrtrace(options.torch_python, place)
    found = in_turn(commands, options.times)
    ours, theirs = found["oncall"], found.get("torch")
    other = "not run | | "
    if theirs is not None:
        other = f"{theirs} | {_mb(theirs)} | {theirs.best / ours.best:.1f} × "
    print(f"| {name} | {ours} | {_mb(ours)} | {other}| {ours.load:.1f} |", flush=True)


def _mb(found: Measured) -> str:
    return f"{found.rss_bytes / 1e6:,.0f} MB"


def rules(options: argparse.Namespace) -> None:
    """The shipped rulebooks over an incident in memory."""
    print("\n## Rules alone, incident in memory\n")
    print("| incident | ranks | operations a rank | best / median | costliest | load |")
    print("|---|---|---|---|---|---|")
    for ranks in (16, 4096):
        if ranks <= options.largest:
            for name, build in INCIDENTS.items():
                _rules_row(name, ranks, build(ranks), options.times)


def _flight_recorder(ranks: int) -> Incident:
    incident = Incident.empty()
    with tempfile.TemporaryDirectory() as folder:
        detect.load([_recording(Path(folder), ranks)], incident, None)
    return incident


def _simulated(*faults: TrainingFault) -> Callable[[int], Incident]:
    """Five minutes of a job that makes about 500 operations a rank."""
    return lambda ranks: simulate(
        TrainingScenario(
            tp=4 if ranks == 16 else 8,
            pp=2 if ranks == 16 else 4,
            dp=2 if ranks == 16 else ranks // 32,
            tp_operations=1,
            forward_ns=500 * 10**6,
            faults=faults,
        )
    )[0]


INCIDENTS: dict[str, Callable[[int], Incident]] = {
    "hang, Flight Recorder": _flight_recorder,
    "hang, simulated": _simulated(TrainingFault("H1", (ABSENT,), at_ns=250 * 10**9)),
    "slow rank, simulated": _simulated(TrainingFault("S1", (ABSENT,))),
    "slow link, simulated": _simulated(TrainingFault("S2", (ABSENT,), factor=20.0)),
    "healthy, simulated": _simulated(),
}


def _rules_row(name: str, ranks: int, built: Incident, times: int) -> None:
    """One incident, opened anew for each run, since rules keep what they compute."""
    books = load_rulebooks([shipped_folder()])
    found, costs = Measured(), {}
    with tempfile.TemporaryDirectory() as folder, built:
        saved = Path(folder) / "saved.oncall"
        operations = built.rows("ops") / ranks
        built.save(saved)
        for _ in range(times):
            with Incident.open(saved) as incident:
                gc.collect()
                began = time.perf_counter()
                outcome = run_rules(incident, books)
                found.add(time.perf_counter() - began)
            for book in books:
                costs[book.name] = min(costs.get(book.name, 1e9), outcome.timings[book.name])
    text = ", ".join(f"{book} {_time(cost)}" for book, cost in costs.items())
    verdicts = "+".join(one.verdict for one in outcome.findings if one.explained_by is None)
    print(
        f"| {name}: {verdicts or 'nothing'} | {ranks:,} | {operations:.0f} | {found} | {text} "
        f"| {found.load:.1f} |",
        flush=True,
    )


SECTIONS = {
    "startup": startup,
    "against": against,
    "recordings": recordings,
    "growth": growth,
    "rules": rules,
}


def machine() -> str:
    """What this was measured on."""
    model = next(
        (
            line.partition(":")[2].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if line.startswith("model name")
        ),
        platform.machine(),
    )
    return (
        f"oncall {__version__}, Python {platform.python_version()}, {os.cpu_count()} cores of "
        f"{model}, {platform.system()} {platform.release()}; load 1 min: {os.getloadavg()[0]:.1f}"
    )


def main() -> None:
    """Parse the command line and print the sections asked for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("what", nargs="?", default="all", choices=("all", *SECTIONS))
    parser.add_argument("--torch-python", help="a Python that has torch, for torchfrtrace")
    parser.add_argument("--other", help="a Python with another oncall, for `against`")
    parser.add_argument("--times", type=int, default=7, help="runs of each")
    parser.add_argument("--largest", type=int, default=SIZES[-1], help="ranks at most")
    options = parser.parse_args()
    print(f"Measured by `python benchmarks/speed.py {options.what}` on {machine()}.")
    for name, section in SECTIONS.items():
        if options.what in (name, "all"):
            section(options)


if __name__ == "__main__":
    main()
