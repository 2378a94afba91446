"""Jobs that became slower and stayed so, where no cause accounts for it."""

from __future__ import annotations

from dataclasses import dataclass
from math import comb

import numpy as np

from oncall.analysis.lost_time.books import Books
from oncall.analysis.lost_time.limits import Limits
from oncall.analysis.lost_time.measured import median
from oncall.analysis.lost_time.programs import Ints, Times


@dataclass(frozen=True)
class Slowdown:
    """From `begin_ns` on all iterations (`segments` of them) were longer than any before, by the
    `share` of their length."""

    begin_ns: int
    share: float
    segments: int


def slowdowns_of(books: Books, limits: Limits) -> list[Slowdown]:
    """The lasting changes of like iterations, of the class that changed most.

    Iterations of one class make the same calls of the same sizes: what makes all of them longer
    from one on is no other phase of the program. Where they become short again, it may be one.
    """
    each = [lasting(one.length_ns, one.begin_ns, limits) for one in books.classes]
    return max(each, key=lambda found: found[0].share * found[0].segments if found else 0.0)


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
        clear = shortest * (1 - limits.lasting) > longest or chance < limits.by_chance
        if clear and share >= limits.least_gain:
            found.append(Slowdown(int(begin_ns[order[split]]), share, len(after)))
    return sorted(found, key=lambda one: -one.share)


def most_of(values: Times, limits: Limits) -> Times:
    """The largest of values (n, ...) along the first axis, NaN and single events apart."""
    known = np.sort(np.where(np.isnan(values), -np.inf, values), axis=0)
    return np.asarray(known[-1 - len(known) // limits.event])


def _middle(values: Times) -> float:
    return float(median(values, 0))
