"""How soon the live console says that a job, a node or a collector is in trouble, over sshd.

    python benchmarks/console_live.py [--stories stopped killed slow ...] [--nodes 4] [--loops 4]

Prints Markdown; `before` is what stood in the headline or the title from the fault on until then.
With `--loops` so many processes spin beside the job, from its start on. The demonstration's job of
eight ranks runs on four nodes behind an sshd on loopback (the fourth has one of its own), each with
a collector. A session gathers as the console does, five seconds after the last snapshot came. Each
story begins with a new job; seconds are from the fault to the first snapshot that says so. All
share the cores of this machine. The slow rank computes 20 ms longer each time, and is judged by the
demonstration's thresholds for eight ranks. With more than eight nodes each runs one rank, which
computes for `--compute-ms`, so that so many leave the cores half idle.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import oncall.demo.cluster
from oncall.console.live import Fleet
from oncall.console.queries import GatherSnapshot, OpenJob
from oncall.console.replay import Replay
from oncall.console.rulebook_store import RulebookStore
from oncall.demo.cluster import Cluster
from oncall.demo.demonstration import PARAMETERS
from oncall.demo.faults import fault_named
from oncall.demo.layout import JOB, Layout, Node
from oncall.demo.processes import Processes
from oncall.fleet.reach import reach_fleet
from oncall.views.snapshot import Snapshot
from oncall.views.words import headline, roots

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "fleet" / "ssh"))

from loopback import PLAIN, Loopback, why_not

STOPPED, SLOW, FROZEN = 5, 3, (2, 3)  # the ranks; of four nodes on gpu003 and gpu002
RANKS = 8  # at least
RESTS_S, HEALTHY_S, MOST_S = 5.0, 20.0, 240.0


Says = Callable[[Snapshot], str]


@dataclass(frozen=True)
class Running:
    """The job, its nodes, and the sshd of the fourth."""

    cluster: Cluster
    loopback: Loopback
    own_sshd: subprocess.Popen[bytes]


def stop_rank(running: Running) -> None:
    signal_rank(running, signal.SIGSTOP)


def kill_rank(running: Running) -> None:
    signal_rank(running, signal.SIGKILL)


def signal_rank(running: Running, number: signal.Signals) -> None:
    [name] = [node.name for node, rank, _ in running.cluster.layout.placed() if rank == STOPPED]
    for pid in processes_of(running, name, "train"):
        if rank_of(pid) == STOPPED:
            os.kill(pid, number)


def kill_sshd(running: Running) -> None:
    logins = subprocess.run(
        ["pgrep", "-P", str(running.own_sshd.pid)], capture_output=True, text=True, check=False
    )
    for pid in (running.own_sshd.pid, *map(int, logins.stdout.split())):
        os.kill(pid, signal.SIGKILL)


def kill_collector(running: Running) -> None:
    for pid in processes_of(running, "gpu003", "collect"):
        os.kill(pid, signal.SIGKILL)


def freeze_node(running: Running) -> None:
    for pid in processes_of(running, "gpu002", ""):
        os.kill(pid, signal.SIGSTOP)


def processes_of(running: Running, node: str, word: str) -> list[int]:
    """The processes of a node whose command has the word."""
    found, data = [], running.loopback.nodes[node].data
    for place in Path("/proc").glob("[0-9]*"):
        try:
            of_node = f"ONCALL_DATA_DIR={data}\0".encode() in (place / "environ").read_bytes()
            if of_node and word.encode() in (place / "cmdline").read_bytes():
                found.append(int(place.name))
        except OSError:
            continue
    return found


def rank_of(pid: int) -> int:
    """The rank that a launcher made a process."""
    words = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    return next(int(word[5:]) for word in words if word.startswith(b"RANK="))


def host(snapshot: Snapshot, node: str) -> str:
    """What the title says of a node: ok, silent, or its collector's trouble."""
    [one] = [one for one in snapshot.hosts if one.host == node]
    return "silent" if one.silent else one.collector or "ok"


def blamed(fault_class: str, *ranks: int) -> Says:
    """The headline where it is critical, or a cause is slow, and blames one of the ranks."""

    def says(snapshot: Snapshot) -> str:
        causes = [one for one in roots(snapshot.diagnosis) if one.fault_class == fault_class]
        named = {where.where.get("rank") for one in causes for where in one.blame}
        return stated(snapshot) if named.intersection(ranks) else "ok"

    return says


def stated(snapshot: Snapshot) -> str:
    """The headline, `ok` where it is for information at most."""
    _, severity, text = headline(snapshot.diagnosis, snapshot.moment.at_ns)
    return "ok" if severity in (None, "info") else text


def ill(snapshot: Snapshot) -> str:
    """What the title says of nodes."""
    said = {one.host: host(snapshot, one.host) for one in snapshot.hosts}
    return "; ".join(f"{name} {what}" for name, what in said.items() if what != "ok") or "ok"


def slow_rank(running: Running) -> None:
    running.cluster.inject(fault_named("S1"))


STORIES: dict[str, tuple[str, Callable[[Running], None], dict[str, Says]]] = {
    "stopped": ("a rank is stopped (SIGSTOP)", stop_rank, {"headline": blamed("hang", STOPPED)}),
    "killed": ("a rank is killed (SIGKILL)", kill_rank, {"headline": blamed("hang", STOPPED)}),
    "slow": ("a rank computes 20 ms longer", slow_rank, {"headline": blamed("slow", SLOW)}),
    "sshd": ("a node's sshd is killed", kill_sshd, {"title": lambda one: host(one, "gpu004")}),
    "collector": (
        "a collector is killed (SIGKILL)",
        kill_collector,
        {"title": lambda one: host(one, "gpu003")},
    ),
    "frozen": (
        "all processes of a node are frozen (SIGSTOP)",
        freeze_node,
        {"title": lambda one: host(one, "gpu002"), "headline": blamed("hang", *FROZEN)},
    ),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--stories", nargs="+", choices=STORIES, default=[*STORIES])
    parser.add_argument("--nodes", type=int, default=4)
    parser.add_argument("--loops", type=int, default=0, help="processes that spin beside the job")
    parser.add_argument("--compute-ms", type=int, default=100, help="of a rank, with many nodes")
    arguments = parser.parse_args()
    if reason := why_not():
        sys.exit(reason)
    names = [f"gpu{number:03d}" for number in range(1, arguments.nodes + 1)]
    if len(names) > RANKS:
        work = ("--layers", "1", "--compute-us", str(arguments.compute_ms * 1000))
        oncall.demo.cluster._WORK = work
        oncall.demo.cluster._STARTS_WITHIN_S = 240.0
    print("| story | first said in | after | what it says | before | a refresh, median | load |")
    print("|---|---|---|---|---|---|---|")
    for name in arguments.stories:
        said, strike, signs = STORIES[name]
        with (
            spinning(arguments.loops),
            tempfile.TemporaryDirectory() as folder,
            job_running(Path(folder), names) as running,
        ):
            found, before, refreshes = first_stated(running, strike, signs)
            refresh_s, load = statistics.median(refreshes), os.getloadavg()[0]
            for where, (seconds, text) in found.items():
                measured = (f"{refresh_s:.1f} s", f"{load:.1f}")
                cells = (said, where, f"{seconds:.0f} s", text, "; ".join(before[where]), *measured)
                print(f"| {' | '.join(cells)} |", flush=True)


@contextmanager
def spinning(count: int) -> Iterator[None]:
    """So many busy loops."""
    loops = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


@contextmanager
def job_running(folder: Path, names: Sequence[str]) -> Iterator[Running]:
    """The job on its nodes, and a configuration that reaches them."""
    folder.chmod(0o755)
    more = [name for name in names if name not in PLAIN]
    with Loopback(folder / "ssh", more_real=more) as loopback, Processes(folder) as processes:
        port = loopback._run_sshd("own", ("MaxStartups 1000",))
        config, known = loopback.config, loopback.folder / "known_hosts"
        config.write_text(f"Host gpu004\n  Port {port}\n{config.read_text()}")
        key = known.read_text().splitlines()[0].partition(" ")[2]
        known.write_text(f"{known.read_text()}[127.0.0.1]:{port} {key}\n")
        places = [(name, loopback.nodes[name].data, loopback.nodes[name].run) for name in names]
        few = len(names) <= RANKS
        one_each = (Node(name, (at,), *rest) for at, (name, *rest) in enumerate(places))
        layout = Layout.on(places, RANKS) if few else Layout(tuple(one_each))
        cluster = Cluster(folder, layout, processes)
        cluster.start_collectors()
        cluster.start_ranks()
        cluster.wait_for_steps(5, 240)
        settings = folder / "xdg" / "oncall" / "config.toml"
        settings.parent.mkdir(parents=True)
        # Where all nodes are this machine, the last of many endpoints starts after minutes.
        timeout = "300 s" if len(names) > RANKS else "20 s"
        settings.write_text(
            f"[fleet]\nssh_options = {json.dumps(['-F', str(config)])}\n"
            f'answer_timeout = "{timeout}"\n'
        )
        for name in ("XDG_CONFIG_HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME"):
            os.environ[name] = str(folder / "xdg")
        os.environ.pop("SSH_AUTH_SOCK", None)
        yield Running(cluster, loopback, loopback._running[-1])


def first_stated(
    running: Running, strike: Callable[[Running], None], signs: dict[str, Says]
) -> tuple[dict[str, tuple[float, str]], dict[str, list[str]], list[float]]:
    """Where the trouble was first stated, seconds after the fault, and the words; what stood there
    before; and how long each refresh took."""
    small = {name: value for name, value in PARAMETERS.items() if name.startswith("slow")}
    store = RulebookStore(overrides=small if strike is slow_rank else {})
    hosts = ",".join(node.name for node in running.cluster.layout.nodes)
    session = Replay(Fleet(reach_fleet(hosts, None), store, JOB), store)
    try:
        session.ask(OpenJob(JOB))
        began, struck_s = time.monotonic(), 0.0
        found: dict[str, tuple[float, str]] = {}
        before: dict[str, list[str]] = {where: [] for where in signs}
        refreshes: list[float] = []
        while len(found) < len(signs):
            if not struck_s and time.monotonic() - began > HEALTHY_S:
                strike(running)
                struck_s = time.monotonic()
            asked = time.monotonic()
            snapshot = session.ask(GatherSnapshot())
            refreshes.append(time.monotonic() - asked)
            if struck_s:
                since_s = time.monotonic() - struck_s
                if since_s > MOST_S:
                    found = {where: (since_s, "not said") for where in signs} | found
                for where, says in signs.items():
                    if where in found:
                        continue
                    if (text := says(snapshot)) != "ok":
                        found[where] = since_s, text
                        continue
                    other = ill(snapshot) if where == "title" else stated(snapshot)
                    if other not in ("ok", *before[where]):
                        before[where].append(other)
            time.sleep(RESTS_S)
        return found, before, refreshes
    finally:
        session.close()


if __name__ == "__main__":
    main()
