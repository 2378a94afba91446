"""The cluster: which ranks form which communicators, on which nodes, over which links.

Global ranks run over tensor-parallel neighbours first, then data-parallel replicas, then
pipeline stages, as Megatron numbers them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oncall_lab.arrays import Bools, Ints
from oncall_lab.recording import comm_hash
from oncall_lab.training.scenario import TrainingScenario


@dataclass(frozen=True)
class Family:
    """Like groups that act in lockstep: G groups of n ranks each.

    For pipeline stages a group is a pair (this stage, the next) of a longer communicator.
    """

    role: str
    stage: int  # -1: across stages
    members: Ints  # (G, n) global ranks
    comms: NDArray[np.uint64]  # (G,)
    network: Bools  # (G,) does it cross nodes?
    world_size: int

    @property
    def size(self) -> int:
        return int(self.members.shape[1])

    @cached_property
    def _places(self) -> Ints:
        places = np.full(self.world_size, -1, dtype=np.int64)
        places[self.members.ravel()] = np.arange(self.members.size)
        return places

    def place(self, rank: int) -> tuple[int, int] | None:
        """(group, column) of a global rank, or None if it is no member."""
        flat = int(self._places[rank])
        return None if flat < 0 else divmod(flat, self.size)


@dataclass(frozen=True)
class Communicator:
    """A communicator with its name and members in order."""

    comm: int
    role: str
    name: str
    members: Ints


@dataclass(frozen=True)
class Cluster:
    """Ranks by (stage, replica, tensor) and every family of groups with two members or more."""

    grid: Ints  # (pp, dp, tp) global ranks
    nodes: Ints  # (ranks,) node index
    local: Ints  # (ranks,) GPU on its node
    nic_of: Ints  # (ranks,) the rank whose GPU's NIC it uses: its own, unless rails are crossed
    families: dict[tuple[str, int], Family]
    communicators: tuple[Communicator, ...]

    @property
    def world_size(self) -> int:
        return int(self.grid.size)

    def families_of(self, rank: int, role: str = "") -> list[Family]:
        return [
            family
            for family in self.families.values()
            if role in ("", family.role) and family.place(rank) is not None
        ]


def memberships(communicators: Sequence[Communicator]) -> dict[str, NDArray[Any]]:
    """The columns comm, rank, comm_rank and size: a row for each member of each communicator."""
    sizes = np.array([len(c.members) for c in communicators])
    return {
        "comm": np.repeat(np.array([c.comm for c in communicators], dtype=np.uint64), sizes),
        "rank": np.concatenate([c.members for c in communicators]),
        "comm_rank": np.concatenate([np.arange(size) for size in sizes]),
        "size": np.repeat(sizes, sizes),
    }


def build(scenario: TrainingScenario) -> Cluster:
    """Lay out the scenario's ranks and groups."""
    s = scenario
    grid = np.arange(s.world_size, dtype=np.int64).reshape(s.pp, s.dp, s.tp)
    places = place(s)
    nodes = places // s.gpus_per_node
    families: dict[tuple[str, int], Family] = {}
    communicators: list[Communicator] = []

    def add(role: str, stage: int, members: Ints) -> None:
        if members.shape[1] < 2:
            return
        known = sum(c.role == role for c in communicators)
        made = [_communicator(s, role, known + i, row) for i, row in enumerate(members)]
        communicators.extend(made)
        families[role, stage] = _family(role, stage, members, made, nodes)

    for stage in range(s.pp):
        add("tp", stage, grid[stage])
        add("dp", stage, grid[stage].T.copy())
        add("ep", stage, grid[stage].reshape(-1, s.ep))
    if s.pp > 1:
        chains = grid.reshape(s.pp, -1).T
        made = [_communicator(s, "pp", i, row) for i, row in enumerate(chains)]
        communicators.extend(made)
        for stage in range(s.pp - 1):
            pairs = chains[:, stage : stage + 2].copy()
            families["pp", stage] = _family("pp", stage, pairs, made, nodes)
    add("world", -1, grid.reshape(1, -1))
    local = places % s.gpus_per_node
    return Cluster(grid, nodes, local, nics(s, nodes, local), families, tuple(communicators))


def _family(role: str, stage: int, members: Ints, made: list[Communicator], nodes: Ints) -> Family:
    on = nodes[members]
    comms = np.array([c.comm for c in made], dtype=np.uint64)
    crosses: NDArray[Any] = (on != on[:, :1]).any(axis=1)
    return Family(role, stage, members, comms, crosses, len(nodes))


def _communicator(scenario: TrainingScenario, role: str, index: int, members: Ints) -> Communicator:
    text = f"{scenario.job}/{scenario.seed}/{role}/{members.tolist()}"
    name = role if role == "world" else f"{role}_{index}"
    return Communicator(comm_hash(text), role, name, members)


def place(scenario: TrainingScenario) -> Ints:
    """(ranks,): each rank's GPU, counted through all nodes.

    A tensor-parallel group that is `spread` has exchanged half of its GPUs with the group that
    lies as far away as can be; severity says for how many pairs of groups.
    """
    places = np.arange(scenario.world_size, dtype=np.int64)
    for fault in scenario.faults:
        if (fault.kind, fault.how) != ("PATTERN", "spread"):
            continue
        groups = places.reshape(-1, scenario.tp)
        number = len(groups)
        most = max(1, number // 2)
        first = fault.ranks[0] // scenario.tp
        half = scenario.tp // 2
        for pair in range(min(most, (1, 2, most)[fault.severity - 1])):
            one, other = (first + pair) % number, (first + pair + most) % number
            moved = groups[one, half:].copy()
            groups[one, half:] = groups[other, half:]
            groups[other, half:] = moved
        places = groups.reshape(-1)
    return places


def nics(scenario: TrainingScenario, nodes: Ints, local: Ints) -> Ints:
    """(ranks,): the rank whose GPU's NIC each rank uses.

    Where rails are crossed, each GPU of a node takes the NIC half a node further; severity says
    on how many nodes, from the fault's own on.
    """
    chosen = np.arange(scenario.world_size, dtype=np.int64)
    for fault in scenario.faults:
        if (fault.kind, fault.how) != ("PATTERN", "rails"):
            continue
        first, count = int(nodes[fault.ranks[0]]), scenario.nodes
        crossed = (1, max(1, count // 2), count)[fault.severity - 1]
        for step in range(crossed):
            ranks = np.flatnonzero(nodes == (first + step) % count)
            ranks = ranks[np.argsort(local[ranks])]
            chosen[ranks] = np.roll(ranks, -(len(ranks) // 2))
    return chosen
