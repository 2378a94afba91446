"""When ranks came to their calls, relative to one another: from durations, else from calls alone.

Members of a collective end together, so how long each was in it says when it came. Of calls alone,
clocks are put right by what all hosts do together: they leave a call in which they wait at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from itertools import pairwise

import numpy as np

from oncall.analysis.common.offsets import Solver, earliest, offsets_of
from oncall.analysis.common.quantiles import median_of_alike, quantile_of_alike
from oncall.analysis.lost_time.arrays import NONE, Flags, Ints, Times, numbered
from oncall.analysis.lost_time.limits import Limits
from oncall.analysis.lost_time.programs import Programs


@dataclass(frozen=True)
class Moments:
    """When each rank came to each collective (n,), ns: to be compared among its members alone.
    `reached_ns` (n,): when devices reached each call, Unix time; `span` (n,): the time between two
    waits of the host that it lies in, NONE beyond the first and the last. `waits` (n,): calls in
    which hosts wait for the last member. `timed`: from durations, which show who waited whatever
    hosts do."""

    came_ns: Times
    reached_ns: Ints
    span: Ints
    waits: Flags
    timed: bool

    @property
    def shown(self) -> Flags:
        """Calls that show who waited for whom (n,)."""
        return np.isfinite(self.came_ns) & (self.waits | self.timed)


@dataclass(frozen=True)
class Arrivals:
    """What shows the moments of all nodes, whichever of their calls are alike: `came_ns` (n,) as
    Moments has it and whether all is `over` (n,) once hosts go on, for each way to see that; `kind`
    (n,) is equal for calls of one operation and size."""

    programs: Programs
    limits: Limits
    collective: Flags
    seen: list[tuple[Times, Flags]]
    kind: Ints
    timed: bool

    def moments(self, nth: Ints | None = None) -> Moments:
        """The moments; calls alike are those at one place in the iteration, `nth` (n,), if that is
        known, else those before the same call."""
        programs, limits = self.programs, self.limits
        kind = numbered(self.kind, np.roll(self.kind, -1) if nth is None else nth)
        waits = [_waits(programs, self.collective, over, kind, limits) for _, over in self.seen]
        # Clocks are believed, unless hosts go on together more often by others.
        best = max(range(len(waits)), key=lambda one: int(waits[one].sum()))
        reached = programs.at_ns, np.arange(len(kind))
        if self.timed:
            reached = _reached(programs, waits[best])
        return Moments(self.seen[best][0], *reached, waits[best], self.timed)


def on_one_clock(programs: Programs, moments: Moments) -> Times:
    """When each call was made (n,), ns, on the clock that `moments` compare ranks by."""
    call_ns = programs.at_ns - float(programs.at_ns.min())
    known = np.isfinite(moments.came_ns)
    ahead_ns = np.zeros(len(programs.ranks))
    ahead_ns[programs.rank[known]] = (call_ns - moments.came_ns)[known]
    return np.asarray(call_ns - ahead_ns[programs.rank])


def arrivals_of(programs: Programs, limits: Limits) -> Arrivals:
    """What shows when all ranks came: durations, else calls alone."""
    collective = ~programs.batch & (programs.seq >= 0)
    measured = np.isfinite(programs.duration_ns[collective])
    timed = bool(measured.sum() > limits.nearly_all * max(measured.size, 1))
    size = np.array([len(line) for line in programs.members])[programs.comm]
    kind = numbered(programs.op, programs.count, size)
    if timed:
        took = programs.duration_ns
        over = np.isfinite(took) & (_until_idle(programs) <= _after(programs))
        seen = [(np.where(collective, -took, np.nan), over)]
    else:
        group = numbered(programs.comm, programs.seq)
        by_group = partial(earliest, share=limits.mostly), partial(earliest, share=limits.hardly)
        agreed = partial(offsets_of, exact_ns=limits.at_once)
        find = partial(_right_clocks, programs, collective, kind, group, limits=limits)
        clocks = np.zeros(len(programs.ranks)), find(by_group), find((agreed, agreed))
        seen = [_by_clocks(programs, collective, clock, group, limits) for clock in clocks]
    return Arrivals(programs, limits, collective, seen, kind, timed)


def _by_clocks(
    programs: Programs, collective: Flags, clock: Times, group: Ints, limits: Limits
) -> tuple[Times, Flags]:
    """Of calls alone, if each rank's clock is so far ahead (r,)."""
    call = programs.at_ns - programs.at_ns.min() - clock[programs.rank]
    latest = np.full(int(group.max()) + 1, -np.inf)
    np.maximum.at(latest, group, call)
    over = call + (_after(programs) - programs.at_ns) >= latest[group] - limits.exact
    return np.where(collective, call, np.nan), over


def _reached(programs: Programs, waits: Flags) -> tuple[Ints, Ints]:
    """When devices reached each call, and in which span (n,). Hosts call ahead and catch up where
    they wait: between two waits, and beyond the first and the last, calls are spread evenly, but
    none is reached before it was made."""
    found, span = programs.at_ns.copy(), np.arange(len(waits))
    met = np.flatnonzero(waits[:-1] & (np.diff(programs.rank) == 0)) + 1  # the next call
    ranks = np.searchsorted(programs.rank, np.arange(len(programs.ranks) + 1))
    for first, last in pairwise(ranks):
        mine = met[np.searchsorted(met, first) : np.searchsorted(met, last)]
        if len(mine) < 2:
            continue
        at_ns = programs.at_ns[mine] - programs.at_ns[mine[0]]
        each_ns = at_ns[-1] / (mine[-1] - mine[0])
        calls = np.arange(first, last)
        even_ns = np.interp(calls, mine, at_ns)
        even_ns += each_ns * (np.minimum(calls - mine[0], 0) + np.maximum(calls - mine[-1], 0))
        spread = programs.at_ns[mine[0]] + even_ns.astype(np.int64)
        found[first:last] = np.maximum(found[first:last], spread)
        passed = np.searchsorted(mine, calls, side="right")
        span[first:last] = np.where(passed % len(mine) == 0, NONE, passed)
    return found, span


def _until_idle(programs: Programs) -> Times:
    """The earliest time (n,) at which the rank's device can have completed all calls so far: those
    of one communicator run one after another. A host that calls sooner did not wait."""
    took = np.nan_to_num(programs.duration_ns).astype(np.int64)
    # Of its own clock: another's may be off by years.
    began = programs.at_ns[np.searchsorted(programs.rank, programs.rank)]
    call = programs.at_ns - began
    line = numbered(programs.rank, programs.comm)
    order = np.argsort(line, kind="stable")
    queued = np.cumsum(took[order])
    first = np.flatnonzero(np.diff(line[order], prepend=-1))
    queued -= np.repeat((queued - took[order])[first], np.diff(first, append=len(order)))
    # Lines lie apart by more than any of them is long, so that a maximum stays in its own.
    apart = line[order] * (int(call.max()) + int(queued.max()) + 1)
    begun = np.maximum.accumulate(call[order] - queued + took[order] + apart)
    ends = np.empty(len(call), dtype=np.int64)
    ends[order] = begun + queued - apart
    apart = programs.rank * (int(ends.max()) + 1)
    latest = np.maximum.accumulate(ends + apart) - apart
    return np.asarray(latest + began, dtype=np.float64)


def _after(programs: Programs) -> Times:
    """When each rank called next (n,); NaN behind its last call."""
    last = np.append(np.diff(programs.rank) != 0, True)
    return np.where(last, np.nan, np.roll(programs.at_ns, -1).astype(np.float64))


def _waits(programs: Programs, collective: Flags, over: Flags, kind: Ints, limits: Limits) -> Flags:
    """Calls (n,) of a kind in which hosts mostly stay until all is `over`."""
    known = collective & np.append(np.diff(programs.rank) == 0, False)
    part = np.bincount(kind, over & known) / np.maximum(np.bincount(kind, known), 1)
    return collective & (part >= limits.nearly_all)[kind]


def _right_clocks(
    programs: Programs,
    collective: Flags,
    kind: Ints,
    group: Ints,
    solvers: tuple[Solver, Solver],
    limits: Limits,
) -> Times:
    """By how much each rank's clock is ahead (r,): first from most groups' calls, then from those
    in which hosts turn out to wait, as they need not in all."""
    clock = _clocks(programs, collective, group, solvers[0], limits)
    _, over = _by_clocks(programs, collective, clock, group, limits)
    alike = numbered(kind, np.roll(kind, -1))
    together = _waits(programs, collective, over, alike, limits)
    return _clocks(programs, together, group, solvers[1], limits)


def _clocks(
    programs: Programs, together: Flags, group: Ints, solver: Solver, limits: Limits
) -> Times:
    """By how much each rank's clock is ahead (r,), if members go on `together` after these calls:
    who is late in some of a group's calls is no further off, so the early ones count. In the newest
    calls, until all agree."""
    after = np.where(together, _after(programs) - float(programs.at_ns.min()), np.nan)
    at = np.flatnonzero(np.isfinite(after))
    newest = np.zeros(len(programs.members), dtype=np.int64)
    np.maximum.at(newest, programs.comm[at], programs.seq[at])
    at = at[newest[programs.comm[at]] - programs.seq[at] < limits.most_compared]
    seat = numbered(programs.rank[at], programs.comm[at])
    first = np.unique(seat, return_index=True)[1]
    members = programs.rank[at[first]], programs.comm[at[first]]
    ahead = np.zeros(len(programs.ranks))
    for _ in range(limits.enough):
        left = after[at] - ahead[programs.rank[at]]
        below, above = (median_of_alike(group[at], side * left)[0] * side for side in (1, -1))
        beyond, _ = quantile_of_alike(seat, left - (below + above) / 2, limits.ordinary)
        further = solver(*members, beyond[first], len(ahead))
        ahead += further
        if np.abs(further).max() <= limits.at_once:
            break
    return ahead
