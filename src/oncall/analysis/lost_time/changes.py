"""What changed in the iterations that are longer than the others: a rank, or transfers.

Hosts run ahead of their devices, and ranks of one role may each do something else: then lateness
shows a part of what a rank costs, or cannot be compared with its peers'. But a rank that has come
later in every iteration that is longer, and no other has, did not do so by chance.
"""

from __future__ import annotations

from functools import reduce
from math import comb

import numpy as np

from oncall.analysis.lost_time.causes import excess_of_own
from oncall.analysis.lost_time.chance import is_duty
from oncall.analysis.lost_time.evidence import Evidence
from oncall.analysis.lost_time.iterations import Iterations
from oncall.analysis.lost_time.judgement import Answer, Declined, Entry
from oncall.analysis.lost_time.limits import Limits
from oncall.analysis.lost_time.measured import quantile
from oncall.analysis.lost_time.programs import Flags, Ints, Programs, Times
from oncall.analysis.lost_time.slowdowns import Slowdown, most_of, slowdowns_of
from oncall.analysis.lost_time.transfers import taken


def changed(evidence: Evidence) -> Answer:
    """What changed in the longer iterations: transfers, which take no longer because somebody comes
    late to them, else a rank's lateness, or its own time. That needs no replay as long as was
    measured: of calls alone it may be too long throughout."""
    limits, slowdowns = evidence.limits, evidence.slowdowns
    if slowdowns and (lateness := evidence.lateness) is not None:
        iterations = lateness.iterations
        times = lateness.late_ns, iterations.begin_ns, iterations.length_ns
        for slowdown in slowdowns:
            found = transfers_since(slowdown, evidence.programs, iterations, limits)
            if found := found or late_since(slowdown, *times, limits):
                return found
    if (books := evidence.replay or evidence.inexact) is not None:
        times = books.joined(excess_of_own).T, books.begin_ns, books.length_ns
        slowdowns = slowdowns_of(books, limits)
        for slowdown in slowdowns:
            if found := late_since(slowdown, *times, limits):
                return found
    if not slowdowns:
        return Declined("no iterations are clearly longer than the others")
    return Declined("nobody alone changed when iterations became longer")


def late_since(
    slowdown: Slowdown, late_ns: Times, begin_ns: Ints, length_ns: Times, limits: Limits
) -> Entry | None:
    """The rank, or the neighbours on a host, that alone came later in the longer iterations, by
    `late_ns` (s, r)."""
    longer = slowdown.concerns(begin_ns)
    if longer.all() or not longer.any():
        return None
    change_ns = quantile(late_ns[longer], 0.5, 0) - quantile(late_ns[~longer], 0.5, 0)
    seen = [np.isfinite(late_ns[each]).sum(0) >= limits.few for each in (~longer, longer)]
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
    by_chance = of / comb(len(longer), int(longer.sum()))
    return by_chance > limits.by_chance or is_duty(ranks.tolist(), 0.0, longer, limits)


def transfers_since(
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
    if change_ns.max(initial=0.0) < limits.late_together * slowdown.share * length_ns:
        return None
    # What slows one group slows others by the same factor, however little they send.
    growth = np.where(
        change_ns >= limits.least_gain / 2 * length_ns, now_ns / np.maximum(before_ns, 1.0), 0.0
    )
    slow = np.flatnonzero(growth >= limits.late_together * growth.max())
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


def _stand_out(change_ns: Times, limits: Limits) -> Ints | None:
    """The ranks that changed alike, and clearly more than all others; None if they are no
    neighbours, or most ranks did."""
    ranks = np.flatnonzero(change_ns >= limits.late_together * change_ns.max())
    others = np.delete(np.abs(change_ns), ranks)
    if not len(others) or change_ns[ranks].min() < limits.stands_out * others.max():
        return None
    neighbours = int(ranks[-1] - ranks[0]) == len(ranks) - 1 and not ranks[0] % len(ranks)
    return ranks if neighbours and 2 * len(ranks) <= len(change_ns) else None


def _each_time(values: Times, longer: Flags, limits: Limits) -> bool:
    """Is each column (s, n) larger in nearly all `longer` iterations (s,) than in the others?"""
    least = -most_of(-values[longer], limits)
    return bool((least > most_of(values[~longer], limits)).all())
