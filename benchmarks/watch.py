"""A watch of healthy work: how often it notifies falsely, and how soon of a fault at the end.

    python benchmarks/watch.py [--minutes 120] [--no-fault]

The demo's job with slow steps, collectors on its nodes, and two real `oncall watch` with the
default settings and all rulebooks: one of the nodes, one of a log that a launcher would write, with
a line for each step that the job did. Both notify a server on loopback. Whatever arrives while the
job is healthy is false. Then a rank is stopped (SIGSTOP) until both watches have notified, and goes
on (SIGCONT) until both have closed their incident.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import statistics
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import oncall.demo.cluster
from oncall.demo.cluster import ONCALL, Cluster
from oncall.demo.faults import fault_named
from oncall.demo.layout import JOB, Layout
from oncall.demo.processes import Process, Processes

RANKS, NODES = 8, 4
FAULT = fault_named("H1-stopped")
STARTS_S, NOTIFIES_S, CLOSES_S = 240.0, 1200.0, 900.0
POLL_S = 1.0
_STEP = re.compile(r"^step (\d+): ([\d.]+) ms", re.MULTILINE)
_METRIC = re.compile(r"^oncall_(\w+)\{.*\} (\S+)$", re.MULTILINE)


@dataclass
class Watch:
    """A running watch: where it publishes, what was seen of it, what it has sent."""

    name: str
    folder: Path
    port: int
    process: Process
    looks: dict[float, float] = field(default_factory=dict)  # instant -> seconds that it took
    blind: int = 0
    suspected: list[str] = field(default_factory=list)
    ranks: tuple[float, float] = (0, 0)
    received: list[tuple[float, dict[str, Any]]] = field(default_factory=list)

    def poll(self) -> None:
        """Note the last look, if it is a new one, and what it suspected."""
        try:
            url = f"http://127.0.0.1:{self.port}/metrics"
            with urllib.request.urlopen(url, timeout=10) as page:
                values = {name: float(text) for name, text in _METRIC.findall(page.read().decode())}
            state = json.loads((self.folder / "state.json").read_text())["state"]
        except (OSError, ValueError):
            return  # it starts, or is busy
        at = values.get("watch_timestamp_seconds", 0)
        if not at or at in self.looks:
            return
        self.looks[at] = values["look_duration_seconds"]
        self.blind += values["watch_blind"] > 0
        self.ranks = values.get("ranks_seen", 0), values.get("ranks", 0)
        if state["suspected"]:
            sentences = "; ".join(one["sentence"] for one in state["suspected"])
            self.suspected.append(sentences)
            say(f"{self.name}: suspects {sentences}")

    def first(self, kind: str, since: float) -> tuple[float, str] | None:
        """Seconds from then to the first notification of that kind, and what it says."""
        for at, event in self.received:
            if at >= since and event["type"].endswith(kind):
                return at - since, event["data"]["headline"]
        return None


def say(text: str) -> None:
    print(f"{datetime.now(UTC):%H:%M:%S}  {text}", flush=True)


@contextmanager
def receiving(watches: dict[str, Watch]) -> Iterator[str]:
    """A server that keeps what each watch sends to `URL/NAME`."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            event = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            name = self.path.strip("/")
            watches[name].received.append((time.time(), event))
            say(f"{name}: {event['type'].rpartition('.')[2]}: {event['data']['headline']}")
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()


class LauncherLog:
    """A log of the job: a line of Megatron's for each step that rank 0 has reported."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._steps = 0
        path.parent.mkdir()
        path.write_text(f"0: using world size: {RANKS}, data-parallel size: 2\n")

    def write_on(self, reported: str) -> None:
        found = _STEP.findall(reported)
        with self._path.open("a") as file:
            for step, took_ms in found[self._steps :]:
                file.write(
                    f"{RANKS - 1}:  [{datetime.now(UTC):%Y-%m-%d %H:%M:%S}] iteration {step:>8}/"
                    f"  100000 | consumed samples: {int(step) * 64:>12} | elapsed time per "
                    f"iteration (ms): {took_ms} | lm loss: {2 + 8 / (int(step) + 1):.4f} |\n"
                )
        self._steps = len(found)


def start_watch(
    name: str,
    folder: Path,
    bus: str,
    words: Sequence[str],
    processes: Processes,
    settings: str = "",
) -> Watch:
    port = free_port()
    config, place = folder / f"{name}.toml", folder / f"watch-{name}"
    config.write_text(
        f'{settings}[watch]\nmetrics = "127.0.0.1:{port}"\n'
        f'[watch.notify.bus]\nkind = "cloudevents"\nurl = "{bus}/{name}"\n'
    )
    command = (*ONCALL, "watch", *words, "--config", str(config), "--folder", str(place))
    return Watch(name, place, port, processes.start(f"watch {name}", command, os.environ))


def free_port() -> int:
    server = ThreadingHTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler)
    with server:
        return server.server_address[1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=120, help="of healthy work")
    parser.add_argument("--compute-ms", type=int, default=400, help="of a layer's forward pass")
    parser.add_argument("--no-fault", action="store_true", help="end without a fault")
    options = parser.parse_args()
    oncall.demo.cluster._WORK = ("--layers", "1", "--compute-us", str(options.compute_ms * 1000))
    watches: dict[str, Watch] = {}
    # The path of a Unix socket is limited to about a hundred characters.
    with tempfile.TemporaryDirectory(prefix="oncall-watched-") as name, receiving(watches) as bus:
        folder = Path(name)
        (folder / "logs").mkdir()
        with Processes(folder / "logs") as processes:
            layout = Layout.simulated(folder, RANKS, NODES)
            cluster = Cluster(folder, layout, processes)
            cluster.start_collectors()
            cluster.start_ranks()
            log = LauncherLog(folder / "job" / "slurm-4711.out")
            step_s = cluster.wait_for_steps(3, STARTS_S)
            say(f"{RANKS} ranks on {NODES} nodes, steps of {step_s:.1f} s")
            nodes = ("--job", JOB, "--hosts", f"local:{folder}/node*")
            watches["nodes"] = start_watch("nodes", folder, bus, nodes, processes)
            logs = ("--job", JOB, "--logs", str(folder / "job"))
            watches["log"] = start_watch("log", folder, bus, logs, processes)

            def go_on_until(done: Callable[[], bool], within_s: float) -> None:
                ends = time.time() + within_s
                while time.time() < ends and not done():
                    cluster._see_all_alive()
                    log.write_on(cluster._ranks[0].log.read_text(errors="replace"))
                    for watch in watches.values():
                        watch.poll()
                    loads.append(os.getloadavg()[0])
                    time.sleep(POLL_S)

            loads: list[float] = []
            go_on_until(lambda: False, options.minutes * 60)
            report_healthy(watches, cluster.steps(), loads, options.minutes)
            if options.no_fault:
                return
            process = cluster._ranks[FAULT.broken]
            for kind, number, within_s in (
                ("opened", signal.SIGSTOP, NOTIFIES_S),
                ("closed", signal.SIGCONT, CLOSES_S),
            ):
                loads.clear()
                struck = time.time()
                os.kill(process.child.pid, number)
                say(f"rank {FAULT.broken}: {number.name}")
                go_on_until(
                    lambda kind=kind, at=struck: all(w.first(kind, at) for w in watches.values()),
                    within_s,
                )
                report_fault(watches, number.name, kind, struck, loads)
            with suppress(OSError):
                for watch in watches.values():
                    print(f"--- {watch.name}\n{watch.process.log.read_text()}", end="")


def report_healthy(
    watches: dict[str, Watch], steps: int, loads: list[float], minutes: float
) -> None:
    print(
        f"\n{minutes:g} min, {steps} steps, load {min(loads):.0f} to {max(loads):.0f}, "
        f"median {statistics.median(loads):.0f}\n"
        "| watch of | looks | blind | a look, median / longest | looks that suspected | "
        "ranks seen | notifications |\n|---|---|---|---|---|---|---|"
    )
    for watch in watches.values():
        took = [*watch.looks.values()] or [0.0]
        cells = (
            watch.name,
            f"{len(watch.looks)}",
            f"{watch.blind}",
            f"{statistics.median(took):.1f} / {max(took):.1f} s",
            f"{len(watch.suspected)}",
            f"{watch.ranks[0]:.0f} of {watch.ranks[1]:.0f}",
            f"{len(watch.received)}",
        )
        print(f"| {' | '.join(cells)} |", flush=True)


def report_fault(
    watches: dict[str, Watch], what: str, kind: str, struck: float, loads: list[float]
) -> None:
    print(f"\n{what}, load {statistics.median(loads):.0f}")
    for watch in watches.values():
        after_s, headline = watch.first(kind, struck) or (float("nan"), "nothing")
        sent = sum(at >= struck for at, _ in watch.received)
        print(f"  {watch.name}: {kind} after {after_s:.0f} s: {headline} ({sent} sent)", flush=True)


if __name__ == "__main__":
    main()
