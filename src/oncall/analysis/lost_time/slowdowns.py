"""Jobs that became slower and stayed so, or become slower again and again, where no cause accounts
for it."""

from __future__ import annotations

from dataclasses import dataclass
from math import comb

import numpy as np

from oncall.analysis.lost_time.books import Books
from oncall.analysis.lost_time.iterations import Iterations
from oncall.analysis.lost_time.limits import Limits
from oncall.analysis.lost_time.measured import median
from oncall.analysis.lost_time.programs import Flags, Ints, Times


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
    _, kind, counts = np.unique(iterations.program, axis=0, return_inverse=True, return_counts=True)
    other = kind.ravel() != int(np.argmax(counts))
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
