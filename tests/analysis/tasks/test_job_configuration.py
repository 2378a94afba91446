"""What a job's configuration is: stated, inferred, and contradicted."""

from __future__ import annotations

from typing import Any

from oncall.core.training import parse_settings
from oncall.evidence.job_configuration import apply_training
from oncall_lab.pipeline.scenario import PipelineScenario
from oncall_lab.pipeline.simulation import simulate_pipeline

NOT_STATED = {"configuration_stated": False, "roles_recorded": False}


def configuration(settings: str | None = None, **change: Any) -> dict[str, Any]:
    incident, _ = simulate_pipeline(PipelineScenario(iterations=4, **change))
    with incident:
        if settings:
            apply_training(incident, parse_settings(settings))
        incident.require(["job_configuration"])
        found = incident.con.execute("FROM job_configuration")
        names = [column[0] for column in found.description]
        (row,) = found.fetchall()
    return dict(zip(names, row, strict=True))


def test_what_is_reported_and_seen_agrees() -> None:
    found = configuration()
    assert (found["tp"], found["pp"], found["dp"], found["micro_batches"]) == (2, 4, 2, 8)
    assert found["is_stated"]
    assert found["contradicted"] is None


def test_what_nobody_reported_is_inferred() -> None:
    found = configuration(**NOT_STATED)
    assert (found["tp"], found["pp"], found["dp"], found["micro_batches"]) == (2, 4, 2, 8)
    assert found["schedule"] == "1F1B"
    assert not found["is_stated"]
    assert "micro_batches 8: forwards in an iteration" in found["inferred"]


def test_what_the_recording_contradicts_is_named() -> None:
    found = configuration("micro_batches=16,tp=4")
    assert "micro_batches 16, but forwards in an iteration: 8" in found["contradicted"]
    assert "tp 4" in found["contradicted"]


def test_a_ramp_of_micro_batches_contradicts_nothing() -> None:
    found = configuration(micro_batches_from=4, ramp_every=2)
    assert found["contradicted"] is None


def test_a_schedule_is_inferred_with_what_tells_it() -> None:
    found = configuration(schedule="GPipe", **NOT_STATED)
    assert found["schedule"] == "GPipe"
    assert "schedule GPipe: all forwards come before the first backward" in found["inferred"]
    found = configuration(schedule="interleaved", chunks=2, tp=1, **NOT_STATED)
    assert (found["schedule"], found["chunks"], found["micro_batches"]) == ("interleaved", 2, 8)
    assert "chunks 2: " in found["inferred"]


def test_a_schedule_that_ranks_do_not_follow_is_named() -> None:
    found = configuration("pp=4,schedule=GPipe", tp=1, **NOT_STATED)
    assert found["contradicted"].startswith("schedule GPipe, but before the first backward come as")


def test_a_schedule_that_several_explain_is_not_reported() -> None:
    """Of stage 1 alone: GPipe of 8 micro-batches and interleaved of 4 look the same."""
    change: dict[str, Any] = {"gpus_per_node": 2, "tp": 2, "dp": 1, "missing_nodes": (0, 2, 3)}
    scenario = PipelineScenario(iterations=4, schedule="GPipe", **change, **NOT_STATED)
    incident, _ = simulate_pipeline(scenario)
    with incident:
        incident.require(["job_configuration"])
        schedules = incident.con.execute("SELECT schedule FROM job_configuration").fetchall()
    assert schedules == [(None,)]
