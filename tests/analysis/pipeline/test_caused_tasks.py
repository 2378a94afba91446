"""Pipelines that share experts or context wait for one another: only the cause is named."""

from __future__ import annotations

from typing import Any

import pytest

from oncall_lab.pipeline import PipelineFault, PipelineScenario, simulate_pipeline


@pytest.mark.parametrize("shared", [{"ep": 2}, {"cp": 2, "dp": 1}])
@pytest.mark.parametrize("task", ["forward", "backward_send"])
def test_of_replicas_that_meet_inside_a_task_the_late_one_is_named(
    shared: dict[str, Any], task: str
) -> None:
    fault = PipelineFault("delay", 5, 6, task, micro_batch=3, delay_ns=10**9)
    scenario = PipelineScenario(recorder="tasks", iterations=9, faults=(fault,), **shared)
    incident, truth = simulate_pipeline(scenario)
    (reported,) = truth.faults
    with incident:
        incident.provide(["slow_stages", "slow_tasks"])
        rows = incident.con.execute("SELECT rank, iteration FROM slow_stages").fetchall()
        slow = incident.con.execute("SELECT DISTINCT iteration FROM slow_tasks").fetchall()
    assert reported.slowdown is not None
    assert reported.slowdown > 1.1
    assert {rank for rank, _ in rows} == {5}
    assert {iteration for _, iteration in rows} == {6}
    assert slow == [(6,)]


def test_who_waits_in_the_next_task_of_a_slow_one_is_not_named_beside_it() -> None:
    """The delay comes after the last exchange of its task: experts of other pipelines meet the late
    rank in the task after it."""
    fault = PipelineFault("delay", 12, 7, "backward", micro_batch=8, delay_ns=10**9)
    scenario = PipelineScenario(
        tp=4, pp=2, dp=4, ep=4, layers=2, micro_batches=12, iterations=9, faults=(fault,)
    )
    incident, _ = simulate_pipeline(scenario)
    with incident:
        incident.provide(["caused_tasks", "slow_tasks"])
        ours, all_slow = (
            incident.con.execute(
                f"SELECT DISTINCT replica, micro_batch, task FROM {name}"
            ).fetchall()
            for name in ("caused_tasks", "slow_tasks")
        )
    assert ours == [(3, 8, "backward")]
    assert len(all_slow) > 1


@pytest.mark.parametrize("shared", [{"ep": 2}, {"cp": 2, "dp": 1}])
def test_pipelines_that_meet_one_held_up_by_a_slow_link_wait_for_that_link(
    shared: dict[str, Any],
) -> None:
    """Rank 9 waits in each of its Sends; the pipeline that it shares experts or contexts with
    waits for it in the task after it."""
    fault = PipelineFault("link", 9, 6, factor=100.0)
    scenario = PipelineScenario(iterations=9, micro_batches=12, faults=(fault,), **shared)
    incident, _ = simulate_pipeline(scenario)
    with incident:
        incident.provide(["slow_stages", "slow_tasks"])
        culprits = incident.con.execute("SELECT DISTINCT rank, network FROM slow_stages").fetchall()
        replicas = incident.con.execute("SELECT DISTINCT replica FROM slow_tasks").fetchall()
        costs = incident.con.execute("SELECT DISTINCT replica FROM stage_costs").fetchall()
    assert culprits == [(9, True)]
    assert replicas == [(0,)]
    assert (1,) in costs
