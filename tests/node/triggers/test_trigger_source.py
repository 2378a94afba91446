"""The source `triggers` over real rings, sockets and files: what it captures, and when."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import pytest
from ring_writer import RingWriter

from oncall.core.units import NS_PER_S
from oncall.node.agent.agent import Agent
from oncall.node.agent.recorder import Recorder
from oncall.node.agent.service import make_sources
from oncall.node.common.config import Configuration
from oncall.node.common.log import Log
from oncall.node.common.source import read_clock
from oncall.node.ping.ping import Ping, Target
from oncall.node.ping.probes import ProbeOptions, ProbeSource, pings_batch
from oncall.node.rings.ring_layout import Wait
from oncall.node.store.catalog import sealed_shards
from oncall.node.store.places import rings_dir
from oncall.node.store.reader import open_shards
from oncall.node.traffic.epochs import EPOCH_NS, Epochs
from oncall.node.traffic.recent_traffic import AFTER_NS, RecentTraffic
from oncall.node.traffic.recent_traffic import Flow as QueuePair
from oncall.node.triggers.in_flight import Boards, Flow
from oncall.node.triggers.source import TriggerSource
from oncall.node.triggers.trigger_options import TriggerOptions

MS = 1_000_000


def post(ring: RingWriter, channel: int, wait: Wait, ago_ns: int, operation: int = 9) -> None:
    """A send in flight to peer 4, whose oldest step has waited for so long."""
    board = ring.transfers[channel : channel + 1]
    since_ns = time.monotonic_ns() - ago_ns
    for name, value in {
        "operation": operation,
        "channel": channel,
        "is_send": 1,
        "peer": 4,
        "wait": wait,
        "since_ns": since_ns,
        "started_ns": since_ns,
    }.items():
        board[name] = value


@pytest.fixture
def capturing(config: Configuration) -> Iterator[Configuration]:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    changed = replace(
        config,
        sources=("triggers",),
        root=config.data_dir,  # no RDMA there
    )
    changed = changed.with_source("triggers", capture=True, every_ns=10 * MS)
    changed = changed.with_source("probes", port=port, address="127.0.0.1", targets=("127.0.0.1",))
    answering = replace(changed.source_options.of(ProbeOptions), respond=True, targets=())
    responder = ProbeSource(answering, "gpu018", changed.root)
    responder.collect(read_clock())
    yield changed
    responder.close()


@contextmanager
def source_of(
    config: Configuration, recent: RecentTraffic | None = None
) -> Iterator[TriggerSource]:
    source = TriggerSource(
        config.source_options.of(TriggerOptions),
        config.surroundings(),
        recent or RecentTraffic(12_000),
    )
    try:
        yield source
    finally:
        source.close()


def test_a_standstill_is_looked_at_closely_and_reported(
    capturing: Configuration, until: Callable[[Callable[[], object]], None]
) -> None:
    ring = RingWriter(rings_dir(capturing.run_dir), 3)
    ring.communicator(0, identity=0xC0FFEE)
    post(ring, 0, Wait.SEND_WIRE, 2 * NS_PER_S)
    log = Log()
    agent = Agent(capturing, make_sources(capturing, {}), Recorder(capturing, log), log)
    until(lambda: agent.step() or agent._accounts["triggers"].rows >= 5)
    agent.finish()
    with open_shards(sealed_shards(capturing.data_dir)) as shards:
        events = shards.con.execute("SELECT node, code, text FROM host_events").fetchall()
        pings = shards.con.execute("SELECT DISTINCT target_node, lost FROM pings").fetchall()
    assert {event[:2] for event in events} == {("gpu017", "captured_stall")}
    assert all("nothing sent was acknowledged" in text for _, _, text in events)
    assert pings == [("127.0.0.1", False)]


def test_a_flow_that_one_channel_moves_does_not_stand_still(capturing: Configuration) -> None:
    folder = rings_dir(capturing.run_dir)
    ring = RingWriter(folder, 3)
    ring.communicator(0, identity=0xC0FFEE)
    post(ring, 0, Wait.SEND_WIRE, 2 * NS_PER_S)
    post(ring, 1, Wait.SEND_GPU, 3 * NS_PER_S)
    boards = Boards(folder)
    [step] = boards.read(time.monotonic_ns()).sending
    assert step.flow == Flow(0xC0FFEE, 0, 4) and step.operation == 9
    assert step.posted_ns is None and not step.starved
    post(ring, 1, Wait.SEND_WIRE, 1 * NS_PER_S)
    [step] = boards.read(time.monotonic_ns()).sending
    assert step.posted_ns is not None  # since the last of them moved
    assert 1 * NS_PER_S <= time.monotonic_ns() - step.posted_ns < 2 * NS_PER_S
    ring.header["closed"] = 1
    assert boards.read(time.monotonic_ns() + 2 * NS_PER_S).sending == []
    boards.close()


def test_epochs_before_a_long_round_trip_are_wanted(capturing: Configuration) -> None:
    ring = RingWriter(rings_dir(capturing.run_dir), 3)
    ring.communicator(0, identity=0xC0FFEE)
    post(ring, 0, Wait.SEND_GPU, 0)
    now = read_clock()
    recent = RecentTraffic(12_000)
    epoch = np.array([now.realtime_ns // EPOCH_NS - 10])
    flows = [QueuePair("wr", "gpu017", "mlx5_0", 7)]
    recent.add(flows, Epochs(np.array([0]), epoch, np.array([4096])), now.realtime_ns)
    target = Target("gpu018", ("127.0.0.1", 1), "mlx5_0")
    with source_of(capturing, recent) as source:
        source.collect(now)
        normal = [Ping("lo", target, now.realtime_ns + n, 10_000) for n in range(30)]
        source.see([pings_batch("gpu017", normal)])
        assert not [b for b in source.collect(now).batches if b.table == "host_events"]
        assert recent.wanted(now.realtime_ns + NS_PER_S) == []
        lost = Ping("lo", target, now.realtime_ns + 40)
        source.see([pings_batch("gpu017", [lost])])
        assert not [b for b in source.collect(now).batches if b.table == "host_events"]
        long = Ping("lo", target, now.realtime_ns + 50, 5 * MS)
        source.see([pings_batch("gpu017", [long])])
        [event] = [b for b in source.collect(now).batches if b.table == "host_events"]
    assert list(event.columns["code"]) == ["captured_rtt"]
    [reported] = recent.wanted(now.realtime_ns + AFTER_NS + 2 * NS_PER_S)
    assert reported.columns["bytes"].tolist() == [4096]


def test_without_being_reported_it_opens_nothing(config: Configuration) -> None:
    ring = RingWriter(rings_dir(config.run_dir), 3)
    post(ring, 0, Wait.SEND_WIRE, 2 * NS_PER_S)
    with source_of(config) as source:
        source.see([pings_batch("gpu017", [])])
        collected = source.collect(read_clock())
        assert not collected.batches and not len(source._boards)
    assert collected.notes == ("nothing is captured: `capture` in [triggers] is not set",)
