"""Which place each rank has in its pipeline, and in its group.

Stages in the middle of a pipeline call the same, and wait differently long by their distance from
its ends. A pipeline is the ranks that send to one another, in the order of their numbers; the same
stage of each has the same place in it. In a ring all call the same, and no place is another. Who
loads data for its group has a place of its own.
"""

from __future__ import annotations

import numpy as np

from oncall.analysis.lost_time.iterations import Iterations
from oncall.analysis.lost_time.leaders import leaders_of
from oncall.analysis.lost_time.moments import numbered
from oncall.analysis.lost_time.programs import ABSENT, NONE, Ints, Programs


def places_of(programs: Programs, iterations: Iterations) -> Ints:
    """The place of each rank (r,), from 0; of those at one place, some may call something else, and
    are a place of their own. Ranks that left nothing behind have theirs as well."""
    parts = programs.parts
    known = np.flatnonzero(parts.peer != NONE)
    peer = parts.peer[known]
    other = np.where(peer <= ABSENT, ABSENT - peer, programs.ranks[np.maximum(peer, 0)])
    one = programs.ranks[programs.rank[parts.node[known]]]
    everyone, number = np.unique(np.concatenate([programs.ranks, one, other]), return_inverse=True)
    mine, one, other = np.split(number, np.cumsum([len(programs.ranks), len(one)]))
    pipeline = _joined(len(everyone), one, other)
    order = np.argsort(pipeline, kind="stable")
    first = np.flatnonzero(np.diff(pipeline[order], prepend=-1))
    place = np.empty(len(everyone), dtype=np.int64)
    place[order] = np.arange(len(order)) - np.repeat(first, np.diff(first, append=len(order)))
    called = np.unique(
        np.stack([pipeline[mine].astype(np.uint64), iterations.mostly_called]), axis=1
    )
    kinds = np.bincount(called[0].astype(np.int64), minlength=len(everyone))
    found = np.where(kinds[pipeline[mine]] > 1, place[mine] + 1, 0)
    stage = np.where(found, numbered(found, iterations.mostly_called.view(np.int64)) + 1, 0)
    return stage * 2 + leaders_of(programs)


def _joined(ranks: int, one: Ints, other: Ints) -> Ints:
    """The smallest of all ranks that each (r,) is joined with, by pairs."""
    found = np.arange(ranks)
    while True:
        least = np.minimum(found[one], found[other])
        joined = found.copy()
        np.minimum.at(joined, one, least)
        np.minimum.at(joined, other, least)
        if (joined == found).all():
            return found
        found = joined
