"""Rounds: the times of one collective, from durations or from arrivals, whatever the clocks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from oncall.evidence import Incident

UNIX_NS = 1_760_000_000_000_000_000
MS = 1_000_000
ROUND_NS = 100 * MS


def rounds(*tables: dict[str, Any]) -> list[tuple[Any, ...]]:
    with Incident.empty() as incident:
        for columns in tables:
            incident.append("ops", {"job": "j", "comm": 1, "kind": "coll"} | columns)
        incident.require(["rounds"])
        return incident.con.execute(
            "SELECT seq, basis, ranks, t_max_ns, t_min_ns, last_rank, op, bytes FROM rounds "
            "ORDER BY comm, seq"
        ).fetchall()


def flat(arrivals: Sequence[Sequence[int]], skews: Sequence[int]) -> dict[str, list[int]]:
    """seq, rank and entry of `arrivals[round][rank]`, each rank's clock off by its skew."""
    cells = [(k, rank) for k, row in enumerate(arrivals) for rank in range(len(row))]
    return {
        "seq": [k for k, _ in cells],
        "rank": [rank for _, rank in cells],
        "at": [UNIX_NS + k * ROUND_NS + arrivals[k][rank] + skews[rank] for k, rank in cells],
    }


sizes = st.tuples(st.integers(2, 5), st.integers(1, 8))
DAY_NS = 86_400_000 * MS
skew = st.integers(-10 * MS, 10 * MS) | st.integers(-DAY_NS, DAY_NS)


def arrivals_of(size: tuple[int, int]) -> st.SearchStrategy[list[list[int]]]:
    ranks, count = size
    row = st.lists(st.integers(0, 5 * MS), min_size=ranks, max_size=ranks, unique=True)
    return st.lists(row, min_size=count, max_size=count)


@settings(max_examples=20, deadline=None)
@given(st.data(), sizes, st.integers(1, MS))
def test_durations_tell_the_longest_and_the_last_whatever_the_clocks(
    data: st.DataObject, size: tuple[int, int], transfer_ns: int
) -> None:
    arrivals = data.draw(arrivals_of(size))
    made = flat(arrivals, data.draw(st.lists(skew, min_size=size[0], max_size=size[0])))
    last = [max(row) for row in arrivals]
    durations = [
        last[k] - arrivals[k][r] + transfer_ns
        for k, r in zip(made["seq"], made["rank"], strict=True)
    ]
    ended = [at + duration for at, duration in zip(made["at"], durations, strict=True)]
    expected = [
        (
            k,
            "duration",
            size[0],
            max(row) - min(row) + transfer_ns,
            transfer_ns,
            row.index(max(row)),
        )
        for k, row in enumerate(arrivals)
    ]
    rows = {"seq": made["seq"], "rank": made["rank"]}
    found = rounds(
        rows | {"comm": 1, "started_ns": made["at"], "ended_ns": ended},
        rows | {"comm": 2, "enqueued_ns": made["at"], "duration_ns": durations},
    )
    assert [row[:6] for row in found] == expected * 2


@settings(max_examples=20, deadline=None)
@given(st.data(), sizes)
def test_a_constant_skew_changes_nothing_in_arrivals(
    data: st.DataObject, size: tuple[int, int]
) -> None:
    arrivals = data.draw(arrivals_of(size))
    skews = data.draw(st.lists(skew, min_size=size[0], max_size=size[0]))
    true, skewed = flat(arrivals, [0] * size[0]), flat(arrivals, skews)
    rows = {"seq": true["seq"], "rank": true["rank"]}
    # In jobs of their own: what a host calls on another communicator limits its waits.
    found = rounds(
        rows | {"job": "true", "comm": 1, "enqueued_ns": true["at"]},
        rows | {"job": "skewed", "comm": 2, "enqueued_ns": skewed["at"]},
    )
    for before, after in zip(found[: size[1]], found[size[1] :], strict=True):
        assert before[:3] == after[:3] == (before[0], "arrival", size[0])
        assert abs(before[3] - after[3]) <= 4  # medians and means are rounded to whole ns
        assert before[4] == after[4] == 0


def test_a_late_arrival_shows_behind_a_larger_skew() -> None:
    arrivals = [[0, 10, 20, 30] for _ in range(20)]
    arrivals[15][2] = 3 * MS
    made = flat(arrivals, [0, 10 * MS, -10 * MS, 5 * MS])
    found = rounds({"seq": made["seq"], "rank": made["rank"], "enqueued_ns": made["at"]})
    assert max(row[3] for row in found if row[0] != 15) <= 4
    (late,) = [row for row in found if row[0] == 15]
    assert late[5] == 2
    assert abs(late[3] - (3 * MS - 20)) <= 4


def test_a_host_that_calls_on_has_not_waited_for_the_last() -> None:
    # Rank 2 calls the fifteenth 30 ms late; the others make another call 1 ms later.
    arrivals = [[0, 10, 20, 30] for _ in range(20)]
    arrivals[15][2] = 30 * MS
    made = flat(arrivals, [0] * 4)
    columns = {"seq": made["seq"], "rank": made["rank"], "enqueued_ns": made["at"]}
    ahead = {
        "comm": 2,
        "seq": 0,
        "rank": [0, 1, 3],
        "enqueued_ns": [UNIX_NS + 15 * ROUND_NS + MS] * 3,
    }
    waited = {row[0]: row[3] for row in rounds(columns)}
    called_on = {row[0]: row[3] for row in rounds(columns, ahead) if row[2] == 4}
    assert waited[15] >= 30 * MS - 30
    assert called_on[15] <= MS
    assert {k: v for k, v in called_on.items() if k != 15} == {
        k: v for k, v in waited.items() if k != 15
    }


def test_a_hole_takes_only_its_member_out_of_the_round() -> None:
    arrivals = [[0, 10, 20] for _ in range(12)]
    made = flat(arrivals, [0, 10 * MS, -10 * MS])
    cells = list(zip(made["seq"], made["rank"], made["at"], strict=True))
    kept = [cell for cell in cells if cell[:2] not in ((7, 0), (9, 0), (9, 1), (11, 2))]
    seq, rank, at = (list(column) for column in zip(*kept, strict=True))
    found = rounds({"seq": seq, "rank": rank, "enqueued_ns": at})
    assert [row[0] for row in found] == [k for k in range(12) if k != 9], "one alone is no round"
    assert [row[2] for row in found] == [3] * 7 + [2, 3, 3, 2]
    assert all(row[3] <= 4 for row in found)


def test_what_is_still_in_flight_is_no_round() -> None:
    times = {"started_ns": 5, "ended_ns": [9, 8, None], "observed_ns": 20}
    found = rounds({"seq": 3, "rank": [0, 1, 2], "op": "AllReduce", "bytes": 64} | times)
    assert found == [(3, "duration", 2, 4, 3, 1, "AllReduce", 64)]


def test_sends_and_receives_are_no_rounds() -> None:
    times = {"started_ns": 5, "ended_ns": 9}
    assert rounds({"seq": 3, "rank": [0, 1], "kind": "p2p"} | times) == []


def test_jobs_are_read_each_by_what_it_records() -> None:
    calls = {"job": "calls", "seq": 1, "rank": [0, 1], "enqueued_ns": [5, 9], "count": 16}
    timed = {"job": "timed", "comm": 2, "seq": 1, "rank": [0, 1], "started_ns": [5, 9]}
    found = rounds(calls, timed | {"ended_ns": 12})
    assert [(row[1], row[3], row[7]) for row in found] == [
        ("arrival", 0, 16),
        ("duration", 7, None),
    ]


def test_a_round_kept_for_several_stands_for_what_its_coarsest_sample_does_not_repeat() -> None:
    """Rank 0 kept every 4th round, rank 1 every 8th: a round that both kept stands for four."""
    row = {"job": "j", "comm": 1, "kind": "coll", "enqueued_ns": UNIX_NS, "duration_ns": MS}
    with Incident.empty() as incident:
        for seq, stands_for in ((8, [4, 8]), (9, [None, None]), (12, [4, None])):
            incident.append("ops", row | {"seq": seq, "rank": [0, 1], "stands_for": stands_for})
        incident.require(["rounds"])
        kept = incident.con.execute("SELECT seq, stands_for FROM rounds ORDER BY seq").fetchall()
    assert kept == [(8, 4), (9, 1), (12, 1)]
