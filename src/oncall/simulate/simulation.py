"""Simulate a scenario: evidence as the recorders of a real cluster leave it, and the truth."""

from __future__ import annotations

import json
from pathlib import Path

from oncall.core.errors import UsageError
from oncall.evidence.incident import Incident
from oncall.simulate.cluster import build
from oncall.simulate.measured.surroundings import Surroundings
from oncall.simulate.recorder import EPOCH_NS, record
from oncall.simulate.scenario import Scenario
from oncall.simulate.shards import write_shards
from oncall.simulate.training import Training
from oncall.simulate.truth import Truth, truth_of


def simulate(scenario: Scenario) -> tuple[Incident, Truth]:
    """The incident and its truth; equal scenarios give equal evidence.

    Raises UsageError if none of the faults asked for comes to act, or nothing happens at all.
    """
    cluster = build(scenario)
    surroundings = Surroundings(scenario, cluster) if scenario.is_measured else None
    played = Training(scenario, cluster, surroundings.paces if surroundings else None).play()
    blame = surroundings.blame if surroundings else {}
    truth = truth_of(scenario, cluster, played, EPOCH_NS, blame)
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


def write(incident: Incident, truth: Truth, folder: Path, *, shards: bool = False) -> None:
    """`evidence.oncall`, or a data folder a node, and beside it `truth.json`.

    Raises UsageError if it cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if shards:
            write_shards(incident, folder)
        else:
            incident.save(folder / "evidence.oncall")
        text = json.dumps(truth.to_json(), indent=2) + "\n"
        (folder / "truth.json").write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"cannot write to {folder}: {error}") from error
