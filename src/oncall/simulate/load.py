"""Scenarios from files, of either kind: a training that is recorded, or one whose traffic is."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from oncall.evidence.incident import Incident
from oncall.simulate.scenario import Scenario, load_mapping
from oncall.simulate.simulation import simulate
from oncall.simulate.traffic import TrafficScenario, simulate_traffic
from oncall.simulate.truth import Truth


def load(path: Path) -> Scenario | TrafficScenario:
    """The scenario in a YAML file; one that names a `workload` is of traffic.

    Raises BadInput naming the file and the key or line.
    """

    def read(mapping: Mapping[str, Any]) -> Scenario | TrafficScenario:
        kind = TrafficScenario if "workload" in mapping else Scenario
        return kind.from_mapping(mapping)

    return load_mapping(path, read)


def run(scenario: Scenario | TrafficScenario) -> tuple[Incident, Truth]:
    """The incident and its truth. Raises UsageError if nothing comes of the scenario."""
    if isinstance(scenario, TrafficScenario):
        return simulate_traffic(scenario)
    return simulate(scenario)
