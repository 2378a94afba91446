"""Timelines of simulated incidents: the right iteration, pipeline and place, in text and SVG."""

from __future__ import annotations

from dataclasses import replace
from xml.etree import ElementTree

import pytest
from tests.findings import finding

from oncall.core.diagnosis import Blame, Coverage, Diagnosis
from oncall.core.errors import UsageError
from oncall.core.units import NS_PER_S
from oncall.evidence.incident import Incident
from oncall.render.svg.stages import timeline_svg
from oncall.render.text.drawings import drawings_of
from oncall.render.text.lines import plain_lines
from oncall.render.text.stages import timeline_lines
from oncall.views.stages.iterations import has_stages, iterations, timeline
from oncall_lab import TrainingFault, TrainingScenario, simulate
from oncall_lab.pipeline import PipelineFault

from .conftest import simulated


def test_the_slowest_iteration_is_drawn_with_the_pipeline_that_made_it_slow(
    delayed: Incident,
) -> None:
    drawn = timeline(delayed)
    assert (drawn.iteration, drawn.slow, drawn.pipelines, drawn.replicas) == (4, True, 2, (1,))
    ((lane, box),) = drawn.blamed()
    assert (drawn.lanes[lane].rank, drawn.lanes[lane].stage) == (5, 2)
    assert (box.task, box.micro_batch, box.critical) == ("backward", 1, True)
    assert box.duration_ns is not None and box.expected_ns is not None
    assert 390_000_000 < box.duration_ns - box.expected_ns < 410_000_000


def test_a_late_transfer_is_drawn_where_it_is_waited_for(held_up: Incident) -> None:
    drawn = timeline(held_up)
    ((lane, box),) = drawn.blamed()
    assert (drawn.lanes[lane].stage, box.task, box.micro_batch) == (3, "transfer", 2)
    text = "transfer of micro-batch 2 to stage 3, rank 7"
    assert any(text in line for line in plain_lines(timeline_lines(drawn, 120)))


def test_a_hang_is_drawn_where_it_began(hanging: Incident) -> None:
    drawn = timeline(hanging)
    assert (drawn.iteration, drawn.replicas, drawn.ended_ns) == (4, (1,), None)
    ((lane, box),) = drawn.blamed()
    assert (drawn.lanes[lane].rank, box.task, box.micro_batch, box.ended_ns) == (
        5, "forward", 2, None,
    )  # fmt: skip
    lines = plain_lines(timeline_lines(drawn, 80))
    assert "no progress for 5 min" in lines[0]
    (marked,) = (line for line in lines if line.startswith("▶ stage"))
    assert "stage 2 rank 5" in marked and "f2██" in marked and "█▶" in marked
    assert any(line.endswith("stage 2, rank 5 (gpu001): not finished") for line in lines)


def test_tasks_that_are_not_yet_labelled_are_no_hang() -> None:
    """Of a running job they are known up to the last seal, and calls up to now."""
    fault = PipelineFault("hang", rank=5, iteration=4, task="forward", micro_batch=2)
    with simulated(fault, recorder="hooks") as incident:
        incident.con.execute(
            "INSERT INTO ops BY NAME SELECT * REPLACE (seq + 1000 AS seq, "
            "(SELECT max(observed_ns) FROM ops) AS ended_ns) "
            "FROM ops WHERE ended_ns IS NOT NULL AND rank = 0 LIMIT 1"
        )
        drawn = timeline(incident)
    assert drawn.silent_ns is None
    assert drawn.iteration < 4


def test_a_rank_that_stopped_before_its_first_call_has_a_lane() -> None:
    """No task of it is recorded in the iteration: those that wait for it must not stand alone."""
    scenario = TrainingScenario(duration_ns=30 * NS_PER_S, pp=2, dp=2)
    with simulate(scenario)[0] as healthy:
        assert has_stages(healthy)
        ((job_ns,),) = healthy.con.execute("SELECT min(enqueued_ns) FROM ops").fetchall()
        at_ns = iterations(healthy)[9].started_ns + NS_PER_S // 50 - job_ns
    fault = TrainingFault("H1", (1,), at_ns=at_ns)
    with simulate(replace(scenario, faults=(fault,)))[0] as incident:
        drawn = timeline(incident)
        ((tasks,),) = incident.con.execute(
            "SELECT count(*) FROM stage_work WHERE rank = 1 AND iteration = ?", [drawn.iteration]
        ).fetchall()
    culprit, *others = drawn.lanes
    assert tasks == 0 and (culprit.rank, culprit.stage) == (1, 0)
    assert [(box.task, box.ended_ns, box.blamed) for box in culprit.boxes] == [
        ("forward", None, True)
    ]
    assert others and not any(lane.blamed for lane in others)


def test_pipelines_and_ranks_are_chosen(delayed: Incident) -> None:
    assert [lane.rank for lane in timeline(delayed, 4, [0]).lanes] == [0, 2, 4, 6]
    both = timeline(delayed, 3, [0, 1])
    assert [lane.rank for lane in both.lanes] == [0, 2, 4, 6, 1, 3, 5, 7]
    assert not both.slow and not both.blamed()
    with pytest.raises(UsageError, match="iteration 4 has no pipeline 9"):
        timeline(delayed, 4, [9])
    with pytest.raises(UsageError, match="no iteration 99; iterations are 0 to 5"):
        timeline(delayed, 99)


def test_a_stage_stands_for_its_tensor_group_unless_every_rank_is_wanted() -> None:
    with simulated(tp=2, dp=1) as incident:
        stages = timeline(incident, 3)
        assert [(lane.stage, lane.ranks) for lane in stages.lanes] == [(n, 2) for n in range(4)]
        every = timeline(incident, 3, every_rank=True)
        assert [lane.rank for lane in every.lanes] == list(range(8))
        # Of a tensor group the rank that decides is on the path, and no other.
        tasks = [(every.lanes[at].stage, box.task, box.micro_batch) for at, box in every.path()]
        assert tasks and len(tasks) == len(set(tasks))


def test_the_svg_is_well_formed_and_marks_who_is_blamed(delayed: Incident) -> None:
    drawn = timeline(delayed)
    root = ElementTree.fromstring(timeline_svg(drawn))
    texts = ["".join(one.itertext()) for one in root.iter("{http://www.w3.org/2000/svg}text")]
    assert (
        sum(text.startswith("Blamed: backward of micro-batch 1 on stage 2") for text in texts) == 1
    )
    boxes = [one for one in root.iter("{http://www.w3.org/2000/svg}rect") if len(one)]
    assert len(boxes) == sum(len(lane.boxes) for lane in drawn.lanes)


def test_a_finding_is_drawn_in_the_iteration_in_which_it_shows(delayed: Incident) -> None:
    blame = (Blame("rank", {"rank": 5, "node": "gpu001", "stage": 2}),)
    slow = finding(fault_class="slow", blame=blame, picture="timeline")
    diagnosis = Diagnosis("pipeline", None, None, Coverage(1, 1, 8, 8), (slow,))
    lines = drawings_of(delayed, diagnosis)["F1"]
    assert lines[0].startswith("Iteration 4, pipeline 1 of 0-1")
    assert any(line.startswith("▶ stage 2 rank 5") for line in lines)
    other = Diagnosis("pipeline", None, None, Coverage(1, 1, 8, 8), (replace(slow, picture=None),))
    assert drawings_of(delayed, other) == {}


def test_without_tasks_it_says_what_would_tell() -> None:
    with (
        Incident.empty() as nothing,
        pytest.raises(UsageError, match="no pipeline iterations found"),
    ):
        timeline(nothing)
