"""Whom the others wait for: what can be said of time where nothing can be replayed.

In a collective all members end together, so who was in it the shortest came last, and the others
waited for it. That needs no clocks, and does not ask how many streams there are or how far hosts
are ahead. Of calls alone it is the last to call, where hosts wait. A rank that came late because it
had waited for someone else was in that other call for long: over all its groups the two cancel. So
a rank's lateness, summed over all calls of an iteration, is lost time of its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from oncall.analysis.lost_time.iterations import Iterations
from oncall.analysis.lost_time.limits import Limits
from oncall.analysis.lost_time.matching import matched
from oncall.analysis.lost_time.measured import quantile
from oncall.analysis.lost_time.moments import Moments
from oncall.analysis.lost_time.places import places_of
from oncall.analysis.lost_time.programs import ABSENT, NONE, Ints, Programs, Times


@dataclass(frozen=True)
class Lateness:
    """By how much each of the `ranks` (r,) was late by itself in each iteration (s, r), ns against
    the median rank; NaN where not recorded whole. `iterations` say when and how long. `timed`:
    from durations. `of_all`: iterations are those of all ranks, not of one group each. `by`: the
    others' "waits" in calls, or "delays" of hosts, which devices may make up for. `compared`: most
    ranks were, with others at the same place of their pipelines."""

    late_ns: Times
    ranks: Ints
    iterations: Iterations
    timed: bool
    of_all: bool = True
    by: Literal["waits", "delays"] = "waits"
    compared: bool = True

    @property
    def share(self) -> Times:
        """The lateness as a share of each iteration (s, r)."""
        return self.late_ns / self.iterations.length_ns[:, None]

    def leaves_open(self, limits: Limits) -> bool:
        """Whether some rank is clearly late in most iterations, whoever stands out."""
        return bool((quantile(self.share, 0.25, 0) >= limits.stands_out * limits.least_gain).any())


def lateness_of(
    programs: Programs, iterations: Iterations, moments: Moments, limits: Limits
) -> Lateness:
    """The lateness of all ranks."""
    number = iterations.number
    inside = number != NONE
    late = _in_collectives(programs, moments) + _in_batches(programs, number, moments)
    late = np.where(inside, np.nan_to_num(late), 0.0)
    late_ns = _summed(programs, iterations, late, place := places_of(programs, iterations))
    of_all = float((iterations.program != 0).mean()) >= limits.mostly
    seen = np.isfinite(late_ns).any(0)
    peers = np.bincount(place[seen], minlength=int(place.max()) + 1)[place]
    compared = float((seen & (peers > 1)).mean()) >= limits.mostly
    return Lateness(
        late_ns,
        programs.ranks,
        iterations,
        moments.timed,
        of_all,
        compared=compared,
    )


def _summed(programs: Programs, iterations: Iterations, late: Times, place: Ints) -> Times:
    """The lateness of each rank in each iteration (s, r), against that of the median rank, less
    what those at its place (r,) mostly have: a stage of a pipeline waits by its place."""
    inside = iterations.number != NONE
    shape = (len(iterations.begin_ns), len(programs.ranks))
    flat = iterations.number[inside] * shape[1] + programs.rank[inside]
    total = np.bincount(flat, late[inside], shape[0] * shape[1]).reshape(shape)
    found: Times = np.where(iterations.program != 0, total, np.nan)
    absent = programs.parts.node[programs.parts.peer <= ABSENT]
    found[:, programs.rank[absent]] = np.nan  # they may have waited for it
    found -= quantile(found, 0.5, 1)[:, None]
    for one in np.unique(place) if place.any() else []:
        mine = place == one
        found[:, mine] -= quantile(quantile(found[:, mine], 0.5, 1), 0.5, 0)
    return found


def _in_collectives(programs: Programs, moments: Moments) -> Times:
    """By how much earlier than the last member each rank came (n,), below 0."""
    found = np.zeros(len(programs.rank))
    at = np.flatnonzero(~programs.batch & moments.shown)
    if not len(at):
        return found
    key = programs.comm[at] * (1 << 44) + programs.seq[at]
    order = np.lexsort((moments.came_ns[at], key))
    at, key = at[order], key[order]
    start = np.flatnonzero(np.diff(key, prepend=-1))
    size = np.diff(start, append=len(key))
    last = moments.came_ns[at[start + size - 1]]
    found[at] = moments.came_ns[at] - np.repeat(last, size)
    return found


def _in_batches(programs: Programs, number: Ints, moments: Moments) -> Times:
    """How long each batch of sends and receives waited for its other sides, below 0 (n,)."""
    found = np.zeros(len(programs.rank))
    if not moments.timed:
        return found
    sender, receiver = matched(programs, number)
    took = programs.duration_ns
    needed = np.fmin(took[sender], took[receiver])
    longest = np.full(len(found), -np.inf)
    for side in (sender, receiver):
        np.fmax.at(longest, side, needed)
    met = np.isfinite(longest) & np.isfinite(took)
    found[met] = longest[met] - took[met]
    return found
