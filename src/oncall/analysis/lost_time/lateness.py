"""Whom the others wait for: what can be said of time where nothing can be replayed.

In a collective all members end together, so who was in it the shortest came last, and the others
waited for it. That needs no clocks, and does not ask how many streams there are or how far hosts
are ahead. Of calls alone it is the last to call, where hosts wait. A rank that came late because it
had waited for someone else was in that other call for long: over all its groups the two cancel. So
a rank's lateness, summed over all calls of an iteration, is lost time of its own.

Where ranks compute on beside a call, one delay shows again in the next call of the group. How much
of it does is measured: what of its change from one iteration to the next is there again in the
next call. So with calls of several groups that a host makes at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from oncall.analysis.lost_time.iterations import Iterations
from oncall.analysis.lost_time.limits import Limits
from oncall.analysis.lost_time.measured import quantile
from oncall.analysis.lost_time.moments import Moments, numbered
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
    at_once, in_group = _pairs(programs, number, limits)
    late = late - _seen_before(programs, iterations, late, at_once)
    again = late - _seen_before(programs, iterations, late, in_group)
    place = places_of(programs, iterations)
    late_ns, again_ns = (_summed(programs, iterations, each, place) for each in (again, late))
    if _late_ranks(again_ns) < limits.fewer * _late_ranks(late_ns):
        late_ns = again_ns
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


def _late_ranks(late_ns: Times) -> float:
    """How many ranks would have to be as far from the median as the farthest one is. One cause
    should leave few: whoever only passes a delay on has waited for as long."""
    seen = np.maximum(np.isfinite(late_ns).sum(0), 1)  # of some ranks no iteration is whole
    late = np.abs(np.nansum(late_ns, 0) / seen)
    return float(late.sum() / max(late.max(initial=0.0), 1.0))


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


def matched(programs: Programs, number: Ints) -> tuple[Ints, Ints]:
    """The nodes of each send in an iteration (m,) and of its receive (m,): those between two ranks
    in their order."""
    parts = programs.parts
    mine = np.flatnonzero((number[parts.node] != NONE) & (parts.peer >= 0))
    node, peer, sends = parts.node[mine], parts.peer[mine], parts.sends[mine]
    rank, ranks = programs.rank[node], len(programs.ranks)
    pair = np.where(sends, rank * ranks + peer, peer * ranks + rank)
    pair += number[node] * ranks * ranks
    key = (pair * 2 + sends) << 12 | np.minimum(_nth(pair * 2 + sends), (1 << 12) - 1)
    out, into = np.flatnonzero(sends), np.flatnonzero(~sends)
    _, a, b = np.intersect1d(key[out] - (1 << 12), key[into], return_indices=True)
    return node[out[a]], node[into[b]]


def _nth(key: Ints) -> Ints:
    """How many equal keys come before each (n,)."""
    order = np.argsort(key, kind="stable")
    begins = np.diff(key[order], prepend=-1) != 0
    place = np.arange(len(key))
    found = np.empty(len(key), dtype=np.int64)
    found[order] = place - np.maximum.accumulate(np.where(begins, place, 0))
    return found


def _seen_before(
    programs: Programs, iterations: Iterations, late: Times, pairs: tuple[Ints, Ints]
) -> Times:
    """What of each lateness (n,) is that of the call before, its pair.

    How much that is shows in what changes from one iteration to the next: a rank that is slow
    before each of two calls is late in both as well, but not by a bit more whenever it is in one.
    """
    number = iterations.number
    found = np.zeros(len(late))
    before, now = pairs
    if not len(now):
        return found
    size = np.array([len(line) for line in programs.members])[programs.comm[now]]
    kind = numbered(programs.op[before], programs.op[now], size)
    place = numbered(kind, programs.rank[now], iterations.nth[now])
    order = np.lexsort((number[now], place))
    again = np.flatnonzero(np.diff(place[order]) == 0)
    x, y = (_changes(late[each][order], again) for each in (before, now))
    of = kind[order][again]
    kinds = int(kind.max()) + 1
    both, square = np.bincount(of, x * y, kinds), np.bincount(of, x * x, kinds)
    part = np.clip(both / np.maximum(square, 1.0), 0, 1)
    found[now] = part[kind] * late[before]
    return found


def _pairs(
    programs: Programs, number: Ints, limits: Limits
) -> tuple[tuple[Ints, Ints], tuple[Ints, Ints]]:
    """Calls before, and calls that a wait in them may show again in: made at once with the one
    before, and carried out on another stream; and of the others, the next of the same group."""
    at = np.flatnonzero(~programs.batch & (number != NONE))
    before, now = at[:-1], at[1:]
    same = programs.rank[before] == programs.rank[now]
    same &= programs.at_ns[now] - programs.at_ns[before] < limits.at_once
    same &= programs.comm[before] != programs.comm[now]
    at_once = before[same], now[same]
    at = at[np.lexsort((at, programs.comm[at], programs.rank[at]))]
    before, now = at[:-1], at[1:]
    same = (programs.rank[before] == programs.rank[now]) & (number[before] == number[now])
    same &= (programs.comm[before] == programs.comm[now]) & ~np.isin(now, at_once[1])
    return at_once, (before[same], now[same])


def _changes(values: Times, again: Ints) -> Times:
    """From each value to the one behind it; single large ones count no more."""
    change = np.diff(values)[again]
    most = float(np.quantile(np.abs(change), 0.9)) if len(change) else 0.0
    return np.asarray(np.clip(change, -most, most))
