"""What belongs together: sends and their receives, equal keys, and the medians of groups."""

from __future__ import annotations

import numpy as np

from oncall.analysis.lost_time.programs import NONE, Ints, Programs, Times


def matched(programs: Programs, number: Ints) -> tuple[Ints, Ints]:
    """The nodes of each send in an iteration (m,) and of its receive (m,): those between two ranks
    in their order. `number` (n,) is the iteration of each node, NONE outside."""
    parts = programs.parts
    mine = np.flatnonzero((number[parts.node] != NONE) & (parts.peer >= 0))
    node, peer, sends = parts.node[mine], parts.peer[mine], parts.sends[mine]
    rank, ranks = programs.rank[node], len(programs.ranks)
    pair = np.where(sends, rank * ranks + peer, peer * ranks + rank)
    pair = 2 * (pair + number[node] * ranks * ranks)
    key = pair << 14 | np.minimum(nth_of(pair + sends), (1 << 14) - 1)
    out, into = np.flatnonzero(sends), np.flatnonzero(~sends)
    _, a, b = np.intersect1d(key[out], key[into], return_indices=True)
    return node[out[a]], node[into[b]]


def nth_of(key: Ints) -> Ints:
    """How many equal keys come before each (n,)."""
    order = np.argsort(key, kind="stable")
    begins = np.diff(key[order], prepend=-1) != 0
    place = np.arange(len(key))
    found = np.empty(len(key), dtype=np.int64)
    found[order] = place - np.maximum.accumulate(np.where(begins, place, 0))
    return found


def medians_of(key: Ints, values: Times) -> tuple[Times, Ints]:
    """Of each value (n,) the median of all that have its key, of two the less, and how many these
    are; values that are NaN do not count."""
    order = np.lexsort((values, key))  # NaN last
    start = np.flatnonzero(np.diff(key[order], prepend=-1))
    size = np.diff(start, append=len(key))
    known = np.add.reduceat(np.isfinite(values[order]), start) if len(key) else size
    middle = values[order][start + np.maximum(known - 1, 0) // 2]
    found, number = np.empty(len(key)), np.empty(len(key), dtype=np.int64)
    found[order], number[order] = np.repeat(middle, size), np.repeat(known, size)
    return found, number
