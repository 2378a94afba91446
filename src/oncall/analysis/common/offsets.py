"""The offsets of ranks' clocks, from by how much they seem to be ahead in each of their groups.

Each group compares its members with one another and with nobody else. A rank that is late in
most of its groups is distinguished from a clock that is ahead by its `earliest` groups; but of
these a rank mostly has more within its host than across hosts, and then they say nothing of one
host's clock against another's. So offsets are also found for all ranks together, each group's own
one apart.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from oncall.analysis.common.ordering import Ints
from oncall.analysis.common.quantiles import quantile

Times = NDArray[np.float64]
_WEIGHED = 12  # times: offsets hardly change after fewer
_STEPS = 12  # towards each solution, which the next one begins at
_CONVERGED = 1e-12  # of the squares of all differences
_NOTHING = 1e-30  # to divide by
# From members (m,), their groups, by how much they seem ahead there, and the number of ranks.
Solver = Callable[[Ints, Ints, Times, int], Times]


def earliest(rank: Ints, _: Ints, ahead_ns: Times, ranks: int, *, share: float) -> Times:
    """The offset of each rank (r,), ns, 0 in the median: the quantile of its groups at this share.
    `rank` and `ahead_ns` as in `offsets_of`."""
    order = np.argsort(rank, kind="stable")
    place, values = rank[order], ahead_ns[order]
    nth = np.arange(len(place)) - np.searchsorted(place, place)
    found = np.full((ranks, int(nth.max(initial=0)) + 1), np.nan)
    found[place, nth] = values
    each = np.nan_to_num(quantile(found, share, 1))
    return np.asarray(each - np.median(each))


def offsets_of(rank: Ints, group: Ints, ahead_ns: Times, ranks: int, *, exact_ns: float) -> Times:
    """The offset of each of so many `ranks` (r,), ns, 0 in the median, from by how much members
    `rank` (m,) of `group` (m,) seem to be ahead beside the others of it, `ahead_ns` (m,).

    The least sum of absolute deviations, by weighing squares anew (IRLS); deviations below
    `exact_ns` count alike.
    """
    seats = rank, ranks + np.unique(group, return_inverse=True)[1]
    found = np.zeros(int(seats[1].max(initial=ranks - 1)) + 1)
    weight = np.ones(len(rank))
    for _ in range(_WEIGHED):
        found += _solved(seats, weight, ahead_ns - _across(seats, found), len(found))
        weight = 1 / np.maximum(np.abs(ahead_ns - _across(seats, found)), exact_ns)
    return np.asarray(found[:ranks] - np.median(found[:ranks]))


def _across(seats: tuple[Ints, Ints], values: Times) -> Times:
    """The rank's value less the group's, for each membership (m,)."""
    return np.asarray(values[seats[0]] - values[seats[1]])


def _solved(seats: tuple[Ints, Ints], weight: Times, wanted: Times, many: int) -> Times:
    """Values (n,), ranks' and then groups', whose differences across memberships are as `wanted`
    (m,), by weighted least squares: conjugate gradients, scaled."""

    def summed(values: Times) -> Times:
        rank, group = (np.bincount(side, values, many) for side in seats)
        return np.asarray(rank - group)

    scale = np.maximum(sum(np.bincount(side, weight, many) for side in seats), _NOTHING)
    found, rest = np.zeros(many), summed(weight * wanted)
    step = rest / scale
    size, least = float(rest @ step), _CONVERGED * float(weight @ wanted**2)
    for _ in range(_STEPS):
        if size <= least:
            break
        change = summed(weight * _across(seats, step))
        length = size / max(float(step @ change), _NOTHING)
        found += length * step
        rest -= length * change
        size, before = float(rest @ (rest / scale)), size
        step = rest / scale + size / before * step
    return found
