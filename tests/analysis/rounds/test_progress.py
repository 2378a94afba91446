"""Progress: the counters of every member, from operations or from what the ranks count."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.sql import found

from oncall.evidence import Incident


def frontier(incident: Incident) -> list[tuple[Any, ...]]:
    return found(incident, "frontier", "rank, entered_seq, done_seq")


@settings(max_examples=10, deadline=None)
@given(data=st.data())
def test_counters_are_those_of_the_job_that_was_played(data: st.DataObject, recorded: Any) -> None:
    incident, played = data.draw(recorded)
    with incident:
        if incident.missing("frontier"):
            assert not any(rank.issued for one in played.values() for rank in one.ranks)
            return
        incident.require(["frontier"])
        counted = incident.con.execute(
            "SELECT job, comm, rank, entered_seq, done_seq FROM frontier"
        ).fetchall()
    expected: dict[tuple[str, int, int], tuple[int | None, int | None]] = {}
    for job, one in played.items():
        for comm, members in enumerate(one.job.members):
            for number in members:
                rank = one.ranks[number]
                made = rank.made[comm, "coll"]
                done = sum(
                    call == (comm, "coll")
                    for call in [(c.comm, c.kind) for c, *_ in rank.issued[: len(rank.ended)]]
                )
                expected[job, comm, number] = (made or None, done if made else None)
    assert {row[:3]: row[3:] for row in counted} == expected


def test_completion_is_reported_in_different_ways(incident: Incident) -> None:
    """Done by a flag, by an end, by a duration; open by a flag, by a look; unknown by neither."""
    rows = {"job": "j", "comm": 1, "seq": 5, "rank": list(range(6)), "enqueued_ns": 1}
    incident.append(
        "ops",
        rows
        | {"done": [True, None, None, False, None, None]}
        | {"ended_ns": [None, 9, None, None, None, None]}
        | {"duration_ns": [None, None, 3, None, None, None]}
        | {"observed_ns": [None, None, None, None, 9, None]},
    )
    incident.append("ops", rows | {"job": "calls only"})
    incident.require(["operations"])
    stored = incident.con.execute(
        "SELECT job, done, kind, entered_ns FROM operations ORDER BY job DESC, rank"
    ).fetchall()
    assert [row[1] for row in stored if row[0] == "j"] == [True, True, True, False, False, False]
    assert [row[1] for row in stored if row[0] != "j"] == [None] * 6
    assert {row[2:] for row in stored} == {("coll", 1)}


def test_collectives_before_the_first_open_one_are_done(incident: Incident) -> None:
    incident.append(
        "ops",
        {"job": "j", "comm": 1, "kind": "coll", "rank": [0, 0, 1], "seq": [8, 9, 9]}
        | {"enqueued_ns": [3, 4, 4], "observed_ns": 50},
    )
    assert frontier(incident) == [(0, 9, 7), (1, 9, 8)]


def test_a_row_of_the_end_outweighs_those_while_it_ran(incident: Incident) -> None:
    rows = {"job": "j", "comm": 1, "kind": "coll", "rank": 0, "seq": 8, "enqueued_ns": 3}
    incident.append("ops", rows | {"observed_ns": [10, 20, 30], "ended_ns": [None, 15, None]})
    incident.append("ops", rows | {"rank": 1, "observed_ns": 30})
    assert found(incident, "in_flight", "rank, waited_ns") == [(1, 27)]


def test_counters_stand_in_where_no_operation_was_kept(incident: Incident) -> None:
    incident.append("comms", {"job": "j", "comm": 1, "rank": [0, 1]})
    done = {"job": "j", "comm": 1, "kind": "coll", "rank": 0, "seq": 8, "ended_ns": 9}
    incident.append("ops", done)
    incident.append(
        "launches",
        {"job": "j", "comm": 1, "rank": [0, 1, 1], "at_ns": [5, 5, 6]}
        | {"launched": [8, 6, 7], "completed": [8, 6, 6]},
    )
    assert frontier(incident) == [(0, 8, 8), (1, 7, 6)]


@pytest.mark.parametrize("why", ["disagree", "p2p"])
def test_counters_that_count_otherwise_are_not_believed(incident: Incident, why: str) -> None:
    incident.append("comms", {"job": "j", "comm": 1, "rank": [0, 1]})
    done = {"job": "j", "comm": 1, "kind": "coll", "rank": 0, "seq": 8, "ended_ns": 9}
    incident.append("ops", done)
    if why == "p2p":
        incident.append("ops", {"job": "j", "comm": 1, "kind": "p2p", "rank": 0, "seq": 1})
    launched = [9, 7] if why == "disagree" else [8, 7]
    incident.append("launches", {"job": "j", "comm": 1, "rank": [0, 1], "launched": launched})
    assert frontier(incident) == [(0, 8, 8), (1, None, None)]


def test_a_board_is_believed_where_the_ring_lost_operations(incident: Incident) -> None:
    """It counts collectives apart from Send and Recv, and as the operations are numbered."""
    incident.append("comms", {"job": "j", "comm": 1, "rank": [0, 1]})
    done = {"job": "j", "comm": 1, "kind": "coll", "rank": 0, "seq": 8, "ended_ns": 9}
    incident.append("ops", done)
    incident.append("ops", done | {"kind": "p2p", "seq": 90})
    board = {"job": "j", "comm": 1, "source": "board"}
    incident.append(
        "launches",
        board
        | {"rank": [0, 0, 1], "at_ns": [5, 6, 6]}
        | {"launched": [8, 11, 7], "completed": [8, 10, 7]},
    )
    assert frontier(incident) == [(0, 11, 10), (1, 7, 7)]


def test_what_is_in_flight_at_several_seals_and_then_over_is_one_operation(
    incident: Incident,
) -> None:
    """Numbers of steps grow from row to row; the last row is the one that counts."""
    row = {"job": "j", "comm": 1, "kind": "coll", "rank": 0, "seq": 8, "enqueued_ns": 3}
    flying = {"observed_ns": [10, 20], "done": False, "sends": [1, 2]}
    incident.append("ops", row | flying)
    incident.append("ops", row | {"rank": 1} | flying)
    incident.append("ops", row | {"observed_ns": 25, "ended_ns": 25, "done": True, "sends": 4})
    incident.append("ops", row | {"kind": "p2p", "op": "Send", "comm_peer": [1, 2]} | flying)
    rows = found(incident, "in_flight", "kind, rank, sends, comm_peer")
    assert rows == [("coll", 1, 2, None), ("p2p", 0, 1, 1), ("p2p", 0, 2, 2)]
    assert frontier(incident) == [(0, 8, 8), (1, 8, 7)]


def test_where_no_profiler_tells_ends_what_was_called_is_not_open(incident: Incident) -> None:
    """Rank 0 has the shim alone, rank 1 the profiler too; rank 0's host is in its last call."""
    rows = {"job": "j", "comm": 1, "kind": "coll", "seq": [7, 8, 9], "enqueued_ns": [1, 2, 3]}
    incident.append("ops", rows | {"rank": 0, "observed_ns": [None, None, 90]})
    incident.append("ops", rows | {"rank": 1, "ended_ns": [2, 3, 4]})
    incident.append(
        "launches", {"job": "j", "comm": 1, "rank": [0, 1], "launched": 9, "source": "board"}
    )
    open_now = found(incident, "in_flight", "rank, seq, waited_ns")
    assert open_now == [(0, 9, 87)]


def test_members_are_those_reported_and_those_seen_acting(incident: Incident) -> None:
    incident.append("comms", {"job": "j", "comm": 1, "rank": [0, 0, 1], "role": ["tp", "tp", "tp"]})
    incident.append("ranks", {"job": "j", "rank": [0, 1, 2], "node": ["a", "b", "c"]})
    incident.append("ops", {"job": "j", "comm": 1, "rank": [1, 2, 2], "seq": [1, 1, 2]})
    incident.require(["members", "processes"])
    rows = incident.con.execute("SELECT rank, role, node FROM members ORDER BY ALL").fetchall()
    assert rows == [(0, "tp", "a"), (1, "tp", "b"), (2, None, "c")]


def test_a_process_is_observed_by_itself_and_its_host_by_any(incident: Incident) -> None:
    incident.append("ranks", {"job": "j", "rank": [0, 1, 2, 3], "node": ["a", "a", "b", None]})
    incident.append("ops", {"job": "j", "comm": 1, "rank": [0], "seq": 1})
    states = ["running", "unresponsive", "dead"]
    incident.append("launches", {"job": "j", "comm": 1, "rank": [4, 1, 2], "state": states})
    incident.append("recordings", {"job": "j", "rank": [3, 2], "problem": [None, "truncated"]})
    rows = found(incident, "processes", "rank, observed, node_observed")
    assert rows == [
        (0, True, True),
        (1, False, True),
        (2, False, False),
        (3, True, None),
        (4, True, None),
    ]


def test_communicators_without_a_profiler_do_not_hang_beside_those_with_one(
    incident: Incident,
) -> None:
    # On communicator 1 the profiler tells ends; on 2 only the calls are seen, and none is open.
    incident.append(
        "ops",
        {
            "job": "j",
            "comm": [1, 2, 2],
            "rank": 0,
            "seq": [1, 1, 2],
            "kind": "coll",
            "op": "AllReduce",
            "enqueued_ns": [10, 20, 30],
            "ended_ns": [15, None, None],
            "done": [True, None, None],
        },
    )
    incident.append(
        "launches",
        {"job": "j", "comm": [1, 2], "rank": 0, "launched": [1, 2], "source": "board"},
    )
    assert found(incident, "in_flight", "comm, seq") == []
