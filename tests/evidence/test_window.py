"""Windows: one job, and the evidence as it stood at a moment."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.sql import rows

from oncall.core.errors import UsageError
from oncall.evidence import window
from oncall.evidence.incident import Incident


def three_ops(incident: Incident) -> None:
    """Rank 0: done at 20, done at 40, in flight since 50, seen at 90."""
    incident.append(
        "ops",
        {
            "job": "j",
            "comm": 1,
            "rank": 0,
            "kind": "coll",
            "seq": [1, 2, 3],
            "enqueued_ns": [10, 30, 50],
            "ended_ns": [20, 40, None],
            "done": [True, True, False],
            "sends": [5, 5, 2],
            "observed_ns": [None, None, 90],
        },
    )


def test_of_several_jobs_one_must_be_chosen(incident: Incident) -> None:
    three_ops(incident)
    incident.append("comms", {"job": "other", "comm": 9, "rank": 0})
    incident.append("nics", {"node": "a", "at_ns": 3})
    with pytest.raises(UsageError, match=r"2 jobs; choose one with --job: j, other"):
        window.keep_job(incident.con, None)
    with pytest.raises(UsageError, match=r"no evidence of job `x` here; it is of j, other"):
        window.keep_job(incident.con, "x")
    assert window.keep_job(incident.con, "other") == "other"
    assert [incident.rows(table) for table in ("ops", "comms", "nics")] == [0, 1, 1]


def test_evidence_without_a_job(incident: Incident) -> None:
    assert window.keep_job(incident.con, None) == ""
    with pytest.raises(UsageError, match="names no job"):
        window.keep_job(incident.con, "x")


def test_span_takes_every_instant(incident: Incident) -> None:
    assert window.span(incident.con) == (None, None)
    three_ops(incident)
    assert window.span(incident.con) == (10, 90)
    incident.append("gpus", {"node": "a", "at_ns": [3, 200]})
    incident.append("ranks", {"job": "j", "rank": 0, "started_ns": 1})
    assert window.span(incident.con) == (3, 200)


def test_a_task_that_ended_later_is_not_over_yet(incident: Incident) -> None:
    incident.append(
        "stage_tasks",
        {
            "job": "j",
            "rank": 0,
            "task": "forward",
            "micro_batch": [0, 1, 2],
            "started_ns": [10, 20, 40],
            "ended_ns": [20, 40, 60],
            "whole": True,
        },
    )
    window.cut_after(incident.con, 30)
    assert rows(
        incident, "SELECT micro_batch, ended_ns, whole FROM stage_tasks ORDER BY micro_batch"
    ) == [(0, 20, True), (1, None, False)]


def test_as_it_stood(incident: Incident) -> None:
    three_ops(incident)
    incident.append("nics", {"node": "a", "at_ns": [5, 60]})
    incident.append("stacks", {"job": "j", "rank": 0, "comm": 1, "kind": "coll", "seq": [2, 3]})
    incident.append("launches", {"job": "j", "rank": 0, "at_ns": [None, 9], "launched": [3, 1]})
    window.cut_after(incident.con, 35)
    found = rows(incident, "SELECT seq, ended_ns, done, sends, observed_ns FROM ops ORDER BY seq")
    assert found == [(1, 20, True, 5, None), (2, None, False, None, 35)]
    assert rows(incident, "SELECT at_ns FROM nics") == [(5,)]
    assert rows(incident, "SELECT seq FROM stacks") == [(2,)]
    assert rows(incident, "SELECT launched FROM launches") == [(1,)]


def test_the_last_part_keeps_where_everyone_stood(incident: Incident) -> None:
    three_ops(incident)
    incident.append(
        "ops",
        {
            "job": "j",
            "comm": 1,
            "rank": 1,
            "kind": "coll",
            "seq": [1, 2],
            "ended_ns": [20, 40],
            "done": True,
        },
    )
    incident.append("nics", {"node": "a", "at_ns": [5, 60]})
    window.cut_before(incident.con, 55)
    assert rows(incident, "SELECT rank, seq FROM ops ORDER BY ALL") == [(0, 3), (1, 2)]
    assert rows(incident, "SELECT at_ns FROM nics") == [(60,)]


@settings(max_examples=25, deadline=None)
@given(
    ends=st.lists(st.tuples(st.integers(0, 50), st.integers(1, 50), st.booleans()), min_size=1),
    until=st.integers(0, 120),
)
def test_nothing_is_later_than_the_cut(ends: list[tuple[int, int, bool]], until: int) -> None:
    with Incident.empty() as incident:
        incident.append(
            "ops",
            {
                "job": "j",
                "comm": 1,
                "rank": 0,
                "kind": "coll",
                "seq": list(range(len(ends))),
                "enqueued_ns": [start for start, _, _ in ends],
                "ended_ns": [start + length if done else None for start, length, done in ends],
                "done": [done for _, _, done in ends],
                "observed_ns": 120,
            },
        )
        window.cut_after(incident.con, until)
        last = window.span(incident.con)[1]
        assert last is None or last <= until
        assert incident.rows("ops") == sum(start <= until for start, _, _ in ends)
        finished = rows(incident, "SELECT count(*) FROM ops WHERE done")[0][0]
        assert finished == sum(done and start + length <= until for start, length, done in ends)


def test_readings_follow_the_window_and_devices_stay(incident: Incident) -> None:
    incident.append("devices", {"node": "a", "kind": "nic", "device": "n", "at_ns": 5})
    incident.append("nics", {"node": "a", "nic": "n", "at_ns": [10, 30, 90]})
    assert window.span(incident.con) == (10, 90)
    window.cut_after(incident.con, 60)
    window.cut_before(incident.con, 20)
    assert rows(incident, "SELECT at_ns FROM nics") == [(30,)]
    assert rows(incident, "SELECT device FROM devices") == [("n",)]
