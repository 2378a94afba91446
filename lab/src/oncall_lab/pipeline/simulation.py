"""Simulate a scenario of a pipeline: the evidence, and the truth."""

from __future__ import annotations

from oncall.evidence.incident import Incident
from oncall_lab.pipeline.play import play
from oncall_lab.pipeline.record import record
from oncall_lab.pipeline.scenario import PipelineScenario
from oncall_lab.pipeline.truth import truth_of_pipeline
from oncall_lab.truth import Truth


def simulate_pipeline(scenario: PipelineScenario) -> tuple[Incident, Truth]:
    """The incident and its truth; equal scenarios give equal rows.

    A fault that comes after another one has stopped the job is `unstruck`.
    """
    played = play(scenario)
    return record(scenario, played), truth_of_pipeline(scenario, played)
