"""Where a job's counters alone are known: whose lag is odd, and who called something else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest
from tests.sql import found

from oncall.evidence import Incident

# Eight ranks: tensor-parallel pairs (0,1) to (6,7), data-parallel pairs (0,4) to (3,7), and all.
PAIRS = [(0, 1), (2, 3), (4, 5), (6, 7)]
REPLICAS = [(0, 4), (1, 5), (2, 6), (3, 7)]
GROUPS = [*PAIRS, *REPLICAS, tuple(range(8))]


def count(incident: Incident, behind: Mapping[tuple[int, int], int]) -> None:
    """One look at all counters: 100 calls each, less those of `behind` by group and rank."""
    for comm, members in enumerate(GROUPS):
        ranks = list(members)
        incident.append("comms", {"job": "j", "comm": comm, "rank": ranks, "size": len(ranks)})
        calls = [100 - behind.get((comm, rank), 0) for rank in ranks]
        incident.append(
            "launches",
            {
                "job": "j",
                "comm": comm,
                "rank": ranks,
                "at_ns": 10**18,
                "launched": calls,
                "state": "running",
                "source": "nccl_ras",
            },
        )


def calls(incident: Incident, comm: int, by_rank: Mapping[int, Mapping[str, int]]) -> None:
    rows = [(rank, op, n) for rank, ops in by_rank.items() for op, n in ops.items()]
    incident.append(
        "call_counts",
        {
            "job": "j",
            "comm": comm,
            "rank": [row[0] for row in rows],
            "at_ns": 10**18,
            "op": [row[1] for row in rows],
            "launched": [row[2] for row in rows],
        },
    )


def roots(incident: Incident) -> list[tuple[int | None, int, int]]:
    """Rank, communicator and number of every root."""
    return found(incident, "hang_roots", "rank, comm, seq")


def test_a_lag_that_all_others_like_it_show_is_a_consequence(incident: Incident) -> None:
    # Rank 2 stopped; its stage's replicas and the world wait, behind operations nobody counts.
    lags = {(0 + 4 + n, n): 2 for n in range(4)} | {(8, rank): 1 for rank in range(6)}
    count(incident, lags | {(1, 2): 1})
    assert roots(incident) == [(2, 1, 100)]


@pytest.mark.parametrize(("behind", "second"), [(2, [(5, 2, 99)]), (1, [])])
def test_two_odd_lags_are_two_causes_where_both_are_far_behind(
    incident: Incident, behind: int, second: list[tuple[int, int, int]]
) -> None:
    """A host that waits has called ahead, one that stopped has not."""
    count(incident, {(1, 2): 3, (8, 2): 1, (8, 5): 1, (8, 0): 1, (2, 5): behind})
    assert roots(incident) == [(2, 1, 98), *second]


def test_where_all_lag_alike_who_waits_for_none_is_named(incident: Incident) -> None:
    count(incident, {(8, 3): 1})
    assert roots(incident) == [(3, 8, 100)]


def test_ranks_that_lag_alike_everywhere_are_named_together(incident: Incident) -> None:
    """Replica 1 is behind: its ranks wait for one another in Sends that nobody counts."""
    count(incident, {(4 + n, 4 + n): 2 for n in range(4)} | {(8, 4 + n): 1 for n in range(4)})
    assert {rank for rank, *_ in roots(incident)} == {4, 5, 6, 7}
    assert len({place for _, *place_ in roots(incident) for place in [tuple(place_)]}) == 1


def test_of_one_odd_group_who_lags_because_of_another_began_nothing(incident: Incident) -> None:
    """Rank 2 stopped; rank 0 is behind in the rarest group, but waits for rank 2 elsewhere."""
    pair = 9
    count(incident, {(1, 2): 2, (8, 2): 1, (8, 3): 1})
    for comm, members in ((pair, [3, 7]), *((pair + n, [n, n + 4]) for n in (1, 2))):
        incident.append("comms", {"job": "j", "comm": comm, "rank": members, "size": 2})
        calls = [99 if comm == pair else 100, 100]
        row = {"job": "j", "comm": comm, "rank": members, "at_ns": 10**18, "launched": calls}
        incident.append("launches", row | {"state": "running", "source": "nccl_ras"})
    assert roots(incident) == [(2, 1, 99)]


def test_a_process_that_is_gone_explains_every_lag(incident: Incident) -> None:
    count(incident, {(4, 0): 1, (5, 1): 1, (8, 0): 1})
    incident.con.execute("DELETE FROM launches WHERE rank = 7")
    gone = {"rank": 7, "launched": None, "state": "dead", "source": "nccl_ras"}
    for comm in (3, 7, 8):
        incident.append("launches", {"job": "j", "comm": comm, "at_ns": 10**18, **gone})
    assert {rank for rank, *_ in roots(incident)} == {7}


@pytest.mark.parametrize(
    ("by_rank", "expected"),
    [
        ({0: {"AllReduce": 5}, 1: {"AllReduce": 7}}, []),  # merely behind
        (  # counted by two versions of NCCL
            {r: {"AllReduce": 5 + r} for r in range(2)} | {2: {"Reduce": 1}, 3: {"Reduce": 2}},
            [],
        ),
        (
            {r: {"AllGather": 5 - (r == 2), "AllReduce": 4 + (r == 2)} for r in range(4)},
            [(2, "AllReduce", "AllGather", "majority")],
        ),
        (
            {0: {"AllGather": 5, "Broadcast": 0}, 1: {"AllGather": 4, "Broadcast": 1}},
            [(0, "AllGather", "Broadcast", "tie"), (1, "Broadcast", "AllGather", "tie")],
        ),
    ],
)
def test_who_is_ahead_with_one_operation_and_behind_with_another_called_differently(
    incident: Incident,
    by_rank: Mapping[int, Mapping[str, int]],
    expected: Sequence[tuple[int, str, str, str]],
) -> None:
    calls(incident, 1, by_rank)
    rows = found(incident, "mismatched_counts", "rank, op, others, judged_by")
    assert rows == expected


def test_who_called_differently_hangs_the_job_though_no_counter_lags(incident: Incident) -> None:
    count(incident, {})
    by_rank = {r: {"AllReduce": 100 - (r == 3), "Broadcast": int(r == 3)} for r in range(8)}
    calls(incident, 8, by_rank)
    incident.require(["unmet_calls", "hang_suspects"])
    suspects = incident.con.execute("SELECT rank, reason FROM hang_suspects").fetchall()
    assert suspects == [(3, "mismatch")]
    states = incident.con.execute("SELECT comm, seq, state FROM unmet_calls").fetchall()
    assert states == [(8, 100, "stopped")]


def test_what_no_group_like_it_calls_is_odd(incident: Incident) -> None:
    calls(incident, 0, {0: {"AllGather": 5, "Broadcast": 0}, 1: {"AllGather": 4, "Broadcast": 1}})
    calls(incident, 1, {2: {"AllGather": 5}, 3: {"AllGather": 5}})
    rows = found(incident, "mismatched_counts", "rank, judged_by")
    assert rows == [(1, "siblings")]


def test_counters_are_not_asked_where_the_calls_of_all_members_are_recorded(
    incident: Incident,
) -> None:
    calls(incident, 0, {0: {"AllGather": 5, "Broadcast": 0}, 1: {"AllGather": 4, "Broadcast": 1}})
    calls(incident, 1, {2: {"AllGather": 5, "Broadcast": 0}, 3: {"AllGather": 4, "Broadcast": 1}})
    recorded = {"job": "j", "comm": 9, "kind": "coll", "seq": 1, "op": "AllGather"}
    incident.append("ops", recorded | {"rank": [0, 1, 2], "enqueued_ns": 10**18})
    # Of communicator 1 rank 3 left no calls: only its counters show what it did.
    assert found(incident, "mismatched_counts", "rank") == [(2,), (3,)]
