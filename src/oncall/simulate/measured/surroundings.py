"""What surrounds a training: machines, their condition under faults, and what is measured."""

from __future__ import annotations

from oncall.evidence.incident import Incident
from oncall.simulate.cluster import Cluster
from oncall.simulate.fault import Fault
from oncall.simulate.measured.benign import befall
from oncall.simulate.measured.case import Blame, Case
from oncall.simulate.measured.condition import Condition
from oncall.simulate.measured.faults import AFFLICT
from oncall.simulate.measured.machine import fleet_of
from oncall.simulate.measured.pace import Paces
from oncall.simulate.measured.record import ReadsClocks, Recording
from oncall.simulate.scenario import Scenario
from oncall.simulate.training import Played, rng_of


class Surroundings:
    """The machines of a scenario with all that befalls them. `blame`: devices by fault."""

    def __init__(self, scenario: Scenario, cluster: Cluster) -> None:
        self.scenario = scenario
        self.fleet = fleet_of(scenario, cluster)
        self.condition = Condition(self.fleet.world_size, self.fleet.nodes)
        self.blame: dict[Fault, tuple[Blame, ...]] = {}
        befall(self.condition, self.fleet, scenario, rng_of(scenario, "benign"))
        for number, fault in enumerate(scenario.faults):
            if fault.is_measured:
                rng = rng_of(scenario, f"condition {number}")
                until_ns = float(scenario.duration_ns)
                case = Case(fault, cluster, self.fleet, self.condition, rng, until_ns)
                AFFLICT[fault.kind](case)
                self.blame[fault] = tuple(case.blame)
        self.paces = Paces(self.condition, self.fleet, rng_of(scenario, "step delays"))

    def write(self, played: Played, clocks: ReadsClocks, incident: Incident) -> None:
        """Everything that was measured, into the incident."""
        Recording(
            self.scenario, played, self.condition, self.fleet, clocks, incident, self.paces
        ).write()
