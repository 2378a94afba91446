"""Operations that completed although a member never called them: failed, or dumped later."""

from __future__ import annotations

import pytest

from oncall.evidence import Incident


def uncalled(
    calls: dict[int, list[int]], kind: str = "flight_recorder", but: tuple[int, int] = (0, 0)
) -> list[tuple[object, ...]]:
    """What is found of ranks that called these numbers on one communicator; all completed, `but`
    that of a rank."""
    rows = [(rank, seq) for rank, seqs in calls.items() for seq in seqs]
    with Incident.empty() as made:
        made.append(
            "ops",
            {
                "job": "j",
                "comm": 1,
                "kind": "coll",
                "op": "AllReduce",
                "rank": [rank for rank, _ in rows],
                "seq": [seq for _, seq in rows],
                "enqueued_ns": [1000 * seq for _, seq in rows],
                "done": [row != but for row in rows],
            },
        )
        made.append("recordings", {"job": "j", "path": "d", "kind": kind, "rank": list(calls)})
        made.require(["uncalled_ends"])
        return made.con.execute("SELECT rank, ended FROM uncalled_ends ORDER BY rank").fetchall()


@pytest.mark.parametrize(
    ("calls", "found"),
    [
        ({0: [1, 2], 1: [1, 2], 2: [1, 2]}, []),
        ({0: [1], 1: [1, 2], 2: [1, 2]}, [(0, [1, 2])]),
        # Rank 1 went on: its call had succeeded, and the dump of rank 0 is older.
        ({0: [1], 1: [1, 2, 3], 2: [1, 2]}, []),
    ],
)
def test_a_call_that_ended_without_a_member_is_no_sign_of_life(
    calls: dict[int, list[int]], found: list[tuple[object, ...]]
) -> None:
    assert uncalled(calls) == found


def test_who_was_still_in_the_call_before_was_recorded_earlier() -> None:
    assert uncalled({0: [1, 2], 1: [1, 2, 3], 2: [1, 2, 3]}, but=(0, 2)) == []


def test_a_collectors_rows_may_end_earlier_on_a_node() -> None:
    assert uncalled({0: [1], 1: [1, 2]}, kind="shard") == []
