"""How long each collective took once its last member was there: the transfer, without the waits."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from oncall.analysis.lost_time.limits import Limits
from oncall.analysis.lost_time.moments import numbered
from oncall.analysis.lost_time.programs import Flags, Ints, Programs, Times


@dataclass(frozen=True)
class Collectives:
    """Collectives (c,) with durations of nearly all members: how long each took, and one of its
    nodes; and all of their nodes (n,) with the collective of each."""

    took_ns: Times
    first: Ints
    node: Ints
    of: Ints


def collectives_of(programs: Programs, chosen: Flags, limits: Limits) -> Collectives:
    """The collectives among the chosen nodes."""
    node = np.flatnonzero(chosen & ~programs.batch & np.isfinite(programs.duration_ns))
    of = numbered(programs.comm[node], programs.seq[node])
    _, first, members = np.unique(of, return_index=True, return_counts=True)
    took_ns = np.full(len(first), np.inf)
    np.minimum.at(took_ns, of, programs.duration_ns[node])
    whole = members >= limits.most_ranks * programs.sizes[programs.comm[node[first]]]
    place, mine = np.cumsum(whole) - 1, whole[of]
    return Collectives(took_ns[whole], node[first[whole]], node[mine], place[of[mine]])
