"""A scenario made definite: who is where, which way each flow takes, and what is injected."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from oncall.core.errors import UsageError
from oncall_lab.network import faults
from oncall_lab.network.collective import Messages, messages_of
from oncall_lab.network.flow import Flow, Injected, Storm
from oncall_lab.network.routing import Path, balanced, meetings
from oncall_lab.network.scenario import NetworkScenario
from oncall_lab.network.topology import FatTree

SRC_PORTS = range(49152, 65536)


@dataclass(frozen=True)
class Plan:
    """`hosts` (members,); `routes` one way for each of `messages.pairs`."""

    tree: FatTree
    hosts: tuple[int, ...]
    messages: Messages
    routes: tuple[Path, ...]
    src_ports: tuple[int, ...]
    injected: tuple[Injected, ...]
    innocent: tuple[Flow, ...]

    @property
    def flows(self) -> tuple[Flow, ...]:
        """Flows of others."""
        return (*(flow for fault in self.injected for flow in fault.flows), *self.innocent)

    @property
    def storms(self) -> tuple[Storm, ...]:
        return tuple(storm for fault in self.injected for storm in fault.storms)


def plan(scenario: NetworkScenario) -> Plan:
    """Draw from the seed what the scenario leaves open.

    Raises UsageError if a fault finds no place, or the members' flows cannot but meet.
    """
    rng = np.random.default_rng([scenario.seed, 0x0F1E1D])
    tree = FatTree(scenario.fat_tree)
    algorithm = scenario.algorithm.upper()
    messages = messages_of(algorithm, scenario.op, scenario.world_size, scenario.step_bytes)
    steps = [messages.steps_of(flow) for flow in range(len(messages.pairs))]
    hosts, routes = _placed(scenario, tree, messages, steps, rng)
    src_ports = rng.choice(SRC_PORTS, len(routes), replace=False).tolist()
    place = faults.Place(scenario, tree, hosts, messages, routes, steps, rng)
    injected = []
    for fault in scenario.faults:
        brought, routes = faults.inject(fault, place)
        place = faults.Place(scenario, tree, hosts, messages, routes, steps, rng)
        injected.append(brought)
    innocent = faults.innocent(place, scenario.innocent)
    return Plan(tree, hosts, messages, routes, tuple(src_ports), tuple(injected), tuple(innocent))


def _placed(
    scenario: NetworkScenario,
    tree: FatTree,
    messages: Messages,
    steps: list[list[int]],
    rng: np.random.Generator,
) -> tuple[tuple[int, ...], tuple[Path, ...]]:
    """Where members run, and ways on which their flows do not meet."""
    for _ in range(1 if scenario.hosts else 50):
        drawn = rng.choice(tree.hosts, scenario.members, replace=False)
        packed = scenario.placement == "packed"
        hosts = scenario.hosts or tuple(sorted(drawn.tolist()) if packed else drawn.tolist())
        ends = [(hosts[src], hosts[dst]) for src, dst in messages.pairs]
        flows = [(*pair, when) for pair, when in zip(ends, steps, strict=True)]
        routes = balanced(tree, flows, rng)
        if not meetings(routes, steps):
            return hosts, tuple(routes)
    raise UsageError(
        "scenario: flows of the collective cannot but meet; name other `hosts` or more of the tree"
    )
