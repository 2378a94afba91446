"""How fast oncall is: start-up, whole diagnoses beside torchfrtrace, growth.

    python benchmarks/speed.py all [--torch-python PYTHON] [--times 7]
    python benchmarks/speed.py startup | recordings | growth              (one section)

Prints the Markdown that docs/performance.md holds. Whole processes are timed from outside, and
what is compared runs in turn, so that both meet the same machine; the memory is that of the
process and its children together, looked at every 10 ms. PYTHON is one that has torch; without
it, nothing is compared. limits.py compares with another installation and with the least work.
"""

from __future__ import annotations

import argparse
import os
import platform
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).parent))

from make_flight_recorder import Shape, make

from oncall import __version__

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


SECTIONS = {
    "startup": startup,
    "recordings": recordings,
    "growth": growth,
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
    parser.add_argument("--times", type=int, default=7, help="runs of each")
    parser.add_argument("--largest", type=int, default=SIZES[-1], help="ranks at most")
    options = parser.parse_args()
    print(f"Measured by `python benchmarks/speed.py {options.what}` on {machine()}.")
    for name, section in SECTIONS.items():
        if options.what in (name, "all"):
            section(options)


if __name__ == "__main__":
    main()
