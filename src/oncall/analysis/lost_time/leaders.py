"""Who reads data for others: the first rank of a group broadcasts to it what it alone has loaded.

In Megatron-LM (`get_batch_on_this_tp_rank`) the first rank of each tensor group, in the stages that
need samples, runs the data loader. It comes later than its group by design; whether its loader is
slow, the leaders of other groups show.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from oncall.analysis.lost_time.graph import Graph
from oncall.analysis.lost_time.programs import Flags, Ints, Programs


def leaders_of(programs: Programs) -> Flags:
    """Whether each rank (r,) leads a group; nobody does where only one group has a leader."""
    found = np.zeros(len(programs.ranks), dtype=np.bool_)
    calls = _broadcasts(programs)[programs.op] & ~programs.batch
    for comm in np.unique(programs.comm[calls]):
        members = programs.members[int(comm)]
        if 1 < len(members) < len(found):
            found[members[0]] = True
    return found if found.sum() > 1 else np.zeros_like(found)


def broadcasts_of(programs: Programs, graph: Graph) -> Iterator[Ints]:
    """The nodes in which leaders broadcast to their groups (leaders, broadcasts): those of leaders
    whose calls are the same, together. Another stage loads at another time of its iteration."""
    rounds = graph.rounds
    chosen = _broadcasts(programs)[rounds.op] & (rounds.size > 1) & (rounds.size < graph.ranks)
    first = rounds.nodes[rounds.start[chosen]]
    first = np.sort(first[leaders_of(programs)[first // graph.width]])
    rank, begin, count = np.unique(first // graph.width, return_index=True, return_counts=True)
    for one in np.unique(graph.role[rank]):
        mine = graph.role[rank] == one
        yield first[begin[mine][:, None] + np.arange(count[mine][0])]


def _broadcasts(programs: Programs) -> Flags:
    """Whether each operation of `programs.ops` is one."""
    return np.array([name == "Broadcast" for name in programs.ops], dtype=np.bool_)
