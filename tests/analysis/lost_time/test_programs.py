"""What each rank called, from recordings that say some of it twice."""

from __future__ import annotations

import numpy as np

from oncall.analysis.lost_time.limits import Limits
from oncall.analysis.lost_time.programs import Programs, read_programs
from oncall.evidence import Incident


def programs_of(incident: Incident) -> Programs:
    incident.provide(["operations", "members"])
    found = read_programs(incident.con, "job", Limits())
    assert found is not None
    return found


def test_an_operation_that_was_written_twice_is_one() -> None:
    with Incident.empty() as incident:
        incident.append(
            "ops",
            {
                "job": "job",
                "comm": 7,
                "rank": [0, 0, 0, 1, 1],
                "seq": [1, 1, 2, 1, 2],
                "kind": "coll",
                "op": "AllReduce",
                "count": 8,
                "enqueued_ns": [10, 10, 20, 10, 20],
                "ended_ns": [None, 15, 25, 15, 25],
                "done": True,
            },
        )
        found = programs_of(incident)
    assert found.rank.tolist() == [0, 0, 1, 1]
    assert found.seq.tolist() == [1, 2, 1, 2]


def test_sends_at_one_moment_to_several_are_several() -> None:
    with Incident.empty() as incident:
        incident.append(
            "ops",
            {
                "job": "job",
                "comm": 7,
                "rank": 0,
                "seq": 1,
                "kind": "p2p",
                "op": "Send",
                "count": 8,
                "peer": [1, 2],
                "enqueued_ns": 10,
                "done": True,
            },
        )
        found = programs_of(incident)
    assert len(found.rank) == 1  # one batch
    assert len(np.unique(found.parts.node)) == 1
    assert len(found.parts.node) == 2


def test_sizes_that_data_decide_do_not_tell_programs_apart() -> None:
    """Experts exchange as much as tokens are routed to them; gradients are of one size."""
    with Incident.empty() as incident:
        for seq in range(20):
            for op, comm, counts in (("AllToAll", 7, [8 + seq, 9]), ("AllReduce", 8, [64, 64])):
                incident.append(
                    "ops",
                    {
                        "job": "job",
                        "comm": comm,
                        "rank": [0, 1],
                        "seq": seq,
                        "kind": "coll",
                        "op": op,
                        "count": counts,
                        "enqueued_ns": 100 * seq + comm,
                        "done": True,
                    },
                )
        found = programs_of(incident)
    assert len(np.unique(found.signature)) == 2
    assert len(np.unique(found.count)) > 2


def test_experts_that_send_to_all_others_exchange_by_one_operation() -> None:
    """What each sends differs from call to call, and none sends to itself."""
    with Incident.empty() as incident:
        for seq in range(6):
            for rank in range(4):
                others = [peer for peer in range(4) if peer != rank]
                parts = [(op, peer) for op in ("Send", "Recv") for peer in others]
                incident.append(
                    "ops",
                    {
                        "job": "job",
                        "comm": 7,
                        "rank": rank,
                        "seq": seq,
                        "kind": "p2p",
                        "op": [op for op, _ in parts],
                        "peer": [peer for _, peer in parts],
                        "count": 8 + seq + rank,
                        "enqueued_ns": 1_000_000 * seq,
                        "done": True,
                    },
                )
        found = programs_of(incident)
    assert not found.batch.any()
    assert {found.ops[op] for op in found.op} == {"AllToAll"}
    assert len(np.unique(found.signature)) == 1
