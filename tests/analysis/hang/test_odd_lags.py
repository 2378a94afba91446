"""Of calls alone: logs that end where a rank stopped, and logs that end anywhere."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from tests.together import Job

MS = 10**6
ROUNDS = 41
PAIRS = [(0, 1), (2, 3), (4, 5), (6, 7)]
WORLD = 9


def record(job: Job, made: Mapping[int, int]) -> None:
    """Logs of calls: a pair calls every 100 ms, all ranks every 200 ms; `made` by each rank."""
    groups = {comm: list(pair) for comm, pair in enumerate(PAIRS)} | {WORLD: list(range(8))}
    for comm, ranks in groups.items():
        job.append("comms", {"comm": comm, "rank": ranks, "size": len(ranks)})
    for comm, ranks in groups.items():
        every = 2 if comm == WORLD else 1
        rows = [
            (rank, seq, seq * every * 100 * MS + comm)
            for rank in ranks
            for seq in range(made.get(rank, ROUNDS) // every)
        ]
        job.append(
            "ops",
            {
                "comm": comm,
                "kind": "coll",
                "op": "AllReduce",
                "count": 1024,
                "rank": [row[0] for row in rows],
                "seq": [row[1] for row in rows],
                "enqueued_ns": [10**18 + row[2] for row in rows],
            },
        )


def state_of(job: Job) -> str | None:
    states = job.found("job_progress", "state")
    return states[0][0] if states else None


def test_one_pair_apart_is_where_a_rank_stopped(job: Job) -> None:
    record(job, {rank: 28 for rank in range(8)} | {2: 25, 3: 27})
    assert state_of(job) == "stopped"
    assert job.found("hang_roots", "DISTINCT rank") == [(2,)]


def test_where_most_pairs_are_apart_the_logs_end_anywhere(job: Job) -> None:
    cut = {0: 0, 1: 3, 2: 5, 3: 1, 4: 2, 5: 7, 6: 4, 7: 6}
    record(job, {rank: ROUNDS - short for rank, short in cut.items()})
    assert state_of(job) in (None, "moving")


def test_whose_call_the_others_have_just_made_is_not_overdue(job: Job) -> None:
    record(job, {2: ROUNDS - 1})
    assert state_of(job) in (None, "moving")


@pytest.mark.parametrize(
    ("apart", "ragged"), [(0, False), (1, False), (2, True), (3, True), (4, True)]
)
def test_two_of_four_groups_apart_are_more_than_one_stop_explains(
    job: Job, apart: int, ragged: bool
) -> None:
    record(job, {2 * pair + pair % 2: ROUNDS - 5 for pair in range(apart)})
    assert job.found("log_ends", "groups, lagging, ragged") == [(4, apart, ragged)]
