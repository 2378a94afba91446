"""A session tells iterations of a pipeline, under the time cursor too, and a task's calls."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from oncall.console.evidence_queries import GetPicture, GetStages, GetStageTask
from oncall.console.opening import open_recording
from oncall.console.queries import GetSnapshot
from oncall.console.replay import Replay
from oncall.console.session import Session
from oncall.core.errors import UsageError
from oncall_lab.pipeline import PipelineFault, PipelineScenario, simulate_pipeline


@pytest.fixture
def session(tmp_path: Path) -> Iterator[Session]:
    """Rank 4 (stage 2 of two pipelines) delays a backward of iteration 3."""
    fault = PipelineFault("delay", rank=4, iteration=3, task="backward", micro_batch=1,
                          delay_ns=400_000_000)  # fmt: skip
    scenario = PipelineScenario(
        tp=1, micro_batches=4, iterations=5, recorder="tasks", faults=(fault,)
    )
    incident, _ = simulate_pipeline(scenario)
    with incident:
        incident.save(tmp_path / "slow.oncall")
    opened = open_recording([tmp_path / "slow.oncall"], None)
    yield opened
    opened.close()


def test_a_slow_stage_is_drawn_as_its_report_draws_it(session: Session) -> None:
    findings = session.ask(GetSnapshot()).diagnosis.findings
    found = next(one for one in findings if one.picture == "timeline")
    drawn = session.ask(GetPicture(found.id))
    assert isinstance(drawn, tuple) and drawn[0].startswith("Iteration 3")
    assert any(line.startswith("▸") or "stage 2" in line for line in drawn)


def test_the_worst_iteration_and_those_beside_it(session: Session) -> None:
    session.ask(GetSnapshot())
    view = session.ask(GetStages())
    assert [one.iteration for one in view.iterations] == list(range(5))
    assert (view.timeline.iteration, view.timeline.replicas, view.pipelines) == (3, (0,), (0, 1))
    ((lane, box),) = view.timeline.blamed()
    assert view.timeline.lanes[lane].rank == 4
    card = session.ask(GetStageTask(4, 3, box))
    facts = [f"{label} {value}" for label, value in card.facts]
    assert any(fact.startswith("waits for backward 1 on stage 3, rank 6") for fact in facts)
    assert any(fact.startswith("waited for by backward 1 on stage 1, rank 2") for fact in facts)
    assert session.ask(GetStages(1, 1)).timeline.replicas == (1,)
    with pytest.raises(UsageError, match="no iteration 9"):
        session.ask(GetStages(9))


def test_of_a_hang_it_is_the_iteration_in_which_it_began(session: Session) -> None:
    """Though another lost more time."""
    snapshot = session.ask(GetSnapshot())
    second = session.ask(GetStages()).iterations[1]
    assert isinstance(session, Replay) and session.shown is not None
    [worst, *_] = snapshot.diagnosis.findings
    hang = replace(worst, fault_class="hang", at_ns=second.started_ns + 1000)
    shown = replace(snapshot, diagnosis=replace(snapshot.diagnosis, findings=(hang,)))
    session.shown.snapshot = shown
    assert session.ask(GetStages()).timeline.iteration == second.iteration
    assert session.ask(GetStages(3)).timeline.iteration == 3


def test_under_the_time_cursor_an_iteration_is_cut(session: Session) -> None:
    session.ask(GetSnapshot())
    view = session.ask(GetStages(3))
    ((_, box),) = view.timeline.blamed()
    assert box.ended_ns is not None
    session.ask(GetSnapshot(box.ended_ns - 100_000_000))
    cut = session.ask(GetStages(3, 0)).timeline
    assert cut.ended_ns is None
    lane = next(one for one in cut.lanes if one.rank == 4)
    assert lane.boxes[-1].task == "backward" and lane.boxes[-1].ended_ns is None
    with pytest.raises(UsageError, match="no iteration 4"):
        session.ask(GetStages(4))
