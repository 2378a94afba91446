"""Exposed communication: who works while all others wait, in profiles."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from oncall.evidence import Incident

RANKS, INTERVALS = range(4), range(240)
EVERY_NS = 5_000_000
Share = Callable[[int, int], float]  # (interval, rank) -> of it, exposed communication


def causes(share: Share, stages: bool = False) -> list[tuple[str, int, float]]:
    """The causes of a profiled job of four ranks; `stages`: each is a stage of its pipeline."""
    with Incident.empty() as incident:
        every = [(at, rank) for at in INTERVALS for rank in RANKS]
        incident.append(
            "profiled_time",
            {
                "job": "j",
                "rank": [rank for _, rank in every],
                "started_ns": [at * EVERY_NS for at, _ in every],
                "ended_ns": [(at + 1) * EVERY_NS for at, _ in every],
                "exposed_ns": [int(share(*one) * EVERY_NS) for one in every],
            },
        )
        incident.append(
            "comms",
            {
                "job": "j",
                "comm": 1,
                "rank": [*RANKS],
                "comm_rank": [*RANKS],
                "size": 4,
                "role": "pp" if stages else "dp",
            },
        )
        calls = {"job": "j", "comm": 1, "seq": 1, "kind": "coll", "op": "AllReduce", "done": True}
        incident.append("ops", {**calls, "rank": [*RANKS], "enqueued_ns": 1})
        incident.require(["lost_time"])
        rows = incident.con.execute(
            "SELECT cause, rank, share FROM lost_time WHERE entry > 0 ORDER BY entry, rank"
        ).fetchall()
        return [(cause, rank, round(part, 2)) for cause, rank, part in rows]


def test_the_rank_that_exposes_least_makes_the_others_wait() -> None:
    assert causes(lambda _, rank: 0.1 if rank == 2 else 0.5) == [("own", 2, 0.4)]


def test_two_of_a_host_that_expose_least_are_one_cause() -> None:
    found = causes(lambda _, rank: 0.1 if rank > 1 else 0.5)
    assert found == [("own", 2, 0.4), ("own", 3, 0.4)]


@pytest.mark.parametrize("turn", [1, 20, 60])
def test_who_works_longest_by_turns_is_nobodys_fault(turn: int) -> None:
    assert causes(lambda at, rank: 0.1 if at // turn % 4 == rank else 0.5) == []


def test_a_stage_without_a_replica_may_be_heavy_by_design() -> None:
    assert causes(lambda _, rank: 0.1 if rank == 2 else 0.5, stages=True) == []


def test_where_all_wait_alike_nobody_is_slow() -> None:
    assert causes(lambda *_: 0.6) == []


def test_one_long_wait_is_an_event_that_chance_may_explain() -> None:
    """A checkpoint of rank 0, which the others wait for, fills half of what was profiled."""
    found = causes(lambda at, rank: (0.0 if rank == 0 else 1.0) if 60 <= at < 180 else 0.2)
    assert found == [("perhaps", 0, 0.5)]


def test_waits_in_each_of_many_steps_are_no_event() -> None:
    found = causes(lambda at, rank: (0.0 if rank == 0 else 1.0) if at % 24 < 12 else 0.2)
    assert [(cause, rank) for cause, rank, _ in found] == [("own", 0)]
