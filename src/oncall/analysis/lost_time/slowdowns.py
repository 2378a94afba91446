"""Jobs that became slower for good, which no cause accounts for."""

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


def slowdown_of(books: Books, limits: Limits) -> Slowdown | None:
    """The largest lasting change of like iterations, if there is one.

    Iterations of one class make the same calls of the same sizes: what makes all of them longer
    from one on is no other phase of the program. Where they become short again, it may be one.
    """
    each = [lasting(one.length_ns, one.begin_ns, limits) for one in books.classes]
    found = [one for one in each if one is not None]
    return max(found, key=lambda one: one.share * one.segments, default=None)


def lasting(length_ns: Times, begin_ns: Ints, limits: Limits) -> Slowdown | None:
    """The first change from which on all of the like iterations (s,) are longer than any before:
    clearly, or so many that lengths drawn by chance would hardly fall so."""
    order = np.argsort(begin_ns, kind="stable")
    length = length_ns[order]
    splits = range(limits.repeats, len(length) - 1)  # one long iteration is an event
    for split in splits:
        before, after = length[:split], length[split:]
        if after.min() <= before.max():
            continue
        share = 1 - _middle(before) / _middle(after)
        chance = len(splits) / comb(len(length), split)
        clear = after.min() * (1 - limits.lasting) > before.max() or chance < limits.by_chance
        if share >= limits.least_gain and clear:
            return Slowdown(int(begin_ns[order[split]]), share, len(after))
    return None


def _middle(values: Times) -> float:
    return float(median(values, 0))
