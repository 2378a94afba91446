"""Scenarios from files, of any kind: a training, its pipeline or traffic, or a network."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeAlias

from oncall.evidence.incident import Incident
from oncall.simulate.network import NetworkScenario, simulate_network
from oncall.simulate.pipeline import PipelineScenario, simulate_pipeline
from oncall.simulate.scenario import Scenario, load_mapping
from oncall.simulate.simulation import simulate
from oncall.simulate.traffic import TrafficScenario, simulate_traffic
from oncall.simulate.truth import Truth

AnyScenario: TypeAlias = Scenario | PipelineScenario | TrafficScenario | NetworkScenario


def scenario_of(mapping: Mapping[str, Any]) -> AnyScenario:
    """The scenario that a mapping tells; one that names a `schedule` is of a pipeline, one that
    names a `workload` of traffic, one that names a `fat_tree` of a network.

    Raises UsageError naming the key.
    """
    if "fat_tree" in mapping:
        return NetworkScenario.from_mapping(mapping)
    if "schedule" in mapping:
        return PipelineScenario.from_mapping(mapping)
    kind = TrafficScenario if "workload" in mapping else Scenario
    return kind.from_mapping(mapping)


def load(path: Path) -> AnyScenario:
    """The scenario in a YAML file. Raises BadInput naming the file and the key or line."""
    return load_mapping(path, scenario_of)


def run(scenario: AnyScenario) -> tuple[Incident, Truth]:
    """The incident and its truth. Raises UsageError if nothing comes of the scenario."""
    if isinstance(scenario, PipelineScenario):
        return simulate_pipeline(scenario)
    if isinstance(scenario, TrafficScenario):
        return simulate_traffic(scenario)
    if isinstance(scenario, NetworkScenario):
        return simulate_network(scenario)
    return simulate(scenario)
