"""What changed in the iterations that are longer than the others: a rank, or transfers.

Hosts run ahead of their devices, and ranks of one role may each do something else: then lateness
shows a part of what a rank costs, or cannot be compared with its peers'. But a rank that has come
later in every iteration that is longer, and no other has, did not do so by chance.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import reduce
from math import comb

import numpy as np

from oncall.analysis.lost_time.books import Books
from oncall.analysis.lost_time.causes import Entry, excess_of_own
from oncall.analysis.lost_time.chance import is_duty
from oncall.analysis.lost_time.collectives import collectives_of
from oncall.analysis.lost_time.iterations import Iterations
from oncall.analysis.lost_time.lateness import Lateness
from oncall.analysis.lost_time.limits import Limits
from oncall.analysis.lost_time.measured import quantile
from oncall.analysis.lost_time.programs import NONE, Flags, Ints, Programs, Times
from oncall.analysis.lost_time.slowdowns import Slowdown, lasting, most_of


def changed_with(
    slowdowns: Iterable[Slowdown], programs: Programs, lateness: Lateness, limits: Limits
) -> Entry | None:
    """What changed in the longer iterations: transfers, which take no longer because somebody comes
    late to them, else a rank's work."""
    for slowdown in slowdowns:
        iterations = lateness.iterations
        found = _slow_since(slowdown, programs, iterations, limits)
        found = found or _late_in(
            slowdown, lateness.late_ns, iterations.begin_ns, iterations.length_ns, limits
        )
        if found is not None:
            return found
    return None


def own_time_in(slowdowns: Iterable[Slowdown], books: Books, limits: Limits) -> Entry | None:
    """The rank whose own time alone exceeds its peers' in the longer iterations. That needs no
    replay as long as was measured: of calls alone it may be too long throughout."""
    excess_ns = books.joined(excess_of_own).T
    each = (
        _late_in(slowdown, excess_ns, books.begin_ns, books.length_ns, limits)
        for slowdown in slowdowns
    )
    return next((entry for entry in each if entry is not None), None)


def _late_in(
    slowdown: Slowdown, late_ns: Times, begin_ns: Ints, length_ns: Times, limits: Limits
) -> Entry | None:
    """The rank, or the neighbours on a host, that alone came later in the longer iterations, by
    `late_ns` (s, r)."""
    longer = slowdown.concerns(begin_ns)
    if longer.all() or not longer.any():
        return None
    change_ns = quantile(late_ns[longer], 0.5, 0) - quantile(late_ns[~longer], 0.5, 0)
    seen = [np.isfinite(late_ns[each]).sum(0) >= limits.repeats for each in (~longer, longer)]
    change_ns = np.where(seen[0] & seen[1], change_ns, 0.0)
    change_ns -= quantile(change_ns, 0.25, 0)  # of those that did not
    ranks = _stand_out(change_ns, limits)
    if ranks is None or not _each_time(late_ns[:, ranks], longer, limits):
        return None
    shown = float(change_ns[ranks].min() / np.median(length_ns[longer]))
    of = late_ns.shape[1] / len(ranks)
    if shown < limits.least_gain / 2 or _comes_and_goes(slowdown, ranks, of, longer, limits):
        return None
    return _entry("own", ranks, shown, slowdown, length_ns[longer])


def _comes_and_goes(
    slowdown: Slowdown, ranks: Ints, of: float, longer: Flags, limits: Limits
) -> bool:
    """Whether the ranks, one of so many ranks or blocks of them, are late in the longer iterations
    (s,), which do not last, by chance, or because rank 0 logs and saves for all."""
    if slowdown.begins_ns is None:
        return False
    chance = of / comb(len(longer), int(longer.sum()))
    return chance > limits.by_chance or is_duty(ranks.tolist(), 0.0, longer, limits)


def _slow_since(
    slowdown: Slowdown, programs: Programs, iterations: Iterations, limits: Limits
) -> Entry | None:
    """The ranks that share all groups whose collectives take longer in the longer iterations,
    though nobody came late to them."""
    taken_ns = taken(programs, iterations, limits)
    longer = slowdown.concerns(iterations.begin_ns)
    if longer.all() or not longer.any():
        return None
    before_ns, now_ns = (quantile(taken_ns[each], 0.5, 0) for each in (~longer, longer))
    change_ns = np.nan_to_num(now_ns - before_ns)
    length_ns = float(np.median(iterations.length_ns[longer]))
    if change_ns.max(initial=0.0) < limits.as_late * slowdown.share * length_ns:
        return None
    # What slows one group slows others by the same factor, however little they send.
    growth = np.where(
        change_ns >= limits.least_gain / 2 * length_ns, now_ns / np.maximum(before_ns, 1.0), 0.0
    )
    slow = np.flatnonzero(growth >= limits.as_late * growth.max())
    if not _each_time(taken_ns[:, slow], longer, limits):
        return None
    members = [np.asarray(line) for line in programs.members]
    ranks = reduce(np.intersect1d, [members[comm] for comm in slow])
    shown = float(change_ns.max()) / length_ns
    if not len(ranks):
        return None
    return _entry("transfer", ranks, shown, slowdown, iterations.length_ns[longer])


def slower_with_transfers(
    programs: Programs, iterations: Iterations, limits: Limits
) -> Entry | None:
    """The same where transfers of a group take longer for good, and with them all iterations since
    then: as its transfers say when the slowdown began, little is left to chance."""
    if not _ask_for_the_same(iterations, limits):
        return None
    taken_ns = taken(programs, iterations, limits)
    begin_ns, length_ns = iterations.begin_ns, iterations.length_ns
    for comm in np.flatnonzero(np.isfinite(taken_ns).all(0)):
        changes = lasting(taken_ns[:, comm], begin_ns, limits)
        if not changes:
            continue
        change = max(changes, key=lambda one: _apart(taken_ns[:, comm], one.concerns(begin_ns)))
        longer = change.concerns(begin_ns)
        share = 1 - float(np.median(length_ns[~longer]) / np.median(length_ns[longer]))
        chance = 1 / comb(len(longer), int(longer.sum()))
        if share < limits.least_gain or chance >= limits.by_chance:
            continue
        if _each_time(length_ns[:, np.newaxis], longer, limits):
            entry = _slow_since(replace(change, share=share), programs, iterations, limits)
            if entry is not None:
                return entry
    return None


def _ask_for_the_same(iterations: Iterations, limits: Limits) -> bool:
    """Whether all iterations make the same calls of the same sizes: none transfers more."""
    like = (iterations.program == iterations.mostly_called).mean(1) >= limits.same_calls
    return bool(not iterations.stretches and like.all())


def _apart(values: Times, longer: Flags) -> float:
    """How many times the largest of the other values (s,) the least of the `longer` ones is."""
    return float(values[longer].min() / max(1.0, values[~longer].max()))


def longer_transfers(programs: Programs, iterations: Iterations, limits: Limits) -> Entry | None:
    """The groups whose transfers take longer for good though iterations hardly do, as far as they
    are recorded: computation hides them there, which says nothing of the rest of the job. Their
    share is the most that they may cost. A communicator makes one transfer after the other: what
    these take beyond an iteration of before is lost for certain."""
    taken_ns = taken(programs, iterations, limits)
    length_ns = float(np.median(iterations.length_ns))
    found: dict[int, Slowdown] = {}
    for comm in np.flatnonzero(np.isfinite(taken_ns).all(0)):
        for change in lasting(taken_ns[:, comm], iterations.begin_ns, limits)[:1]:
            now_ns = np.median(taken_ns[change.concerns(iterations.begin_ns), comm])
            share = float(change.share * now_ns / length_ns)
            if share >= limits.lasting and change.segments >= limits.repeats:
                found[int(comm)] = replace(change, share=share)
    if not found:
        return None
    members = [np.asarray(programs.members[comm]) for comm in found]
    ranks, all_ranks = reduce(np.intersect1d, members), reduce(np.union1d, members)
    ranks = ranks if len(ranks) else all_ranks
    slowest = max(found, key=lambda comm: found[comm].share)
    most = found[slowest]
    longer = most.concerns(iterations.begin_ns)
    now_ns = float(np.median(taken_ns[longer, slowest]))
    least = 1 - float(np.median(iterations.length_ns[~longer])) / now_ns
    if least >= limits.least_gain and _ask_for_the_same(iterations, limits):
        lengths_ns = np.full(longer.sum(), now_ns)
        return _entry("transfer", ranks, least, replace(most, share=least), lengths_ns)
    entry = _entry("perhaps", ranks, 0.0, most, iterations.length_ns[longer])
    return replace(entry, shown_by="overlap")


def _entry(cause: str, ranks: Ints, shown: float, slowdown: Slowdown, longer_ns: Times) -> Entry:
    """The entry of ranks, with the lengths of the longer iterations."""
    return Entry(
        cause=cause,
        ranks=tuple(map(int, ranks)),
        share=slowdown.share,
        low=min(shown, slowdown.share),
        segments=len(longer_ns),
        gain_ns=slowdown.share * float(longer_ns.sum()),
        begin_ns=slowdown.begin_ns,
        shown_by="change",
    )


def taken(programs: Programs, iterations: Iterations, limits: Limits) -> Times:
    """How long the collectives of each group took in each iteration (s, comms), ns, once their
    last member was there; NaN where not recorded."""
    shape = (len(iterations.begin_ns), len(programs.members))
    found = collectives_of(programs, iterations.number != NONE, limits)
    place = iterations.number[found.first] * shape[1] + programs.comm[found.first]
    total = np.bincount(place, found.took_ns, shape[0] * shape[1])
    seen = np.bincount(place, minlength=shape[0] * shape[1]) > 0
    return np.where(seen, total, np.nan).reshape(shape)


def _stand_out(change_ns: Times, limits: Limits) -> Ints | None:
    """The ranks that changed alike, and clearly more than all others; None if they are no
    neighbours, or most ranks did."""
    ranks = np.flatnonzero(change_ns >= limits.as_late * change_ns.max())
    others = np.delete(np.abs(change_ns), ranks)
    if not len(others) or change_ns[ranks].min() < limits.stands_out * others.max():
        return None
    neighbours = int(ranks[-1] - ranks[0]) == len(ranks) - 1 and not ranks[0] % len(ranks)
    return ranks if neighbours and 2 * len(ranks) <= len(change_ns) else None


def _each_time(values: Times, longer: Flags, limits: Limits) -> bool:
    """Is each column (s, n) larger in nearly all `longer` iterations (s,) than in the others?"""
    least = -most_of(-values[longer], limits)
    return bool((least > most_of(values[~longer], limits)).all())
