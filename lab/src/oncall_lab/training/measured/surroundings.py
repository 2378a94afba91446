"""What surrounds a training: machines, their condition under faults, and what is measured."""

from __future__ import annotations

from oncall.evidence.incident import Incident
from oncall_lab.recording import NodeClocks
from oncall_lab.training.cluster import Cluster
from oncall_lab.training.fault import TrainingFault
from oncall_lab.training.measured.benign import befall
from oncall_lab.training.measured.case import Blame, Case
from oncall_lab.training.measured.condition import Condition
from oncall_lab.training.measured.faults import AFFLICT
from oncall_lab.training.measured.machine import fleet_of
from oncall_lab.training.measured.pace import Paces
from oncall_lab.training.measured.record import Recording
from oncall_lab.training.play import Played
from oncall_lab.training.scenario import TrainingScenario


class Surroundings:
    """The machines of a scenario with all that befalls them. `blame`: devices by fault."""

    def __init__(self, scenario: TrainingScenario, cluster: Cluster) -> None:
        self.scenario = scenario
        self.fleet = fleet_of(scenario, cluster)
        self.condition = Condition(self.fleet.world_size, self.fleet.nodes)
        self.blame: dict[TrainingFault, tuple[Blame, ...]] = {}
        befall(self.condition, self.fleet, scenario, scenario.rng("benign"))
        for number, fault in enumerate(scenario.faults):
            if fault.is_measured:
                rng = scenario.rng(f"condition {number}")
                until_ns = float(scenario.duration_ns)
                case = Case(fault, cluster, self.fleet, self.condition, rng, until_ns)
                AFFLICT[fault.kind](case)
                self.blame[fault] = tuple(case.blame)
        self.paces = Paces(self.condition, self.fleet, scenario.rng("step delays"))

    def write(self, played: Played, clocks: NodeClocks, incident: Incident) -> None:
        """Everything that was measured, into the incident."""
        Recording(
            self.scenario, played, self.condition, self.fleet, clocks, incident, self.paces
        ).write()
