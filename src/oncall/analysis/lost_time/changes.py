"""What changed in the iterations that are longer than the others: a rank, or transfers.

Hosts run ahead of their devices, and ranks of one role may each do something else: then lateness
shows a part of what a rank costs, or cannot be compared with its peers'. But a rank that has come
later in every iteration that is longer, and no other has, did not do so by chance.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from itertools import product
from math import comb

import numpy as np

from oncall.analysis.common.quantiles import median, quantile
from oncall.analysis.lost_time.arrays import NONE, Flags, Ints, Times, numbered
from oncall.analysis.lost_time.causes import Books, excess_of_own
from oncall.analysis.lost_time.iterations import Iterations
from oncall.analysis.lost_time.judgement import Answer, Declined, Entry, at_least, is_duty
from oncall.analysis.lost_time.lateness import Lateness
from oncall.analysis.lost_time.limits import Limits
from oncall.analysis.lost_time.programs import Programs


@dataclass(frozen=True)
class Slowdown:
    """From `begin_ns` on all iterations (`segments` of them) were longer than any before, by the
    `share` of their length; or those that begin at `begins_ns`, where it comes and goes."""

    begin_ns: int
    share: float
    segments: int
    begins_ns: Ints | None = None

    def concerns(self, begin_ns: Ints) -> Flags:
        """Which of the iterations that begin then are longer (s,)."""
        if self.begins_ns is None:
            return begin_ns >= self.begin_ns
        return np.isin(begin_ns, self.begins_ns)


def slowdowns_of(books: Books, limits: Limits) -> list[Slowdown]:
    """The lasting changes of like iterations, else those that come and go, of the class that
    changed most.

    Iterations of one class make the same calls of the same sizes: what makes all of them longer
    from one on is no other phase of the program. Where they become short again, it may be one.
    """
    for changes in (lasting, repeated):
        each = [changes(one.length_ns, one.begin_ns, limits) for one in books.classes]
        most = max(each, key=lambda found: found[0].share * found[0].segments if found else 0.0)
        if most:
            return most
    return []


def slowdowns_in(iterations: Iterations, limits: Limits) -> list[Slowdown]:
    """Both, of iterations that may differ: what comes and goes counts in those of the most frequent
    program alone, as evaluations are longer by design."""
    other = iterations.kind != int(np.argmax(np.bincount(iterations.kind)))
    found = repeated(*iterations.spans(other), limits)
    return lasting(*iterations.spans(), limits) + found


def lasting(length_ns: Times, begin_ns: Ints, limits: Limits) -> list[Slowdown]:
    """The changes from which on the like iterations (s,) are longer than those before: clearly, or
    so many that lengths drawn by chance would hardly fall so. As single events do not count there
    may be several, next to one another; the largest is first."""
    order = np.argsort(begin_ns, kind="stable")
    length = length_ns[order]
    found = []
    splits = range(2, len(length) - 1)  # one short or long iteration is an event
    for split in splits:
        before, after = length[:split], length[split:]
        longest, shortest = most_of(before, limits), -most_of(-after, limits)
        if shortest <= longest:
            continue
        share = 1 - _middle(before) / _middle(after)
        chance = len(splits) / comb(len(length), split)
        clear = shortest * (1 - limits.large) > longest or chance < limits.by_chance
        if clear and share >= limits.least_gain:
            found.append(Slowdown(int(begin_ns[order[split]]), share, len(after)))
    return sorted(found, key=lambda one: -one.share)


def repeated(length_ns: Times, begin_ns: Ints, limits: Limits) -> list[Slowdown]:
    """The like iterations (s,) that are clearly longer than all others, if there are several of
    either: lengths of two kinds, in any order."""
    order = np.argsort(length_ns, kind="stable")
    order = order[length_ns[order] > 0]  # NaN: not known
    length = length_ns[order]
    fewest = limits.few
    if len(length) < 2 * fewest:
        return []
    part = length[:-1] / length[1:]
    split = int(np.argmin(part[fewest - 1 : len(part) - fewest + 1])) + fewest
    if part[split - 1] > 1 - limits.large:
        return []
    long = np.sort(begin_ns[order[split:]])
    share = 1 - _middle(length[:split]) / _middle(length[split:])
    return [Slowdown(int(long[0]), share, len(long), long)]


def most_of(values: Times, limits: Limits) -> Times:
    """The largest of values (n, ...) along the first axis, NaN and single events apart."""
    known = np.sort(np.where(np.isnan(values), -np.inf, values), axis=0)
    return np.asarray(known[-1 - len(known) // limits.event])


def _middle(values: Times) -> float:
    return float(median(values, 0))


def changed(
    slowdowns: list[Slowdown],
    programs: Programs,
    late: list[Lateness],
    books: Books | None,
    limits: Limits,
) -> Answer:
    """What changed in the longer iterations: transfers, which take no longer because somebody comes
    late to them, else who is `late`, or a rank's own time. That needs no replay as long as was
    measured: of calls alone it may be too long throughout. Calls show a part of what a rank costs,
    durations all of it."""
    for one, slowdown in product(late, slowdowns):
        iterations = one.iterations
        found = transfers_since(slowdown, programs, iterations, limits)
        times = one.late_ns, iterations.begin_ns, iterations.length_ns
        if found := found or late_since(slowdown, *times, limits, limits.mostly * one.timed):
            return found
    if books is not None:
        times = books.joined(excess_of_own).T, books.begin_ns, books.length_ns
        slowdowns = slowdowns_of(books, limits)
        for slowdown in slowdowns:
            if found := late_since(slowdown, *times, limits):
                return found
    if not slowdowns:
        return Declined("no iterations are clearly longer than the others")
    return Declined("nobody alone changed when iterations became longer")


def late_since(
    slowdown: Slowdown,
    late_ns: Times,
    begin_ns: Ints,
    length_ns: Times,
    limits: Limits,
    part: float = 0.0,
) -> Entry | None:
    """The rank, or the neighbours on a host, that alone came later in the longer iterations, by
    `late_ns` (s, r), and by at least this `part` of the slowdown."""
    longer = slowdown.concerns(begin_ns)
    if longer.all() or not longer.any():
        return None
    change_ns = quantile(late_ns[longer], 0.5, 0) - quantile(late_ns[~longer], 0.5, 0)
    seen = [np.isfinite(late_ns[each]).sum(0) >= limits.few for each in (~longer, longer)]
    known = seen[0] & seen[1]
    change_ns = np.where(known, change_ns, 0.0)
    change_ns -= quantile(change_ns, 0.25, 0)  # of those that did not
    ranks = _stand_out(change_ns, known, limits)
    if ranks is None or not _each_time(late_ns[:, ranks], longer, limits):
        return None
    shown = float(change_ns[ranks].min() / np.median(length_ns[longer]))
    of = late_ns.shape[1] / len(ranks)
    least = max(limits.least_gain / 2, part * slowdown.share)
    if shown < least or _comes_and_goes(slowdown, ranks, of, longer, limits):
        return None
    return _entry("own", ranks, shown, slowdown, length_ns[longer])


def _comes_and_goes(
    slowdown: Slowdown, ranks: Ints, of: float, longer: Flags, limits: Limits
) -> bool:
    """Whether the ranks, one of so many ranks or blocks of them, are late in the longer iterations
    (s,), which do not last, by turns, or because rank 0 logs and saves for all."""
    if slowdown.begins_ns is None:
        return False
    times = int(longer.sum())
    by_chance = at_least(times, times, 1 / of) * of
    return by_chance > limits.by_chance or is_duty(ranks.tolist(), 0.0, longer, limits)


def transfers_since(
    slowdown: Slowdown, programs: Programs, iterations: Iterations, limits: Limits
) -> Entry | None:
    """The ranks that share all groups whose collectives take longer in the longer iterations,
    though nobody came late to them."""
    taken_ns = taken(programs, iterations)
    longer = slowdown.concerns(iterations.begin_ns)
    if longer.all() or not longer.any():
        return None
    before_ns, now_ns = (quantile(taken_ns[each], 0.5, 0) for each in (~longer, longer))
    change_ns = np.nan_to_num(now_ns - before_ns)
    length_ns = float(np.median(iterations.length_ns[longer]))
    if change_ns.max(initial=0.0) < limits.mostly * slowdown.share * length_ns:
        return None
    # What slows one group slows others by the same factor, however little they send.
    growth = np.where(
        change_ns >= limits.least_gain / 2 * length_ns, now_ns / np.maximum(before_ns, 1.0), 0.0
    )
    slow = np.flatnonzero(growth >= limits.mostly * growth.max())
    if not _each_time(taken_ns[:, slow], longer, limits):
        return None
    ranks = reduce(np.intersect1d, [np.asarray(programs.members[comm]) for comm in slow])
    if not len(ranks):
        return None
    shown = float(change_ns.max()) / length_ns
    return _entry("transfer", ranks, shown, slowdown, iterations.length_ns[longer])


def _entry(cause: str, ranks: Ints, shown: float, slowdown: Slowdown, longer_ns: Times) -> Entry:
    """The entry of ranks, with the lengths of the longer iterations."""
    return Entry(
        cause=cause,
        ranks=tuple(map(int, ranks)),
        share=slowdown.share,
        low=min(shown, slowdown.share),
        high=max(shown, slowdown.share),
        segments=len(longer_ns),
        gain_ns=slowdown.share * float(longer_ns.sum()),
        begin_ns=slowdown.begin_ns,
        shown_by="change",
    )


def _stand_out(change_ns: Times, known: Flags, limits: Limits) -> Ints | None:
    """The ranks that changed alike, and clearly more than all others; None if they are no
    neighbours, or most of those did of which it is known."""
    ranks = np.flatnonzero(change_ns >= limits.mostly * change_ns.max())
    others = np.delete(np.abs(change_ns), ranks)
    if not len(others) or change_ns[ranks].min() < limits.stands_out * others.max():
        return None
    neighbours = int(ranks[-1] - ranks[0]) == len(ranks) - 1 and not ranks[0] % len(ranks)
    return ranks if neighbours and 2 * len(ranks) <= known.sum() else None


def _each_time(values: Times, longer: Flags, limits: Limits) -> bool:
    """Is each column (s, n) larger in nearly all `longer` iterations (s,) than in the others?"""
    least = -most_of(-values[longer], limits)
    return bool((least > most_of(values[~longer], limits)).all())


def taken(programs: Programs, iterations: Iterations) -> Times:
    """How long the collectives of each group took in each iteration (s, comms), ns, once their
    last member was there; NaN where a member did not record one: they may have waited for it."""
    chosen = (iterations.number != NONE) & ~programs.batch & np.isfinite(programs.duration_ns)
    node = np.flatnonzero(chosen)
    of = numbered(programs.comm[node], programs.seq[node])
    _, first, members = np.unique(of, return_index=True, return_counts=True)
    took_ns = np.full(len(first), np.inf)
    np.minimum.at(took_ns, of, programs.duration_ns[node])
    one = node[first]
    whole = members == programs.sizes[programs.comm[one]]
    shape = (len(iterations.begin_ns), len(programs.members))
    place = (iterations.number[one] * shape[1] + programs.comm[one])[whole]
    total = np.bincount(place, took_ns[whole], shape[0] * shape[1])
    seen = np.bincount(place, minlength=shape[0] * shape[1]) > 0
    return np.where(seen, total, np.nan).reshape(shape)
