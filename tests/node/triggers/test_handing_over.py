"""Two collectors as processes of their own: one waits, the other is waited for, strangers write."""

from __future__ import annotations

import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from ring_writer import RingWriter
from verbs_writer import VerbsWriter

from oncall.core.units import NS_PER_S
from oncall.node.common.config import Configuration
from oncall.node.common.source import Collected, Instant, read_clock
from oncall.node.rings.ring_layout import Wait
from oncall.node.store.catalog import sealed_shards
from oncall.node.store.places import rings_dir
from oncall.node.store.reader import open_shards
from oncall.node.traffic.recent_traffic import RecentTraffic
from oncall.node.triggers.channel import NOTIFICATION_BYTES, Notification
from oncall.node.triggers.in_flight import Flow
from oncall.node.triggers.node import CAPTURES_AT_ONCE
from oncall.node.triggers.source import TriggerSource
from oncall.node.triggers.trigger_options import TriggerOptions

COMM = 0xFEDC_BA98_7654_3210
SECRET = "nobody else knows this"
WAITER, SLOW = "127.0.0.2", "127.0.0.3"
Until = Callable[[Callable[[], object]], None]


@pytest.fixture
def port() -> int:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as free:
        free.bind((SLOW, 0))
        return int(free.getsockname()[1])


@dataclass
class Node:
    """A node's folders, and what ranks of this very process do there."""

    config: Configuration
    ring: RingWriter

    def transfer(self, slot: int, *, is_send: bool, peer: int, wait: Wait) -> None:
        """A transfer that has been at it for two seconds."""
        since_ns = time.monotonic_ns() - 2 * NS_PER_S
        board = self.ring.transfers[slot : slot + 1]
        for name, value in {
            "operation": 9,
            "is_send": int(is_send),
            "peer": peer,
            "wait": wait,
            "since_ns": since_ns,
            "started_ns": since_ns,
        }.items():
            board[name] = value


def node(folder: Path, name: str, address: str, port: int, rank: int) -> Node:
    secret = folder / "secret"
    folder.mkdir()
    secret.write_text(SECRET)
    secret.chmod(0o600)
    config = Configuration(
        node=name,
        data_dir=folder / "data",
        run_dir=folder / "run",
        sources=("triggers",),
        root=folder / "root",  # no RDMA there
    ).with_source(
        "triggers",
        capture=True,
        every_ns=20_000_000,
        secret=str(secret),
        address=address,
        port=port,
    )
    config.data_dir.mkdir()
    rings_dir(config.run_dir).mkdir(parents=True)
    ring = RingWriter(rings_dir(config.run_dir), rank)
    ring.communicator(0, identity=COMM, rank=rank)
    return Node(config, ring)


@pytest.fixture
def waiter(tmp_path: Path, port: int) -> Node:
    """Rank 1: nothing comes from rank 0, so there is nothing to send to rank 2."""
    found = node(tmp_path / "waiter", "gpu018", WAITER, port, rank=1)
    found.transfer(0, is_send=False, peer=0, wait=Wait.RECV_WIRE)
    found.transfer(1, is_send=True, peer=2, wait=Wait.SEND_GPU)
    verbs = VerbsWriter(rings_dir(found.config.run_dir), rank=1)
    verbs.queue_pair(0, peer=SLOW, receives=4, received=3)
    verbs.queue_pair(1, peer="192.0.2.1", receives=4, received=4)
    return found


@pytest.fixture
def slow(tmp_path: Path, port: int) -> Node:
    """Rank 0: what it sends to rank 1 stands still on the wire."""
    found = node(tmp_path / "slow", "gpu017", SLOW, port, rank=0)
    found.transfer(0, is_send=True, peer=1, wait=Wait.SEND_WIRE)
    return found


# ---------------------------------------------------------------- sources in one process


@contextmanager
def sources(*nodes: Node) -> Iterator[list[TriggerSource]]:
    opened = [
        TriggerSource(
            each.config.source_options.of(TriggerOptions),
            each.config.surroundings(),
            RecentTraffic(12_000),
        )
        for each in nodes
    ]
    try:
        yield opened
    finally:
        for source in opened:
            source.close()


def captures(collected: Collected) -> int:
    return sum(batch.rows for batch in collected.batches if batch.table == "host_events")


def later(now: Instant, seconds: float) -> Instant:
    passed_ns = round(seconds * NS_PER_S)
    return Instant(now.realtime_ns + passed_ns, now.monotonic_ns + passed_ns)


@pytest.mark.parametrize("is_reported", [True, False])
def test_the_node_that_is_waited_for_looks_longer(
    waiter: Node, slow: Node, is_reported: bool
) -> None:
    now = read_clock()
    with sources(waiter, slow) as (waiting, waited_for):
        found = captures(waited_for.collect(now))
        if is_reported:
            assert captures(waiting.collect(now)) == 0
        for seconds in range(1, 60):
            found += captures(waited_for.collect(later(now, seconds)))
    assert found == CAPTURES_AT_ONCE + 2 * is_reported


@pytest.mark.parametrize("without", ["verbs", "secret", "readable", "address"])
def test_what_is_lacking_is_said_and_captures_go_on(waiter: Node, slow: Node, without: str) -> None:
    if without == "verbs":
        next(rings_dir(waiter.config.run_dir).glob("*.verbs")).unlink()
    elif without == "secret":
        nothing = str(waiter.config.data_dir / "no")
        waiter.config = waiter.config.with_source("triggers", secret=nothing)
    elif without == "readable":
        Path(waiter.config.source_options.of(TriggerOptions).secret).chmod(0o644)
    else:
        waiter.config = waiter.config.with_source("triggers", address=SLOW)
    now = read_clock()
    with sources(slow, waiter) as (waited_for, waiting):
        collected = waiting.collect(now)
        assert waited_for.collect(now).notes == ()
    said = collected.notes if without == "verbs" else collected.problems
    assert len(said) == 1 and "detections" in said[0] and "handed over" in said[0]


# ------------------------------------------------------------------------ two processes


@contextmanager
def collecting(each: Node, until: Until) -> Iterator[subprocess.Popen[str]]:
    config = each.config
    options = config.source_options.of(TriggerOptions)
    toml = config.data_dir.with_name("collect.toml")
    toml.write_text(
        f'node = "{config.node}"\nsources = ["triggers"]\nroot = "{config.root}"\n'
        'keep_free = "0 B"\nseal_every = "500 ms"\n[triggers]\ncapture = true\n'
        f'secret = "{options.secret}"\nport = {options.port}\naddress = "{options.address}"\n'
    )
    places = ["--data-dir", str(config.data_dir), "--run-dir", str(config.run_dir)]
    log = toml.with_name("log")
    with log.open("w") as stderr:
        process = subprocess.Popen(
            [sys.executable, "-m", "oncall.cli.main", "collect", "--config", str(toml), *places],
            stderr=stderr,
            text=True,
        )
    try:
        until(lambda: "collecting on" in log.read_text() or process.poll() is not None)
        assert process.poll() is None, log.read_text()
        yield process
    finally:
        process.kill()
        process.wait()


def notes(each: Node) -> str:
    """The newest account of the source in the node's sealed shards."""
    with open_shards(sealed_shards(each.config.data_dir)) as shards:
        rows = shards.con.execute(
            "SELECT note FROM collectors WHERE source = 'triggers' AND note IS NOT NULL "
            "ORDER BY at_ns DESC LIMIT 1"
        ).fetchall()
    return rows[0][0] if rows else ""


def test_budgets_are_handed_over_between_collectors_and_strangers_do_no_harm(
    waiter: Node, slow: Node, port: int, until: Until
) -> None:
    chance = random.Random(8)
    forged = Notification(Flow(COMM, 0, 1), 255, time.time_ns()).encoded(b"not what they share")
    with collecting(slow, until) as waited_for, collecting(waiter, until) as waiting:
        until(lambda: "1 detections were taken over" in notes(slow))
        until(lambda: "1 detections were handed over" in notes(waiter))
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger:
            for _ in range(200):
                length = chance.randrange(2 * NOTIFICATION_BYTES)
                stranger.sendto(chance.randbytes(length), (SLOW, port))
            stranger.sendto(forged, (SLOW, port))
        until(lambda: "malformed" in notes(slow) and "another secret" in notes(slow))
        assert "1 detections were taken over" in notes(slow)  # of 255 detections, none
        for process in (waited_for, waiting):
            assert process.poll() is None
            process.send_signal(signal.SIGTERM)
            assert process.wait(60) == 0
