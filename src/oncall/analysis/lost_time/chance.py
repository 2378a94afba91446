"""Whether chance alone explains how often a rank is late, or slow."""

from __future__ import annotations

from collections.abc import Sequence
from math import exp, lgamma, log, log1p

import numpy as np

from oncall.analysis.lost_time.limits import Limits
from oncall.analysis.lost_time.programs import Flags, Times


def by_turns(mine: Times, worst: Times, of: float, limits: Limits) -> bool:
    """Whether chance explains how often a rank is the worst one. Where samples differ in length, or
    hosts are busy with something else, each rank is as late as that by turns.

    `mine` (n,) is the share of iterations that the rank costs, `worst` (s,) that of the worst rank
    of each; `of` is the number of ranks (or of blocks of them).
    """
    costly = mine[mine >= limits.least_gain]
    if not len(costly):
        return True
    much = max(limits.least_gain, float(np.median(costly)) / 2)
    times = int((mine >= much).sum())
    turns = max(times, int((worst >= much).sum()))
    return at_least(times, turns, 1 / of) > limits.by_chance / of


def at_least(number: int, of: int, part: float) -> float:
    """How likely it is that what comes by turns comes so often (binomial). In logarithms: the
    coefficients of a thousand iterations exceed a float."""
    if part >= 1:  # too few others were recorded to compare with
        return 1.0

    def log_chance(k: int) -> float:
        ways = lgamma(of + 1) - lgamma(k + 1) - lgamma(of - k + 1)
        return ways + k * log(part) + (of - k) * log1p(-part)

    return sum(exp(log_chance(k)) for k in range(number, of + 1))


def counts_alone(lost_ns: float, length_ns: Times, limits: Limits) -> bool:
    """Whether one iteration lost as much as if all of them (s,) were a little longer."""
    iterations = max(len(length_ns), limits.few)
    return bool(lost_ns >= limits.least_gain * iterations * length_ns.mean())


def is_duty(
    ranks: Sequence[int], share: float, late: Flags, limits: Limits, always: bool = False
) -> bool:
    """Whether rank 0 may be late because it logs and saves for all others: it alone, in one
    iteration, or by a small `share` of them and in fewer than half of those (s,) from the first to
    the last, in order of time; or `always`."""
    at = np.flatnonzero(late)
    seldom = bool(len(at) and 2 * len(at) < at[-1] - at[0] + 1)
    small = share < limits.large and (seldom or always)
    return tuple(ranks) == (0,) and (len(at) == 1 or small)
