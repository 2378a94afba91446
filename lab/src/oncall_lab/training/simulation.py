"""Simulate a training: evidence as the recorders of a real cluster leave it, and the truth."""

from __future__ import annotations

from oncall.core.errors import UsageError
from oncall.evidence.incident import Incident
from oncall_lab.training.cluster import build
from oncall_lab.training.measured.surroundings import Surroundings
from oncall_lab.training.play import Training
from oncall_lab.training.recorder import record
from oncall_lab.training.scenario import TrainingScenario
from oncall_lab.training.truth import truth_of_training
from oncall_lab.truth import Truth


def simulate_training(scenario: TrainingScenario) -> tuple[Incident, Truth]:
    """The incident and its truth; equal scenarios give equal evidence.

    Raises UsageError if none of the faults asked for comes to act, or nothing happens at all.
    """
    cluster = build(scenario)
    surroundings = Surroundings(scenario, cluster) if scenario.is_measured else None
    played = Training(scenario, cluster, surroundings.paces if surroundings else None).play()
    blame = surroundings.blame if surroundings else {}
    truth = truth_of_training(scenario, cluster, played, blame)
    if scenario.faults and not truth.faults:
        raise UsageError(
            "scenario: no fault came to act; is `at` within `duration`, "
            "and does the rank take part in the operation named by `in`?"
        )
    if not any((m.arrival_ns <= played.until_ns).any() for m in played.meetings):
        raise UsageError("scenario: `duration` ends before the first operation begins")
    incident, clocks = record(scenario, played)
    if surroundings:
        surroundings.write(played, clocks, incident)
    return incident, truth
