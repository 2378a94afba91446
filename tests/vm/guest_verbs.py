"""perftest under the verbs shim, on real queue pairs: what the shim counted, what the collector
made of it, and how far epochs are from what the network interface sent meanwhile."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from oncall.core.units import NS_PER_S
from oncall.node.agent.agent import Agent
from oncall.node.agent.service import build, make_folders
from oncall.node.common.config import Configuration
from oncall.node.common.log import Log
from oncall.node.ping.empty_probe import EmptyProbes
from oncall.node.store.places import rings_dir
from oncall.node.traffic.epochs import EPOCH_NS, Epochs
from oncall.node.verbs.verbs_file import VerbsReader

CONTROL = Path("/control")
PORT = 18515
RUN_DIR = Path("/tmp/verbs-run")
SAMPLE_S = 0.002


@dataclass(frozen=True)
class Case:
    """A perftest program: messages of a size, on each of some queue pairs."""

    program: str
    messages: int
    bytes: int
    options: tuple[str, ...] = ()


CASES = {
    "writes": Case("ib_write_bw", 1000, 4096),
    # Each is signaled, as NCCL's are; perftest signals one of a hundred.
    "sends": Case("ib_send_bw", 777, 8192, ("-Q", "1")),
    "four_pairs": Case("ib_write_bw", 200, 16384, ("-q", "4", "-t", "16")),
    "lists": Case("ib_write_bw", 500, 4096, ("--post_list=10",)),
}


def verbs(
    wait_until: Callable[[Callable[[], object]], None], listens: Callable[[int], bool]
) -> Any:
    """Every case, one after the other, with the collector at work."""
    config = replace(
        Configuration(node="guest", data_dir=CONTROL / "verbs", run_dir=RUN_DIR),
        sources=("verbs",),
        seal_every_ns=3600 * NS_PER_S,
        keep_free_bytes=0,
    )
    make_folders(config)
    agent, _ = build(config, Log())
    output = {name: run(agent, case, wait_until, listens) for name, case in CASES.items()}
    until = time.monotonic() + 1.5  # each second the windows of the one before are reported
    wait_until(lambda: agent.step() or time.monotonic() > until)
    agent.finish()
    return output


def run(
    agent: Agent,
    case: Case,
    wait_until: Callable[[Callable[[], object]], None],
    listens: Callable[[int], bool],
) -> dict[str, Any]:
    """A server and a client of perftest, and everything known of both."""
    before = set(rings_dir(RUN_DIR).glob("*.verbs"))
    samples: list[tuple[int, int]] = []
    with sampling("nic0", samples):
        server = start(case, "rxe1", "1")
        wait_until(lambda: agent.step() or listens(PORT))
        client = start(case, "rxe0", "0", "127.0.0.1")
        wait_until(lambda: agent.step() or client.poll() is not None)
        failed = max(client.wait(), server.wait())
    new = sorted(set(rings_dir(RUN_DIR).glob("*.verbs")) - before)
    pids = {int(path.name.split("-")[0]) for path in new}
    pairs = [row for path in new for row in rows(path)]
    completed = sum(row["completed_bytes"] for row in pairs)
    wait_until(lambda: agent.step() or sum(kept_bytes(agent, pids)) >= completed)
    return {"failed": failed, "pairs": pairs} | traffic(agent, pids, samples)


def empty_probes(
    wait_until: Callable[[Callable[[], object]], None],
    netem: Callable[[str], AbstractContextManager[None]],
    port: int,
) -> list[str | None]:
    """What a probe of the way to the second device tells: while the switch carries, and while it
    drops everything."""
    probes, reported = EmptyProbes(port), []
    gid = "0000:0000:0000:0000:0000:ffff:0a4d:0002"
    probes.meet("rxe0", gid)
    wait_until(lambda: probes.knows("rxe0", gid) or probes.without)
    for disturbance in ("delay 1ms", "loss 100%"):
        wait_until(lambda: probes.result("rxe0", gid) is None)  # what was reported is old by now
        with netem(disturbance):
            probes.send("rxe0", gid)
            wait_until(lambda: not probes.is_under_way("rxe0", gid))
            reported.append(probes.result("rxe0", gid) or probes.without)
    probes.close()
    return reported


def start(case: Case, device: str, rank: str, *server: str) -> subprocess.Popen[bytes]:
    # A long timeout (4 s): under emulation an answer takes its time.
    options = f"-d {device} -x 1 -n {case.messages} -s {case.bytes} -u 20 -F".split()
    place = {"ONCALL_RUN_DIR": str(RUN_DIR), "ONCALL_RUN_DIR_ON_DISK": "1"}
    shim = {"LD_PRELOAD": "/control/liboncall_verbs.so", **place}
    return subprocess.Popen(
        [case.program, *options, *case.options, *server],
        env={**os.environ, **shim, "RANK": rank, "ONCALL_JOB": "perftest", "WORLD_SIZE": "2"},
        stdout=sys.stderr,
    )


def rows(path: Path) -> Iterator[dict[str, int]]:
    """What the shim counted of each queue pair."""
    names = (
        "qpn peer_qpn timeout posted posted_bytes writes sends completed completed_bytes received"
    )
    with VerbsReader.open(path, consume=False) as reader:
        for board in reader.queue_pairs().rows:
            counts = {name: int(board[name]) for name in f"{names} errors".split()}
            yield counts | {"rank": reader.header.rank or 0, "dropped": reader.dropped}


def kept(agent: Agent, pids: set[int]) -> list[Epochs]:
    """The epochs that the collector keeps of these processes."""
    source = agent._sources[0]._source  # type: ignore[attr-defined]
    sent = source._recent.between(0, 1 << 60).columns
    found = []
    for process in source._processes.values():
        header = process.reader.header
        if header.pid in pids:
            # Earlier processes had the same ranks.
            mine = (sent["rank"] == header.rank) & (sent["start_ns"] >= header.process_started_ns)
            epoch = sent["start_ns"][mine] // EPOCH_NS
            found.append(Epochs(np.zeros_like(epoch), epoch, sent["bytes"][mine]))
    return found


def kept_bytes(agent: Agent, pids: set[int]) -> list[int]:
    return [int(each.bytes.sum()) for each in kept(agent, pids)]


def traffic(agent: Agent, pids: set[int], samples: list[tuple[int, int]]) -> dict[str, Any]:
    """Bytes in the epochs of these processes, and their error: of bytes over time as a share of
    all, the largest and the mean difference to those of the interface."""
    sent = max(kept(agent, pids), key=lambda each: int(each.bytes.sum()))
    order = np.argsort(sent.epoch)
    at_ns, so_far = (sent.epoch[order] + 1) * EPOCH_NS, np.cumsum(sent.bytes[order])
    seen_ns, seen = (np.array(each, float) for each in zip(*samples, strict=True))
    share = np.interp(seen_ns, at_ns, so_far / so_far[-1], left=0.0, right=1.0)
    truth = (seen - seen[0]) / max(seen[-1] - seen[0], 1)
    inside = (truth > 0.01) & (truth < 0.99)
    off = np.abs(share - truth)[inside]
    return {
        "epoch_bytes": sum(kept_bytes(agent, pids)),
        "lasted_ns": float(np.ptp(seen_ns[inside])) if inside.any() else None,
        "samples": int(inside.sum()),
        "largest_error": float(off.max()) if len(off) else None,
        "mean_error": float(off.mean()) if len(off) else None,
    }


@contextmanager
def sampling(interface: str, samples: list[tuple[int, int]]) -> Iterator[None]:
    """Bytes that the interface sent so far, every few milliseconds."""
    counter = Path("/sys/class/net", interface, "statistics/tx_bytes")
    over = threading.Event()

    def sample() -> None:
        while not over.wait(SAMPLE_S):
            samples.append((time.time_ns(), int(counter.read_text())))

    thread = threading.Thread(target=sample)
    thread.start()
    yield
    over.set()
    thread.join()
