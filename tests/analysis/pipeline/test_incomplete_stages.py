"""Algorithm 1 on simulated hangs: the stage, the task and the rank; and what is no hang."""

from __future__ import annotations

import pytest
from tests.sql import found

from oncall_lab.pipeline import PipelineFault, PipelineScenario, simulate_pipeline


@pytest.mark.parametrize("task", ["forward", "backward", "forward_send"])
def test_the_first_task_that_does_not_end_is_named_and_what_the_others_wait_in(task: str) -> None:
    fault = PipelineFault(kind="hang", rank=9, iteration=3, task=task, micro_batch=3)
    scenario = PipelineScenario(seed=3, iterations=5, layers=4, micro_batches=8, faults=(fault,))
    kind, _, sends = task.partition("_")
    with simulate_pipeline(scenario)[0] as incident:
        columns = "rank, stage, micro_batch, task, network, silent_ns > 2 * baseline_ns"
        first = found(incident, "incomplete_stages", columns, "first")
        assert first == [(9, 2, 3, kind, bool(sends), True)]
        others = "NOT first AND replica = 0"
        assert found(incident, "incomplete_stages", "stage, waits_in", others) == [
            (0, "Recv from stage 1"),
            (1, "Recv from stage 2"),
            (3, "Recv from stage 2"),
        ]


def test_a_training_that_ends_has_no_stage_that_waits() -> None:
    incident, _ = simulate_pipeline(PipelineScenario(seed=3, iterations=4))
    with incident:
        incident.require(["incomplete_stages"])
        assert incident.con.execute("FROM incomplete_stages WHERE first").fetchall() == []
