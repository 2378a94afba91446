"""The source `traffic` in a collector: what it sees of the others, and what comes into a shard."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
from ring_writer import RingWriter, operations

from oncall.core.units import NS_PER_S
from oncall.node.agent.agent import Agent
from oncall.node.agent.recorder import Recorder
from oncall.node.common.config import Configuration
from oncall.node.common.log import Log
from oncall.node.common.own_thread import SeeingThread
from oncall.node.common.source import Collected, Instant, read_clock
from oncall.node.rings.rings import RingSource
from oncall.node.store.batch import Batch
from oncall.node.traffic.epochs import EPOCH_NS, Epochs
from oncall.node.traffic.operation_traffic import TrafficSource
from oncall.node.traffic.recent_traffic import Flow, RecentTraffic
from oncall.node.traffic.segmenting import Segmenting

SealedRows = Callable[[str], list[tuple[object, ...]]]
Until = Callable[[Callable[[], object]], None]
OPERATIONS, EPOCHS, BYTES = 5, 10, 10**6
EVERY_NS = NS_PER_S // 10
NODE, JOB, COMM, RANK = "gpu017", "j", 7, 3


class Job:
    """A rank that adds something up with another one over its NIC, and its NIC that counts: what
    the sources `rings`, `verbs` and `dpa` would tell. The last operation stands still half way."""

    name = "job"

    def __init__(self, recent: RecentTraffic) -> None:
        self.began_ns = read_clock().realtime_ns - OPERATIONS * EVERY_NS
        self._recent = recent
        self._reported = False

    def collect(self, now: Instant) -> Collected:
        if self._reported:
            return Collected()
        self._reported = True
        self._send(now)
        number = np.arange(OPERATIONS)
        called_ns = self.began_ns + number * EVERY_NS
        over = number < OPERATIONS - 1
        ops = {
            "job": JOB, "comm": COMM, "rank": RANK, "seq": number + 1, "kind": ["coll"] * 5,
            "op": ["AllReduce"] * OPERATIONS, "bytes": BYTES, "enqueued_ns": called_ns,
            "started_ns": called_ns, "done": over,
            "ended_ns": np.ma.MaskedArray(called_ns + EPOCHS * EPOCH_NS, mask=~over),
        }  # fmt: skip
        pair = {"job": JOB, "node": NODE, "nic": "mlx5_0", "qpn": [9], "rank": RANK,
                "peer_gid": "::2", "peer_qpn": 8, "created_ns": 0}  # fmt: skip
        return Collected([Batch("ops", OPERATIONS, ops), Batch("qps", 1, pair)])

    def present(self, now: Instant) -> Sequence[Batch]:  # noqa: ARG002
        """As rings do: who is there comes into the store at a seal only."""
        comms = {"job": JOB, "comm": COMM, "rank": [RANK], "comm_rank": 0, "size": 2}
        return [
            Batch("comms", 1, comms),
            Batch("ranks", 1, {"job": JOB, "rank": [RANK], "node": NODE}),
        ]

    def _send(self, now: Instant) -> None:
        first = (self.began_ns + np.arange(OPERATIONS) * EVERY_NS) // EPOCH_NS + 1
        epoch = (first[:, None] + np.arange(EPOCHS)).ravel()[: -EPOCHS // 2]
        sent = np.full(len(epoch), BYTES // EPOCHS)
        epochs = Epochs(np.zeros_like(epoch), epoch, sent)
        self._recent.add([Flow("dpa", NODE, "mlx5_0", 9)], epochs, now.realtime_ns)

    def current_state(self, now: Instant) -> Sequence[Batch]:  # noqa: ARG002
        return ()

    def close(self) -> None:
        """Nothing is held."""


@pytest.fixture
def agent(config: Configuration) -> Agent:
    recent = RecentTraffic(most_bytes=2**20)
    segmenting = Segmenting(settle_ns=NS_PER_S // 10, learn_ns=0)
    traffic = SeeingThread(TrafficSource(recent, NS_PER_S // 10, segmenting))
    return Agent(config, [Job(recent), traffic], Recorder(config, Log()), Log())


def test_what_was_sent_in_each_operation_is_in_a_shard_and_raw_epochs_are_where_one_is_late(
    agent: Agent, until: Until, sealed_rows: SealedRows
) -> None:
    traffic = agent._accounts["traffic"]
    until(
        lambda: agent.step() or traffic.rows >= OPERATIONS - 1 + OPERATIONS * EPOCHS - EPOCHS // 2
    )
    agent.finish()
    found = sealed_rows(
        "SELECT seq, rank, nic, qpn, source, algo, bytes, expected_bytes, active_ns, "
        "ended_ns IS NULL FROM op_traffic ORDER BY seq, ended_ns IS NULL"
    )
    whole = (RANK, "mlx5_0", 9, "dpa", "RING", BYTES, BYTES, EPOCHS * EPOCH_NS, False)
    half = (RANK, "mlx5_0", 9, "dpa", "RING", BYTES // 2, BYTES, EPOCHS // 2 * EPOCH_NS, True)
    assert found[:-1] == [(number + 1, *whole) for number in range(OPERATIONS - 1)]
    assert found[-1] == (OPERATIONS, *half)
    assert sealed_rows("SELECT sum(bytes), any_value(qpn) FROM epochs") == [
        ((OPERATIONS - 1) * BYTES + BYTES // 2, 9)
    ]


class Watching:
    """A source that keeps what it is shown."""

    name = "watching"
    is_watching = True

    def __init__(self) -> None:
        self.seen: list[Batch] = []
        self.see = self.seen.extend

    def collect(self, now: Instant) -> Collected:  # noqa: ARG002
        return Collected()

    def current_state(self, now: Instant) -> Sequence[Batch]:  # noqa: ARG002
        return ()

    def close(self) -> None:
        """Nothing is held."""


def test_who_is_there_is_shown_to_who_begins_to_watch_and_to_nobody_before(
    config: Configuration, rings: Path
) -> None:
    ring = RingWriter(rings)
    ring.communicator(0, COMM, rank=RANK)
    ring.append(operations(1, 2)[:-1])
    watching = Watching()
    watching.is_watching = False
    source = RingSource(rings, NODE, config.ring_grace_ns, {})
    agent = Agent(config, [source, watching], Recorder(config, Log()), Log())
    agent.step()
    assert "comms" not in {batch.table for batch in watching.seen}
    watching.is_watching = True
    agent.step()
    assert {"comms", "ranks", "ops"} <= {batch.table for batch in watching.seen}
    agent.finish()


def test_a_busy_job_whose_traffic_nobody_measures_does_not_hold_up_the_collector() -> None:
    source = TrafficSource(RecentTraffic(most_bytes=2**20), NS_PER_S)

    def job() -> None:
        for _ in range(10):
            source.see([Batch("ops", 10_000, {"rank": np.arange(10_000)})])

    seeing = threading.Thread(target=job, daemon=True)
    seeing.start()
    seeing.join(timeout=20)
    assert not seeing.is_alive()
    assert not source.collect(read_clock()).dropped
    source.close()
