"""Whom the others wait for: what can be said of time where nothing can be replayed.

In a collective all members end together, so who was in it the shortest came last, and the others
waited for it. That needs no clocks, and does not ask how many streams there are or how far hosts
are ahead. Of calls alone it is the last to call, where hosts wait. A rank that came late because it
had waited for someone else was in that other call for long: over all its groups the two cancel. So
a rank's lateness, summed over all calls of an iteration, is lost time of its own.

It costs something if the others wait for the same ranks again and again, clearly longer than for
anybody else, and iterations in which they do are longer than the others. Ranks are tried one by one
and in the blocks of neighbours that share a host.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from oncall.analysis.common.quantiles import quantile
from oncall.analysis.lost_time.arrays import NONE, Flags, Ints, Times
from oncall.analysis.lost_time.iterations import Iterations
from oncall.analysis.lost_time.judgement import (
    BLOCKS,
    Declined,
    Entry,
    Loss,
    by_turns,
    counts_alone,
    is_duty,
    judged,
)
from oncall.analysis.lost_time.limits import Limits
from oncall.analysis.lost_time.moments import Moments, on_one_clock
from oncall.analysis.lost_time.pipelines import places_of
from oncall.analysis.lost_time.programs import Programs, matched, with_unseen


@dataclass(frozen=True)
class Lateness:
    """By how much each of the `ranks` (r,) was late by itself in each iteration (s, r), ns against
    the median rank; NaN where not recorded whole. `iterations` say when and how long. `timed`:
    from durations. `of_all`: iterations are those of all ranks, not of one group each. `by`: the
    others' "waits" in calls, or "delays" of hosts, which devices may make up for. `compared`: most
    ranks were, with others at the same place of their pipelines. `at_once_ns` (s, r): the largest
    delay before one call. `passed_on_ns` (s, r): by calls alone, how much of it each rank may have
    waited for who sends to it."""

    late_ns: Times
    ranks: Ints
    iterations: Iterations
    timed: bool
    of_all: bool = True
    by: Literal["waits", "delays"] = "waits"
    compared: bool = True
    at_once_ns: Times | None = None
    passed_on_ns: Times | None = None

    @property
    def share(self) -> Times:
        """The lateness as a share of each iteration (s, r)."""
        return self.late_ns / self.iterations.length_ns[:, None]

    def spread(self, ranks: Flags, late: Flags, limits: Limits) -> bool:
        """Whether the ranks lost most of what they did in late iterations before several calls."""
        if self.at_once_ns is None:
            return False
        at = np.ix_(late, ranks)
        return bool(np.nanmedian(self.at_once_ns[at] / self.late_ns[at]) < limits.mostly)

    def passes_on(self, ranks: Sequence[int], share: float, limits: Limits) -> bool:
        """Whether most of such a `share` that the ranks are late by came from who sends to them."""
        if self.passed_on_ns is None:
            return False
        passed_on = self.passed_on_ns[:, list(ranks)] / self.iterations.length_ns[:, None]
        return bool(np.nan_to_num(passed_on).mean() >= limits.mostly * share)

    def leaves_open(self, limits: Limits) -> bool:
        """Whether some rank is clearly late in most iterations, whoever stands out; or one of them
        is longer than its like by as much as if all were, because of a rank, or by more than a
        healthy host stops for."""
        if (quantile(self.share, 0.25, 0) >= limits.stands_out * limits.least_gain).any():
            return True
        excess_ns = self.iterations.excess_ns(limits)
        at = int(excess_ns.argmax())
        most_ns, late_ns = float(excess_ns[at]), np.fmax.reduce(self.late_ns[at])
        alone = counts_alone(most_ns, self.iterations.length_ns, limits)
        return bool(alone and (most_ns >= limits.once or late_ns >= limits.mostly * most_ns))


def lateness_of(
    programs: Programs, iterations: Iterations, moments: Moments, limits: Limits
) -> Lateness:
    """The lateness of all ranks; `extra` calls neither count nor make an iteration longer."""
    place = places_of(programs, iterations.mostly_called)
    late_ns, waited_ns = _in_collectives(programs, moments), iterations.waited_ns
    timed = moments.timed or waited_ns is not None
    extra_ns = _waited(programs, iterations, np.where(iterations.extra, late_ns, 0.0))
    # From one call to the next, without the wait for others in it.
    own_ns = np.maximum(np.diff(moments.reached_ns, append=0) + late_ns, 0)
    goes_on = np.diff(programs.rank, append=NONE) == 0
    for_extra_ns = np.where(goes_on & np.roll(iterations.extra, -1), -own_ns, 0.0)
    in_batches_ns = _in_batches(programs, iterations.number, moments)
    if waited_ns is None:
        waited_ns = _waited(programs, iterations, late_ns + in_batches_ns * timed)
    beside_ns = extra_ns + _waited(programs, iterations, for_extra_ns)
    rest_ns = np.maximum(iterations.length_ns - quantile(beside_ns, 0.5, 1), 1.0)
    iterations = replace(iterations, length_ns=rest_ns)
    late_ns = _against_peers(programs, iterations, extra_ns - waited_ns, place)
    passed_on_ns = None
    if not timed:
        passed_on_ns = _waited(programs, iterations, in_batches_ns)
        passed_on_ns = _against_peers(programs, iterations, passed_on_ns, place)
    of_all = float((iterations.program != 0).mean()) >= limits.mostly
    seen = np.isfinite(late_ns).any(0)
    peers = np.bincount(place[seen], minlength=int(place.max()) + 1)[place]
    compared = float((seen & (peers > 1)).mean()) >= limits.mostly
    return Lateness(
        late_ns,
        programs.ranks,
        iterations,
        timed,
        of_all,
        compared=compared,
        passed_on_ns=passed_on_ns,
    )


def _waited(programs: Programs, iterations: Iterations, late_ns: Times) -> Times:
    """How long each rank waited in each iteration (s, r), summed over calls to which it came so
    late after the last one, `late_ns` (n,), below 0."""
    at = np.flatnonzero(iterations.number != NONE)
    shape = (len(iterations.begin_ns), len(programs.ranks))
    flat = iterations.number[at] * shape[1] + programs.rank[at]
    total = np.bincount(flat, np.nan_to_num(late_ns[at]), shape[0] * shape[1])
    return np.asarray(-total.reshape(shape), dtype=np.float64)


def _against_peers(
    programs: Programs, iterations: Iterations, late_ns: Times, place: Ints
) -> Times:
    """The lateness of each rank in each iteration (s, r), against that of the median rank, less
    what those at its place (r,) mostly have: a stage of a pipeline waits by its place."""
    found: Times = np.where(iterations.program != 0, late_ns, np.nan)
    found[:, with_unseen(programs, seen=(iterations.program != 0).any(0))] = np.nan
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
    """How long each batch of sends and receives waited for its other sides, below 0 (n,); by calls
    alone, how long it may have waited for who sends to it."""
    found = np.zeros(len(programs.rank))
    sender, receiver = matched(programs, number)
    if not moments.timed:
        call_ns = on_one_clock(programs, moments)
        np.minimum.at(found, receiver, call_ns[receiver] - call_ns[sender])
        return found
    took = programs.duration_ns
    needed = np.fmin(took[sender], took[receiver])
    longest = np.full(len(found), -np.inf)
    for side in (sender, receiver):
        np.fmax.at(longest, side, needed)
    met = np.isfinite(longest) & np.isfinite(took)
    found[met] = longest[met] - took[met]
    return found


_NOBODY = Declined("the others wait for nobody more than for the next")
_TOO_FEW = Declined("the others wait for a rank in too few iterations")
_BY_TURNS = Declined("ranks come late by turns: chance explains it")


def latecomers(lateness: Lateness, limits: Limits) -> Entry | Declined:
    """The ranks whose lateness costs most, if it is no chance. What durations show, or what hosts
    hold up themselves, counts in a few iterations as well, if it costs enough and no other rank is
    as late in any."""
    iterations = lateness.iterations
    share = lateness.share
    best, gap = _best(share, lateness.ranks, limits)
    there = ~np.isnan(gap)
    late = there & (gap >= limits.least_gain) & _has_peers(iterations, best)
    if not late.any() or not _all_of_them(share[late], best):
        return _NOBODY
    blocks = _taking_turns(share, best, late, limits) / best.sum()
    few = late.sum() < limits.few
    if few or by_turns(gap[late], _widest(share[there]), blocks, limits):
        late &= gap >= limits.mostly * np.nanmax(gap)
        # Of calls alone, hosts' delays show it better.
        shown = lateness.timed or lateness.by == "delays"
        if not shown or not _stands_alone(share, best, late, iterations, limits):
            return _TOO_FEW if few else _BY_TURNS
        few = True
    gain = np.where(late, np.minimum(gap, 1.0), 0.0)
    # Others may be as long because of somebody else: without whom is what they last.
    last_ns = np.nan_to_num(np.fmax.reduce(lateness.late_ns, axis=1))
    rest_ns = np.maximum(iterations.length_ns - last_ns, iterations.length_ns / 2)
    without = replace(iterations, length_ns=rest_ns)
    others, _ = without.spans(but=~(there & (gap < limits.least_gain / 2)))
    costs = True
    if iterations.stretches:
        pass  # They are of equal length, whatever was lost in them.
    elif _are_baseline(others, iterations.length_ns[late], limits):
        gain = np.minimum(gain, 1 - float(np.median(others)) / iterations.length_ns)
    elif _may_cost_nothing(lateness, limits):
        costs = False
        if np.median(gain[late]) < limits.large:
            return Declined("hosts run ahead of their devices: being late may cost nothing")
    times = iterations.length_ns, iterations.begin_ns
    spread = lateness.spread(best, late, limits)
    loss = Loss("own", _places(best), gain, *times, lateness.by, spread)
    late = loss.concerned(limits)
    seen = bool(late.any()) and is_seen(
        iterations, late, there & ~late, float(gain[late].mean()), limits
    )
    fewest = 1 if few else limits.few
    return judged(loss, limits, fewest, proven=costs and seen, always=not len(others))


def is_seen(
    iterations: Iterations, late: Flags, others: Flags, share: float, limits: Limits
) -> bool:
    """Whether late iterations (s,) are longer than the shorter ones of the others by a good part of
    the `share` that being late is said to cost; others may be long for another reason, as the first
    ones are. Where too few lengths are known, and of stretches of equal time, nobody knows."""
    late_ns, _ = iterations.spans(but=~late)
    others_ns, _ = iterations.spans(but=~others)
    if iterations.stretches or not len(late_ns) or len(others_ns) < limits.few:
        return True
    length_ns = float(np.median(late_ns))
    longer_ns = length_ns - float(quantile(others_ns, 0.25, 0))
    return longer_ns >= limits.seen * share * length_ns


def suspected(lateness: Lateness, limits: Limits) -> Entry | Declined:
    """The ranks that the others waited for a good part of their time, or several times longer than
    any noise, though it may be chance."""
    iterations = lateness.iterations
    best, gap = _best(lateness.share, lateness.ranks, limits)
    late = (gap >= limits.least_gain) & _has_peers(iterations, best)
    lost_ns = np.where(late, np.minimum(gap, 1.0), 0.0) * iterations.length_ns
    seen_ns = max(1.0, float(iterations.length_ns[~np.isnan(gap)].sum()))
    part = float(lost_ns.sum()) / seen_ns
    if part < limits.large:
        late &= gap >= limits.large
        lost_ns = np.where(late, lost_ns, 0.0)
        part = float(lost_ns.sum()) / seen_ns
        duty = is_duty(_places(best), part, late, limits, always=True)
        if part < limits.least_gain or late.sum() <= 1 or duty:
            return Declined("the others wait for no rank for long")
    return Entry(
        cause="perhaps",
        ranks=_places(best),
        share=part,
        low=0.0,
        high=part,
        segments=int(late.sum()),
        gain_ns=float(lost_ns.sum()),
        begin_ns=int(iterations.begin_ns[late].min()),
        shown_by=lateness.by,
    )


def _places(ranks: Flags) -> tuple[int, ...]:
    return tuple(map(int, np.flatnonzero(ranks)))


def _are_baseline(others: Times, late: Times, limits: Limits) -> bool:
    """Whether the lengths of other iterations (k,) say what the late ones (s,) cost: of two, if
    these are clearly shorter."""
    if len(others) < 2:
        return False
    shorter = float(others.max()) < (1 - limits.large) * float(late.min())
    return len(others) >= limits.few or shorter


def _taking_turns(share: Times, best: Flags, late: Flags, limits: Limits) -> int:
    """How many ranks may be late by turns: those that are ever half as late, as the last of each
    sequence where work grows with it; all that were recorded, where hardly any is."""
    much = limits.mostly * float(np.nanmedian(share[np.ix_(late, best)]))
    ever = int((np.fmax.reduce(share, axis=0) >= much).sum())
    recorded = int((~np.isnan(share)).sum(1).max())
    return ever if ever - int(best.sum()) >= limits.few else recorded


def _may_cost_nothing(lateness: Lateness, limits: Limits) -> bool:
    """Whether hosts may be ahead of their devices, so that one may call late for nothing."""
    ahead = not lateness.timed and lateness.iterations.ahead > limits.least_gain
    return lateness.by == "delays" or (lateness.by == "waits" and ahead)


def _stands_alone(
    share: Times, best: Flags, late: Flags, iterations: Iterations, limits: Limits
) -> bool:
    """Whether the ranks cost as much in a few iterations as if all were longer, and no other rank
    was half as late in any."""
    mine, others = np.fmin.reduce(share[:, best], axis=1), share[:, ~best]
    lost_ns = float((np.minimum(mine, 1.0) * iterations.length_ns)[late].sum())
    if np.fmax.reduce(others, axis=None) >= limits.mostly * mine[late].min():
        return False
    return lost_ns >= limits.once and counts_alone(lost_ns, iterations.length_ns, limits)


def _best(share: Times, ranks: Ints, limits: Limits) -> tuple[Flags, Times]:
    """Which of the ranks (r,) stand out most, and by how much they do in each iteration (s,)."""
    found = np.zeros(len(ranks), dtype=np.bool_), np.full(len(share), np.nan)
    most = -1.0
    for size in BLOCKS:
        if 2 * size > len(ranks):
            break
        blocks, padded = by_hosts(share, ranks, size)
        padded = np.sort(padded, axis=2)  # NaN last
        middle = padded[:, :, (size - 1) // 2]
        highest = np.fmax.reduce(padded, axis=2)
        gap = middle - _highest_beside(highest)
        total = np.nansum(np.where(gap >= limits.least_gain / 2, gap, 0), axis=0)
        one = int(np.argmax(total))
        if limits.alike * total[one] > most:  # of sets that explain as much, the smallest
            most, found = float(total[one]), (blocks == one, gap[:, one])
    return found


def by_hosts(share: Times, ranks: Ints, size: int) -> tuple[Ints, Times]:
    """The host of each rank (r,), each of so many neighbours; and what each iteration has (s, r) by
    hosts (s, hosts, size), NaN for ranks that left nothing behind."""
    hosts, host = np.unique(ranks // size, return_inverse=True)
    found = np.full((len(share), len(hosts), size), np.nan)
    found[:, host, ranks % size] = share
    return host, found


def _highest_beside(highest: Times) -> Times:
    """Of each column (s, b) the highest of all others in the row."""
    known = np.where(np.isnan(highest), -np.inf, highest)
    order = np.sort(known, axis=1)
    first, second = order[:, -1:], order[:, -2:-1]
    beside = np.where(known == first, second, first)
    return np.where(np.isfinite(beside), beside, np.nan)


def _all_of_them(share: Times, best: Flags) -> bool:
    """Is each of the ranks later than all others, as a rule?"""
    baseline = quantile(share, 0.5, 0)
    return bool(np.nanmin(baseline[best]) > np.nanmax(baseline[~best]))


def _has_peers(iterations: Iterations, best: Flags) -> Flags:
    """Iterations (s,) in which others made the same calls as each of the ranks: stages of a
    pipeline differ by design."""
    program = iterations.program
    found = np.ones(len(program), dtype=np.bool_)
    for rank in np.flatnonzero(best):
        found &= (program[:, ~best] == program[:, [rank]]).any(1)
    return found


def _widest(share: Times) -> Times:
    """The widest gap between those that are later than most and the next (s,)."""
    order = -np.sort(-share, axis=1)  # NaN last
    gaps = order[:, :-1] - order[:, 1:]
    known = ~np.isnan(gaps)
    half = np.arange(gaps.shape[1]) < known.sum(1, keepdims=True) / 2
    return np.asarray(np.where(known & half, gaps, 0.0).max(1))
