"""The trace graph of a played job: order, slack, critical path, clocks."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from oncall.evidence import Incident
from oncall.views.stages.trace import EDGES

MS = 1_000_000
Play = Callable[..., Incident]


def graph_of(incident: Incident, where: str = "true") -> list[tuple[object, ...]]:
    incident.require(["stage_graph"])
    return incident.con.execute(
        f"""SELECT stage, micro_batch, task, round(slack_ns / 1e6), critical FROM stage_graph
        WHERE iteration = 3 AND {where} ORDER BY ALL"""
    ).fetchall()


def test_the_path_runs_through_the_delayed_task(played: Play) -> None:
    delayed = (3, 0, 2, 3, "forward")
    incident = played(delays={delayed: 300 * MS})
    ((*_, slack, critical),) = graph_of(
        incident, "stage = 2 AND micro_batch = 3 AND task = 'forward'"
    )
    assert critical and slack == 0
    incident.require(["training_iterations"])
    slow = incident.con.execute("SELECT iteration FROM training_iterations WHERE slow").fetchall()
    assert slow == [(3,)]


def test_a_delay_within_the_slack_is_not_on_the_path(played: Play) -> None:
    """The last warm-up forward of the first stage is needed long after it could begin."""
    calm = played(jitter=0.0)
    ((*_, slack, critical),) = graph_of(calm, "stage = 0 AND micro_batch = 3 AND task = 'forward'")
    assert not critical
    assert isinstance(slack, float) and slack > 50
    late = played(jitter=0.0, delays={(3, 0, 0, 3, "forward"): 50 * MS})
    ((*_, left, critical),) = graph_of(late, "stage = 0 AND micro_batch = 3 AND task = 'forward'")
    assert not critical and left == slack - 50
    late.require(["training_iterations"])
    assert late.con.execute("FROM training_iterations WHERE slow").fetchall() == []


def test_clocks_that_differ_change_no_path(played: Play) -> None:
    delays = {(3, 0, 2, 3, "forward"): 300 * MS}
    alike = graph_of(played(delays=delays), "critical")
    assert graph_of(played(delays=delays, ahead={1: 40 * MS, 3: -70 * MS}), "critical") == alike


def test_every_task_waits_for_the_one_before_it_and_for_its_input(played: Play) -> None:
    incident = played(iterations=1, pp=2, micro_batches=2, forward=(MS, MS))
    incident.require(["stage_graph"])
    edges = incident.con.execute(
        f"""SELECT kind, a.stage, a.micro_batch, a.task, b.stage, b.micro_batch, b.task
        FROM {EDGES} e JOIN stage_graph a ON a.vertex = e.before
        JOIN stage_graph b ON b.vertex = e.vertex
        ORDER BY kind DESC, b.task DESC, b.stage, b.micro_batch"""
    ).fetchall()
    assert [edge[1:] for edge in edges if edge[0] == "send"] == [
        (0, 0, "forward", 1, 0, "forward"),
        (0, 1, "forward", 1, 1, "forward"),
        (1, 0, "backward", 0, 0, "backward"),
        (1, 1, "backward", 0, 1, "backward"),
    ]
    assert [edge[1:] for edge in edges if edge[0] == "program order"] == [
        (0, 0, "forward", 0, 1, "forward"),
        (1, 0, "backward", 1, 1, "forward"),
        (0, 1, "forward", 0, 0, "backward"),
        (0, 0, "backward", 0, 1, "backward"),
        (1, 0, "forward", 1, 0, "backward"),
        (1, 1, "forward", 1, 1, "backward"),
    ]


def test_a_transfer_that_takes_longer_is_the_links_not_the_tasks(played: Play) -> None:
    incident = played(links={(3, 0, 2, 0, "forward"): 500 * MS}, jitter=0.0)
    incident.require(["stage_graph"])
    ((latency, baseline, took, expected),) = incident.con.execute(
        """SELECT latency_ns, baseline_latency_ns, duration_ns, expected_ns FROM stage_graph
        WHERE iteration = 3 AND stage = 2 AND micro_batch = 0 AND task = 'forward'"""
    ).fetchall()
    assert (latency, baseline, took, expected) == (501 * MS, MS, 100 * MS, 100 * MS)


def test_a_long_sequence_is_longer_in_all_stages_and_expected_so(played: Play) -> None:
    incident = played(lengths={(3, 0, 5): 1.5}, jitter=0.0)
    incident.require(["stage_graph"])
    found = incident.con.execute(
        """SELECT DISTINCT work, duration_ns = round(expected_ns) FROM stage_graph
        WHERE iteration = 3 AND micro_batch = 5"""
    ).fetchall()
    assert found == [(1.5, True)]


def test_a_pipeline_slow_from_the_beginning_is_expected_to_be_as_the_others(played: Play) -> None:
    slow = {(i, 1, 1, m, "forward"): 60 * MS for i in range(8) for m in range(8)}
    incident = played(dp=3, delays=slow)
    incident.require(["stage_expectation"])
    found = incident.con.execute(
        """SELECT replica, stage, round(baseline_ns / 1e6) FROM stage_expectation
        WHERE basis = 'other pipelines' AND task = 'forward'"""
    ).fetchall()
    assert found == [(1, 1, 101.0)]


@pytest.mark.parametrize(("first_seq", "early"), [(1, [0, 1]), (41, [])])
def test_a_short_recording_from_the_jobs_start_begins_with_warm_up(
    played: Play, first_seq: int, early: list[int]
) -> None:
    incident = played(iterations=3)
    ranks = list(range(8))
    calls = {"job": "j", "comm": 1, "kind": "coll", "seq": first_seq, "enqueued_ns": 5}
    incident.append("ops", calls | {"rank": ranks})
    incident.require(["training_iterations"])
    found = incident.con.execute(
        "SELECT iteration FROM training_iterations WHERE warm_up ORDER BY iteration"
    ).fetchall()
    assert [iteration for (iteration,) in found] == early
