"""Scenarios of every kind, and what simulates each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from oncall.evidence.incident import Incident
from oncall_lab.jobs import JobScenario, simulate_job
from oncall_lab.network import NetworkScenario, simulate_network
from oncall_lab.pipeline import PipelineScenario, simulate_pipeline
from oncall_lab.scenario import Scenario, load_mapping
from oncall_lab.traffic import TrafficScenario, simulate_traffic
from oncall_lab.training.scenario import TrainingScenario
from oncall_lab.training.simulation import simulate_training
from oncall_lab.truth import Truth


@dataclass(frozen=True)
class Kind:
    """A kind of scenario; `key` is the field that tells its YAML from that of the others."""

    key: str
    scenario: type[Scenario]
    simulate: Callable[[Any], tuple[Incident, Truth]]


TRAINING = Kind("", TrainingScenario, simulate_training)
KINDS = (
    Kind("fat_tree", NetworkScenario, simulate_network),
    Kind("program", JobScenario, simulate_job),
    Kind("schedule", PipelineScenario, simulate_pipeline),
    Kind("workload", TrafficScenario, simulate_traffic),
    TRAINING,
)


def scenario_of(mapping: Mapping[str, Any]) -> Scenario:
    """The scenario that a mapping describes: a training, unless it has another kind's key.

    Raises UsageError naming the key that is wrong.
    """
    kind = next((kind for kind in KINDS if kind.key in mapping), TRAINING)
    return kind.scenario.from_mapping(mapping)


def load(path: Path) -> Scenario:
    """The scenario in a YAML file. Raises BadInput naming the file and the key or line."""
    return load_mapping(path, scenario_of)


def simulate(scenario: Scenario) -> tuple[Incident, Truth]:
    """The incident and its truth; equal scenarios give equal evidence.

    Raises UsageError if nothing comes of the scenario.
    """
    kind = next(kind for kind in KINDS if isinstance(scenario, kind.scenario))
    return kind.simulate(scenario)
