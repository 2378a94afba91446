"""What a job's configuration is: told, inferred, and contradicted."""

from __future__ import annotations

from typing import Any

import oncall.analysis
from oncall.evidence.told import tell
from oncall.simulate.pipeline.scenario import PipelineScenario
from oncall.simulate.pipeline.simulation import simulate_pipeline
from oncall.training import parse_settings

assert oncall.analysis

UNTOLD = {"configuration_told": False, "roles_told": False}


def configuration(settings: str | None = None, **change: Any) -> dict[str, Any]:
    incident, _ = simulate_pipeline(PipelineScenario(iterations=4, **change))
    with incident:
        if settings:
            tell(incident, parse_settings(settings))
        incident.require(["job_configuration"])
        found = incident.con.execute("FROM job_configuration")
        names = [column[0] for column in found.description]
        (row,) = found.fetchall()
    return dict(zip(names, row, strict=True))


def test_what_is_told_and_seen_agrees() -> None:
    found = configuration()
    assert (found["tp"], found["pp"], found["dp"], found["micro_batches"]) == (2, 4, 2, 8)
    assert found["told"]
    assert found["contradicted"] is None


def test_what_nobody_told_is_inferred() -> None:
    found = configuration(**UNTOLD)
    assert (found["tp"], found["pp"], found["dp"], found["micro_batches"]) == (2, 4, 2, 8)
    assert found["schedule"] == "1F1B"
    assert not found["told"]
    assert "micro_batches 8: forwards in an iteration" in found["inferred"]


def test_what_the_recording_contradicts_is_named() -> None:
    found = configuration("micro_batches=16,tp=4")
    assert "micro_batches 16, but forwards in an iteration: 8" in found["contradicted"]
    assert "tp 4" in found["contradicted"]


def test_a_ramp_of_micro_batches_contradicts_nothing() -> None:
    found = configuration(micro_batches_from=4, ramp_every=2)
    assert found["contradicted"] is None
