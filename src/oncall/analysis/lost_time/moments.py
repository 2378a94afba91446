"""When ranks came to their calls, against one another: from durations, else from calls alone.

Members of a collective end together, so how long each was in it says when it came. Of calls alone,
clocks are put right by what all hosts do together: they leave a call in which they wait at once.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from oncall.analysis.lost_time.limits import Limits
from oncall.analysis.lost_time.measured import quantile
from oncall.analysis.lost_time.programs import Flags, Ints, Programs, Times


@dataclass(frozen=True)
class Moments:
    """When each rank came to each collective (n,), ns: to be compared among its members alone.
    `waits` (n,): calls in which hosts wait for the last member. `timed`: from durations, which
    show who waited whatever hosts do."""

    came_ns: Times
    waits: Flags
    timed: bool

    @property
    def shown(self) -> Flags:
        """Calls that show who waited for whom (n,)."""
        return np.isfinite(self.came_ns) & (self.waits | self.timed)


def moments_of(programs: Programs, limits: Limits, left: Flags | None = None) -> Moments:
    """The moments of all nodes. Of calls alone clocks are compared by when hosts go on from the
    calls `left` (n,), from any collective if None."""
    collective = ~programs.batch & (programs.seq >= 0)
    last = np.append(np.diff(programs.rank) != 0, True)
    call = programs.at_ns - programs.at_ns.min() if len(programs.at_ns) else programs.at_ns
    call = call.astype(np.float64)
    after = np.where(last, np.nan, np.roll(call, -1))
    timed = bool(np.isfinite(programs.duration_ns[collective]).mean() > limits.timed)
    if timed:
        came = np.where(collective, -programs.duration_ns, np.nan)
        over = after - call >= programs.duration_ns
    else:
        group = numbered(programs.comm * (1 << 44) + programs.seq)
        ahead = after - _middle(group, np.where(collective, after, np.nan))
        chosen = np.isfinite(ahead) & (collective if left is None else left)
        clock = _of_ranks(programs, ahead, chosen, limits.early)[programs.rank]
        came = np.where(collective, call - clock, np.nan)
        latest = np.full(group.max() + 1, -np.inf)
        np.fmax.at(latest, group, came)
        over = after - clock >= latest[group] - limits.exact
    kind = numbered(programs.op, programs.count, _sizes(programs))
    known = collective & ~last
    part = np.bincount(kind, over & known) / np.maximum(np.bincount(kind, known), 1)
    return Moments(came, collective & (part >= limits.most_ranks)[kind], timed)


def _sizes(programs: Programs) -> Ints:
    return np.array([len(line) for line in programs.members])[programs.comm]


def _of_ranks(programs: Programs, values: Times, chosen: Flags, share: float) -> Times:
    """A quantile of the chosen values of each rank (r,); 0 where there are none."""
    mine = np.flatnonzero(chosen)
    rank = programs.rank[mine]
    nth = np.arange(len(mine)) - np.searchsorted(rank, rank)
    found = np.full((len(programs.ranks), int(nth.max(initial=0)) + 1), np.nan)
    found[rank, nth] = values[mine]
    return np.nan_to_num(quantile(found, share, 1))


def _middle(group: Ints, values: Times) -> Times:
    """Of each value (n,) the median of its group, of two the less."""
    order = np.lexsort((values, group))  # NaN last
    start = np.flatnonzero(np.diff(group[order], prepend=-1))
    size = np.diff(start, append=len(group))
    known = np.add.reduceat(np.isfinite(values[order]), start)
    middle = values[order][start + np.maximum(known - 1, 0) // 2]
    found = np.empty(len(values))
    found[order] = np.repeat(middle, size)
    return found


def numbered(*columns: Ints) -> Ints:
    """A number for each combination of values (n,)."""
    return np.asarray(np.unique(np.stack(columns), axis=1, return_inverse=True)[1].ravel())
