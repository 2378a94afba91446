"""How long until the console shows something: its first frame, and its first finding.

    python benchmarks/console_start.py [--runs 10]

Prints Markdown. Seconds from the start of the process in a pseudo-terminal: to the first frame
(the line of keys is drawn), and to the verdict of a hang on the screen; on a recording of
sixteen ranks, and on eight nodes of two ranks each behind an sshd on loopback, which shares this
machine's cores with the console and with the eight processes that answer. Then: how long a rank's
card and a step's rows take while one of the nodes holds up a gather.
"""

from __future__ import annotations

import argparse
import json
import os
import select
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from statistics import median

from console import start

from oncall.console.evidence_queries import GetCommunicator, GetRankCard, GetRates, GetStepRows
from oncall.console.live import Fleet
from oncall.console.queries import GatherSnapshot, GetSnapshot
from oncall.console.replay import Replay
from oncall.console.rulebook_store import RulebookStore
from oncall.console.session import Query
from oncall.core.units import NS_PER_S
from oncall.fleet.reach import reach_fleet
from oncall_lab import TrainingFault, TrainingScenario, recording, simulate, write
from oncall_lab.training import record

sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "fleet" / "ssh"))

from loopback import Loopback, why_not

SIZE = (120, 40)
NODES = [f"gpu{number:03}" for number in range(1, 9)]  # as the simulator names them
FRAME, FINDING = b"Quit", b"Not-entered hang"
MOST_S = 30.0
TRAINED_S, HUNG_S = 30, 360  # of the simulated job, which stands still now


def main() -> None:
    """Measure each way to start, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=10)
    runs = parser.parse_args().runs
    if reason := why_not():
        sys.exit(reason)
    print("| opened | first frame, median (range) | first finding, median (range) | load |")
    print("|---|---|---|---|")
    with tempfile.TemporaryDirectory(prefix="oncall-start-") as name:
        folder = Path(name)
        recording = folder / "recording"
        write_job(recording, 8, shards=False)
        report("a recording of 16 ranks", runs, ["open", str(recording / "evidence.oncall")])
        with Loopback(folder / "ssh", more_nodes=NODES[3:]) as fleet:
            populate(fleet, folder)
            report("8 nodes through sshd", runs, ["--hosts", "gpu[001-008]"])
            details(folder)


def write_job(folder: Path, gpus_per_node: int, *, shards: bool) -> None:
    """Sixteen ranks that trained for half a minute, and have hung since, up to now."""
    recording.EPOCH_NS = record.EPOCH_NS = time.time_ns() - (TRAINED_S + HUNG_S) * NS_PER_S
    fault = TrainingFault("H1", (5,), at_ns=TRAINED_S * NS_PER_S)
    scenario = TrainingScenario(
        duration_ns=2 * TRAINED_S * NS_PER_S,
        observe_after_ns=HUNG_S * NS_PER_S,
        gpus_per_node=gpus_per_node,
        faults=(fault,),
        recorder="hooks",
    )
    incident, truth = simulate(scenario)
    with incident:
        write(incident, truth, folder, shards=shards)


def populate(fleet: Loopback, folder: Path) -> None:
    """Give the nodes their shards and a configuration, and let them answer as real ones do."""
    programs = fleet.folder / "programs"
    shutil.copy(programs / "today" / "oncall", programs / "quick" / "oncall")
    write_job(folder / "nodes", 2, shards=True)
    written = sorted(path for path in (folder / "nodes").iterdir() if path.is_dir())
    for name, shards in zip(NODES, written, strict=True):
        shutil.copytree(shards, fleet.nodes[name].data, dirs_exist_ok=True)
    settings = folder / "oncall" / "config.toml"
    settings.parent.mkdir()
    ssh = json.dumps(["-F", str(fleet.config)])
    settings.write_text(f"[fleet]\nssh_options = {ssh}\n")
    for name in ("XDG_CONFIG_HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME"):
        os.environ[name] = str(folder)
    os.environ.pop("SSH_AUTH_SOCK", None)


# ---------------------------------------------------------------- whole process


def report(what: str, runs: int, arguments: list[str]) -> None:
    """A row of the table."""
    load = os.getloadavg()[0]
    times = [opened(arguments) for _ in range(runs)]
    frames, findings = zip(*times, strict=True)
    print(f"| {what} | {spread(frames)} | {spread(findings)} | {load:.1f} |", flush=True)


def spread(seconds: tuple[float, ...]) -> str:
    return f"{median(seconds):.2f} s ({min(seconds):.2f} to {max(seconds):.2f})"


def opened(arguments: list[str]) -> tuple[float, float]:
    """Seconds to the first frame and to the finding."""
    began = time.monotonic()
    child, terminal = start([sys.executable, "-m", "oncall.cli.main", *arguments], SIZE)
    try:
        seen = bytearray()
        frame_s = until(FRAME, seen, terminal) - began
        return frame_s, until(FINDING, seen, terminal) - began
    finally:
        with suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.close(terminal)


def until(text: bytes, seen: bytearray, terminal: int) -> float:
    """The instant at which the text had been written."""
    deadline = time.monotonic() + MOST_S
    while text not in seen:
        if time.monotonic() > deadline:
            raise SystemExit(f"no {text!r} within {MOST_S:g} s: {bytes(seen[-2000:])!r}")
        if select.select([terminal], [], [], 1.0)[0]:
            seen += os.read(terminal, 1 << 16)
    return time.monotonic()


# --------------------------------------------------------- details while gathering


def details(folder: Path) -> None:
    """Ask about details while a gather goes on, and hangs."""
    store = RulebookStore(site=folder / "none")
    session = Replay(Fleet(reach_fleet("gpu[001-008]", None), store), store)
    try:
        snapshot = session.ask(GetSnapshot())
        finding = snapshot.diagnosis.findings[0].id
        comm = snapshot.communicators[0].comm
        queries: dict[str, Query[object]] = {
            "rank card": GetRankCard(5),
            "rows of a step": GetStepRows(finding, 0),
            "communicator": GetCommunicator(comm),
            "rates": GetRates(),
        }
        asked = {name: partial(session.ask, query) for name, query in queries.items()}
        print("\n| asked | alone | while the nodes are gathered from |")
        print("|---|---|---|")
        alone = {name: timed(call) for name, call in asked.items()}
        gather = GatherSnapshot()
        gathering = threading.Thread(target=lambda: [session.ask(gather) for _ in range(3)])
        gathering.start()
        meanwhile = {name: timed(call) for name, call in asked.items()}
        assert gathering.is_alive(), "the gather had ended"
        gathering.join()
        for name in asked:
            print(f"| {name} | {1000 * alone[name]:.0f} ms | {1000 * meanwhile[name]:.0f} ms |")
        began = time.monotonic()
        session.ask(GatherSnapshot())
        print(f"\nA gather of the eight nodes takes {time.monotonic() - began:.1f} s.")
    finally:
        session.close()


def timed(call: Callable[[], object]) -> float:
    """Seconds that it takes, median of five."""
    times = []
    for _ in range(5):
        began = time.monotonic()
        call()
        times.append(time.monotonic() - began)
    return median(times)


if __name__ == "__main__":
    main()
