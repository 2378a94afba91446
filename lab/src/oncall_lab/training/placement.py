"""Where a job's ranks run: in order, unless a communication pattern error (TFD) moves them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from oncall_lab.training.scenario import TrainingScenario

Ints = NDArray[np.int64]


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
