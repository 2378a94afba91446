"""Where a job's counters alone are known: whose lag is odd, and who called something else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest
from tests.together import Job

# Eight ranks: tensor-parallel pairs (0,1) to (6,7), data-parallel pairs (0,4) to (3,7), and all.
PAIRS = [(0, 1), (2, 3), (4, 5), (6, 7)]
REPLICAS = [(0, 4), (1, 5), (2, 6), (3, 7)]
GROUPS = [*PAIRS, *REPLICAS, tuple(range(8))]


def count(job: Job, behind: Mapping[tuple[int, int], int], gone: int | None = None) -> None:
    """One look at all counters: 100 calls each, less those of `behind` by group and rank; the
    process of rank `gone` is dead."""
    for comm, members in enumerate(GROUPS):
        ranks = list(members)
        job.append("comms", {"comm": comm, "rank": ranks, "size": len(ranks)})
        counted = [(rank, 100 - behind.get((comm, rank), 0)) for rank in ranks]
        job.append(
            "launches",
            {
                "comm": comm,
                "rank": ranks,
                "at_ns": 10**18,
                "launched": [None if rank == gone else n for rank, n in counted],
                "state": ["dead" if rank == gone else "running" for rank in ranks],
                "source": "nccl_ras",
            },
        )


def calls(job: Job, comm: int, by_rank: Mapping[int, Mapping[str, int]]) -> None:
    rows = [(rank, op, n) for rank, ops in by_rank.items() for op, n in ops.items()]
    job.append(
        "call_counts",
        {
            "comm": comm,
            "rank": [row[0] for row in rows],
            "at_ns": 10**18,
            "op": [row[1] for row in rows],
            "launched": [row[2] for row in rows],
        },
    )


def roots(job: Job) -> list[tuple[int | None, int, int]]:
    """Rank, communicator and number of every root."""
    return job.found("hang_roots", "rank, comm, seq")


def test_a_lag_that_all_others_like_it_show_is_a_consequence(job: Job) -> None:
    # Rank 2 stopped; its stage's replicas and the world wait, behind operations nobody counts.
    lags = {(0 + 4 + n, n): 2 for n in range(4)} | {(8, rank): 1 for rank in range(6)}
    count(job, lags | {(1, 2): 1})
    assert roots(job) == [(2, 1, 100)]


@pytest.mark.parametrize(("behind", "second"), [(2, [(5, 2, 99)]), (1, [])])
def test_two_odd_lags_are_two_causes_where_both_are_far_behind(
    job: Job, behind: int, second: list[tuple[int, int, int]]
) -> None:
    """A host that waits has called ahead, one that stopped has not."""
    count(job, {(1, 2): 3, (8, 2): 1, (8, 5): 1, (8, 0): 1, (2, 5): behind})
    assert roots(job) == [(2, 1, 98), *second]


def test_where_all_lag_alike_who_waits_for_none_is_named(job: Job) -> None:
    count(job, {(8, 3): 1})
    assert roots(job) == [(3, 8, 100)]


def test_ranks_that_lag_alike_everywhere_are_named_together(job: Job) -> None:
    """Replica 1 is behind: its ranks wait for one another in Sends that nobody counts."""
    count(job, {(4 + n, 4 + n): 2 for n in range(4)} | {(8, 4 + n): 1 for n in range(4)})
    assert {rank for rank, *_ in roots(job)} == {4, 5, 6, 7}
    assert len({place for _, *place_ in roots(job) for place in [tuple(place_)]}) == 1


def test_of_one_odd_group_who_lags_because_of_another_began_nothing(job: Job) -> None:
    """Rank 2 stopped; rank 0 is behind in the rarest group, but waits for rank 2 elsewhere."""
    pair = 9
    count(job, {(1, 2): 2, (8, 2): 1, (8, 3): 1})
    for comm, members in ((pair, [3, 7]), *((pair + n, [n, n + 4]) for n in (1, 2))):
        job.append("comms", {"comm": comm, "rank": members, "size": 2})
        calls = [99 if comm == pair else 100, 100]
        row = {"comm": comm, "rank": members, "at_ns": 10**18, "launched": calls}
        job.append("launches", row | {"state": "running", "source": "nccl_ras"})
    assert roots(job) == [(2, 1, 99)]


def test_a_process_that_is_gone_explains_every_lag(job: Job) -> None:
    count(job, {(4, 0): 1, (5, 1): 1, (8, 0): 1}, gone=7)
    assert {rank for rank, *_ in roots(job)} == {7}


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
    job: Job,
    by_rank: Mapping[int, Mapping[str, int]],
    expected: Sequence[tuple[int, str, str, str]],
) -> None:
    calls(job, 1, by_rank)
    rows = job.found("mismatched_counts", "rank, op, others, judged_by")
    assert rows == expected


def test_who_called_differently_hangs_the_job_though_no_counter_lags(job: Job) -> None:
    count(job, {})
    by_rank = {r: {"AllReduce": 100 - (r == 3), "Broadcast": int(r == 3)} for r in range(8)}
    calls(job, 8, by_rank)
    assert job.found("hang_suspects", "rank, reason") == [(3, "mismatch")]
    assert job.found("unmet_calls", "comm, seq, state") == [(8, 100, "stopped")]


def test_what_no_group_like_it_calls_is_odd(job: Job) -> None:
    calls(job, 0, {0: {"AllGather": 5, "Broadcast": 0}, 1: {"AllGather": 4, "Broadcast": 1}})
    calls(job, 1, {2: {"AllGather": 5}, 3: {"AllGather": 5}})
    rows = job.found("mismatched_counts", "rank, judged_by")
    assert rows == [(1, "siblings")]


def test_counters_are_not_asked_where_the_calls_of_all_members_are_recorded(
    job: Job,
) -> None:
    calls(job, 0, {0: {"AllGather": 5, "Broadcast": 0}, 1: {"AllGather": 4, "Broadcast": 1}})
    calls(job, 1, {2: {"AllGather": 5, "Broadcast": 0}, 3: {"AllGather": 4, "Broadcast": 1}})
    recorded = {"comm": 9, "kind": "coll", "seq": 1, "op": "AllGather"}
    job.append("ops", recorded | {"rank": [0, 1, 2], "enqueued_ns": 10**18})
    # Of communicator 1 rank 3 left no calls: only its counters show what it did.
    assert job.found("mismatched_counts", "rank") == [(2,), (3,)]
