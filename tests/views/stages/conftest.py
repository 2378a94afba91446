"""Simulated pipelines of four stages, small and quick, for pictures."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from oncall.evidence.incident import Incident
from oncall_lab.pipeline import PipelineFault, PipelineScenario, simulate_pipeline


def simulated(*faults: PipelineFault, **settings: object) -> Incident:
    """Eight ranks on one node: four stages, two pipelines; a trainer that tells its tasks."""
    wanted = {"tp": 1, "micro_batches": 4, "iterations": 6, "recorder": "tasks"} | settings
    incident, _ = simulate_pipeline(PipelineScenario(faults=faults, **wanted))  # type: ignore[arg-type]
    return incident


@pytest.fixture(scope="package")
def delayed() -> Iterator[Incident]:
    """Rank 5 (stage 2 of pipeline 1) delays the backward of micro-batch 1 of iteration 4."""
    fault = PipelineFault("delay", rank=5, iteration=4, task="backward", micro_batch=1,
                          delay_ns=400_000_000)  # fmt: skip
    with simulated(fault) as incident:
        yield incident


@pytest.fixture(scope="package")
def grouped() -> Iterator[Incident]:
    """One pipeline, two tensor ranks a stage, of which now this one decides, now that one."""
    with simulated(tp=2, dp=1, recorder="hooks") as incident:
        yield incident


@pytest.fixture(scope="package")
def held_up() -> Iterator[Incident]:
    """What rank 5 sends forward of micro-batch 2 of iteration 4 arrives 400 ms late."""
    fault = PipelineFault("delay", rank=5, iteration=4, task="forward_send", micro_batch=2,
                          delay_ns=400_000_000)  # fmt: skip
    with simulated(fault) as incident:
        yield incident


@pytest.fixture(scope="package")
def hanging() -> Iterator[Incident]:
    """Rank 5 never ends the forward of micro-batch 2 of iteration 4."""
    fault = PipelineFault("hang", rank=5, iteration=4, task="forward", micro_batch=2)
    with simulated(fault, recorder="hooks") as incident:
        yield incident


@pytest.fixture(scope="package")
def torn() -> Iterator[Incident]:
    """What rank 5 sends forward of micro-batch 2 of iteration 4 never arrives."""
    fault = PipelineFault("hang", rank=5, iteration=4, task="forward_send", micro_batch=2)
    with simulated(fault, recorder="hooks") as incident:
        yield incident
