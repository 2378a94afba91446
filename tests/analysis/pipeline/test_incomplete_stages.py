"""Algorithm 1 on simulated hangs: the stage, the task and the rank; and what is no hang."""

from __future__ import annotations

from typing import Any

import pytest
from tests.sql import found

from oncall.evidence import Incident
from oncall_lab.pipeline import PipelineFault, PipelineScenario, simulate_pipeline


def stopped(task: str, **fields: Any) -> Incident:
    fault = PipelineFault(kind="hang", rank=9, iteration=5, task=task, micro_batch=3)
    scenario = PipelineScenario(seed=3, iterations=8, faults=(fault,), **fields)
    incident, _ = simulate_pipeline(scenario)
    incident.require(["incomplete_stages"])
    return incident


@pytest.mark.parametrize("task", ["backward", "forward_send"])
def test_the_first_task_that_does_not_end_is_named(task: str) -> None:
    with stopped(task) as incident:
        first = incident.con.execute(
            """SELECT rank, stage, micro_batch, task, network, silent_ns > 2 * baseline_ns
            FROM incomplete_stages WHERE first"""
        ).fetchall()
        kind, _, sends = task.partition("_")
        assert first == [(9, 2, 3, kind, bool(sends), True)]


def test_the_others_are_reported_with_what_they_wait_in() -> None:
    with stopped("forward") as incident:
        columns = "rank, stage, micro_batch, task, network"
        first = found(incident, "incomplete_stages", columns, "first")
        assert first == [(9, 2, 3, "forward", False)]
        waits = incident.con.execute(
            """SELECT stage, waits_in FROM incomplete_stages WHERE NOT first AND replica = 0
            ORDER BY stage"""
        ).fetchall()
        assert waits == [
            (0, "Recv from stage 1"),
            (1, "Recv from stage 2"),
            (3, "Recv from stage 2"),
        ]


def test_a_training_that_ends_has_no_stage_that_waits() -> None:
    incident, _ = simulate_pipeline(PipelineScenario(seed=3, iterations=4))
    with incident:
        incident.require(["incomplete_stages"])
        assert incident.con.execute("FROM incomplete_stages WHERE first").fetchall() == []
