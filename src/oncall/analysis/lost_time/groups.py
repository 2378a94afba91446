"""Who computes the same at the same time: the tensor-parallel group of each rank."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from oncall.analysis.lost_time.graph import Graph
from oncall.analysis.lost_time.leaders import broadcasts_of
from oncall.analysis.lost_time.limits import Limits
from oncall.analysis.lost_time.programs import NONE, Flags, Ints, Programs


@dataclass(frozen=True)
class Groups:
    """`group` (r,) is the number of each rank's tensor group, NONE without one: the communicator
    that it calls most, if all members do the same. `tight_rounds` (k,) are collectives of one.
    `ops` are names of operations. `broadcasts` as in `leaders.broadcasts_of`."""

    group: Ints
    tight_rounds: Flags
    ops: list[str]
    broadcasts: list[Ints]

    def mates(self, rank: int) -> Ints:
        """The others of its tensor group."""
        mine = self.group[rank]
        if mine == NONE:
            return np.zeros(0, dtype=np.int64)
        others = np.flatnonzero(self.group == mine)
        return np.asarray(others[others != rank])


def groups_of(programs: Programs, graph: Graph, limits: Limits) -> Groups:
    """The tensor groups of a class of segments."""
    rounds = graph.rounds
    exchange = np.array([name.startswith("AllToAll") for name in programs.ops], dtype=np.bool_)
    mine = ~exchange[rounds.op][rounds.of]
    rank, comm = rounds.nodes[mine] // graph.width, rounds.comm[rounds.of[mine]]
    both, calls = np.unique(rank << 32 | comm, return_counts=True)
    pairs = both >> 32, both & 0xFFFFFFFF
    uniform = {}
    for one in np.unique(comm):
        members = programs.members[int(one)]
        uniform[int(one)] = (
            1 < len(members) < graph.ranks and len(set(graph.role[members].tolist())) == 1
        )
    group = np.full(graph.ranks, NONE)
    order = np.lexsort((-pairs[1], -calls, pairs[0])) if len(calls) else np.zeros(0, np.int64)
    for at in order:
        one, used = int(pairs[0][at]), int(pairs[1][at])
        if group[one] == NONE and uniform[used] and calls[at] >= limits.busy * graph.length[one]:
            group[one] = used
    tight = np.zeros(len(rounds), dtype=np.bool_)
    if len(rounds):
        leader = rounds.nodes[rounds.start] // graph.width
        tight = group[leader] == rounds.comm
    broadcasts = list(broadcasts_of(programs, graph))
    return Groups(group, np.asarray(tight), programs.ops, broadcasts)
