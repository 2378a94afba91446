"""How long the transfers of each group took, without the waits."""

from __future__ import annotations

import numpy as np

from oncall.analysis.lost_time.iterations import Iterations
from oncall.analysis.lost_time.limits import Limits
from oncall.analysis.lost_time.moments import numbered
from oncall.analysis.lost_time.programs import NONE, Programs, Times


def taken(programs: Programs, iterations: Iterations, limits: Limits) -> Times:
    """How long the collectives of each group took in each iteration (s, comms), ns, once their
    last member was there; NaN where nearly all members did not record one."""
    chosen = (iterations.number != NONE) & ~programs.batch & np.isfinite(programs.duration_ns)
    node = np.flatnonzero(chosen)
    of = numbered(programs.comm[node], programs.seq[node])
    _, first, members = np.unique(of, return_index=True, return_counts=True)
    took_ns = np.full(len(first), np.inf)
    np.minimum.at(took_ns, of, programs.duration_ns[node])
    one = node[first]
    whole = members >= limits.nearly_all * programs.sizes[programs.comm[one]]
    shape = (len(iterations.begin_ns), len(programs.members))
    place = (iterations.number[one] * shape[1] + programs.comm[one])[whole]
    total = np.bincount(place, took_ns[whole], shape[0] * shape[1])
    seen = np.bincount(place, minlength=shape[0] * shape[1]) > 0
    return np.where(seen, total, np.nan).reshape(shape)
