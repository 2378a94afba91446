"""Of calls alone: logs that end where a rank stopped, and logs that end anywhere."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from oncall.evidence import Incident

MS = 10**6
ROUNDS = 41
PAIRS = [(0, 1), (2, 3), (4, 5), (6, 7)]
WORLD = 9


def record(incident: Incident, made: Mapping[int, int]) -> None:
    """Logs of calls: a pair calls every 100 ms, all ranks every 200 ms; `made` by each rank."""
    groups = {comm: list(pair) for comm, pair in enumerate(PAIRS)} | {WORLD: list(range(8))}
    for comm, ranks in groups.items():
        incident.append("comms", {"job": "j", "comm": comm, "rank": ranks, "size": len(ranks)})
    for comm, ranks in groups.items():
        every = 2 if comm == WORLD else 1
        rows = [
            (rank, seq, seq * every * 100 * MS + comm)
            for rank in ranks
            for seq in range(made.get(rank, ROUNDS) // every)
        ]
        incident.append(
            "ops",
            {
                "job": "j",
                "comm": comm,
                "kind": "coll",
                "op": "AllReduce",
                "count": 1024,
                "rank": [row[0] for row in rows],
                "seq": [row[1] for row in rows],
                "enqueued_ns": [10**18 + row[2] for row in rows],
            },
        )


def found(incident: Incident) -> tuple[str | None, set[int]]:
    """The state of the job, and the roots."""
    incident.require(["job_progress", "hang_roots"])
    state = incident.con.execute("SELECT state FROM job_progress").fetchone()
    roots = incident.con.execute("SELECT DISTINCT rank FROM hang_roots").fetchall()
    return state and state[0], {rank for (rank,) in roots}


def test_one_pair_apart_is_where_a_rank_stopped(incident: Incident) -> None:
    record(incident, {rank: 28 for rank in range(8)} | {2: 25, 3: 27})
    assert found(incident) == ("stopped", {2})


def test_where_most_pairs_are_apart_the_logs_end_anywhere(incident: Incident) -> None:
    cut = {0: 0, 1: 3, 2: 5, 3: 1, 4: 2, 5: 7, 6: 4, 7: 6}
    record(incident, {rank: ROUNDS - short for rank, short in cut.items()})
    state, _ = found(incident)
    assert state in (None, "moving")


def test_whose_call_the_others_have_just_made_is_not_overdue(incident: Incident) -> None:
    record(incident, {2: ROUNDS - 1})
    state, _ = found(incident)
    assert state in (None, "moving")


@pytest.mark.parametrize(
    ("apart", "ragged"), [(0, False), (1, False), (2, True), (3, True), (4, True)]
)
def test_two_of_four_groups_apart_are_more_than_one_stop_explains(
    incident: Incident, apart: int, ragged: bool
) -> None:
    record(incident, {2 * pair + pair % 2: ROUNDS - 5 for pair in range(apart)})
    incident.require(["log_ends"])
    rows = incident.con.execute("SELECT groups, lagging, ragged FROM log_ends").fetchall()
    assert rows == [(4, apart, ragged)]
