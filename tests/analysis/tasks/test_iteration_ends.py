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
REPLICAS = PipelineScenario(iterations=6, dp=4, pp=1, tp=1, layers=2, clock_offset_ns=0)
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


def test_a_checkpoint_is_a_pause_that_comes_with_calls_of_its_own() -> None:
    scenario = replace(SMALL, checkpoint_every=2, distributed_optimizer=False)
    true, found = recorded_ends(scenario), labelled(scenario)
    pauses = {key for key in true if key[2] == "checkpoint"}
    assert pauses
    assert {key for key in found if key[2] in ("checkpoint", "other")} == pauses
    assert_alike(found, true)


def test_recorders_that_tell_no_ends_tell_no_optimizer() -> None:
    found = labelled(replace(SMALL, recorder="calls"))
    assert {key[2] for key in found} == {"gradients", "parameters"}


@pytest.mark.parametrize(
    "change",
    [
        {},
        {"overlap_gradients": True, "distributed_optimizer": False},
        {"roles_recorded": False, "configuration_stated": False},
        {"checkpoint_every": 2},
    ],
    ids=["gradients at once", "gradients in buckets", "nothing stated", "checkpoints"],
)
def test_replicas_alone_have_iterations(change: dict[str, Any]) -> None:
    """The first is not whole: when it began was not seen."""
    scenario = replace(REPLICAS, **change)
    true = {
        (rank, iteration - 1, task): span
        for (rank, iteration, task), span in recorded_ends(scenario).items()
    }
    found = labelled(scenario)
    computed = {key for key in found if key[2] == "other"}
    assert computed == {(rank, iteration, "other") for rank in range(4) for iteration in range(5)}
    rest = {key: span for key, span in found.items() if key not in computed}
    if scenario.overlap_gradients:
        # Buckets are reduced while the backward runs; the trainer tells what comes after it.
        rest = {key: span for key, span in rest.items() if key[2] != "gradients"}
        true = {key: span for key, span in true.items() if key[2] != "gradients"}
    assert rest.keys() == true.keys()
    assert_alike(rest, true)


def test_iterations_of_replicas_are_counted_and_timed() -> None:
    incident, _ = simulate_pipeline(replace(REPLICAS, iterations=7))
    with incident:
        incident.require(["training_iterations"])
        rows = incident.con.execute(
            "SELECT iteration, whole, slow, baseline_ns FROM training_iterations ORDER BY iteration"
        ).fetchall()
    assert [row[:3] for row in rows] == [(n, n >= 0, False) for n in range(-1, 6)]
    # Eight micro-batches of 40 ms forward and 80 ms backward, and what comes behind them.
    assert 0.9 * 960 * _MILLISECOND < rows[-1][3] < 1.15 * 960 * _MILLISECOND
