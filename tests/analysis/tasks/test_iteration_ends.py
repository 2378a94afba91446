"""Gradients, optimizer, parameters and pauses: against what simulated trainers say of them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from oncall.evidence.incident import Incident
from oncall_lab.pipeline.scenario import PipelineScenario
from oncall_lab.pipeline.simulation import simulate_pipeline

SMALL = PipelineScenario(
    iterations=5, dp=2, pp=3, tp=1, layers=3, micro_batches=4, clock_offset_ns=0
)
_MILLISECOND = 10**6

Key = tuple[int, int, str]  # rank, iteration, task


def tasks(incident: Incident, table: str) -> dict[Key, tuple[int, int]]:
    rows = incident.con.execute(
        f"""SELECT rank, iteration, task, started_ns, ended_ns FROM {table}
        WHERE task IN ('gradients', 'parameters', 'optimizer', 'checkpoint', 'other')"""
    ).fetchall()
    return {(rank, iteration, task): (start, end) for rank, iteration, task, start, end in rows}


def labelled(scenario: PipelineScenario) -> dict[Key, tuple[int, int]]:
    incident, _ = simulate_pipeline(scenario)
    with incident:
        incident.require(["labelled_tasks"])
        return tasks(incident, "labelled_tasks")


def recorded_ends(scenario: PipelineScenario) -> dict[Key, tuple[int, int]]:
    incident, _ = simulate_pipeline(replace(scenario, recorder="tasks"))
    with incident:
        return tasks(incident, "stage_tasks")


def assert_alike(found: dict[Key, tuple[int, int]], true: dict[Key, tuple[int, int]]) -> None:
    for key, (started_ns, ended_ns) in found.items():
        # Where only the next forward follows, an optimizer ends at its baseline; warm-up takes
        # it twice as long.
        slack_ns = 40 * _MILLISECOND if key[2] in ("optimizer", "checkpoint") else _MILLISECOND
        assert abs(ended_ns - true[key][1]) <= slack_ns
        assert abs(started_ns - true[key][0]) <= slack_ns


@pytest.mark.parametrize(
    "change",
    [{}, {"roles_recorded": False, "configuration_stated": False, "pp": 1, "tp": 2}],
    ids=["a pipeline", "one stage, nothing stated"],
)
def test_the_ends_of_iterations_are_found(change: dict[str, Any]) -> None:
    scenario = replace(SMALL, **change)
    true, found = recorded_ends(scenario), labelled(scenario)
    assert found.keys() == true.keys()
    assert_alike(found, true)


def test_recorders_that_tell_no_ends_tell_no_optimizer() -> None:
    found = labelled(replace(SMALL, recorder="calls"))
    assert {key[2] for key in found} == {"gradients", "parameters"}
