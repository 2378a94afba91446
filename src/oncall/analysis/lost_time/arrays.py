"""Arrays of times, and numbers for what is equal."""

from __future__ import annotations

import warnings
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from oncall.analysis.common.ordering import order_of

Ints = NDArray[np.int64]
Hashes = NDArray[np.uint64]
Times = NDArray[np.float64]
Flags = NDArray[np.bool_]
Codes = NDArray[np.int16]
NONE = -1
_NUMBERS_AT_ONCE = 1 << 17  # 1 MB: some such arrays are worked on together
_CLOSE = 8  # of a table, entries for each value


def few_ranks(times: Times) -> Iterator[slice]:
    """Some ranks at a time of arrays like `times` (s, r, width): as many as the processor's cache
    has room for."""
    segments, ranks, width = times.shape
    each = max(1, _NUMBERS_AT_ONCE // max(1, segments * width))
    for begin in range(0, ranks, each):
        yield slice(begin, begin + each)


def smallest(values: Times, axis: int) -> Times:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        return np.asarray(np.nanmin(values, axis=axis))


def most_frequent(values: Hashes) -> Hashes:
    """The value of each column (r,) that most rows (s, r) have, of several the least; 0 counts only
    where a column has nothing else."""
    ordered = np.sort(values, axis=0)
    row = np.arange(len(ordered))[:, None]
    new = np.diff(ordered, axis=0, prepend=ordered[:1]) != 0
    votes = row - np.maximum.accumulate(np.where(new, row, 0), axis=0) + 1
    best = np.argmax(votes * (ordered != 0), axis=0)
    return np.asarray(np.take_along_axis(ordered, best[None], 0)[0])


def nth_of(key: Ints) -> Ints:
    """How many equal keys come before each (n,)."""
    order = order_of(key)
    begins = np.diff(key[order], prepend=-1) != 0
    place = np.arange(len(key))
    found = np.empty(len(key), dtype=np.int64)
    found[order] = place - np.maximum.accumulate(np.where(begins, place, 0))
    return found


def pairs_of(first: Ints, second: Ints) -> tuple[Ints, Ints]:
    """The different pairs among (n,) pairs of places, in order."""
    both = np.unique(first << 32 | second)
    return both >> 32, both & 0xFFFFFFFF


def numbered(*columns: Ints | Codes) -> Ints:
    """A number for each combination of values (n,), in their order."""
    found, _ = _ranked(columns[0])
    for column in columns[1:]:
        place, different = _ranked(column)
        found, _ = _ranked(found * different + place)
    return found


def _ranked(values: Ints | Codes) -> tuple[Ints, int]:
    """The place (n,) of each among the different values, and how many these are. Of values that
    lie close together a table says it; sorting them takes ten times as long."""
    least = int(values.min(initial=0))
    span = int(values.max(initial=0)) - least + 1
    if span > _CLOSE * len(values):
        known = np.unique(values)
        return np.searchsorted(known, values), len(known)
    seen = np.zeros(span, dtype=np.bool_)
    seen[values - least] = True
    number = np.cumsum(seen) - 1
    return number[values - least], int(number[-1]) + 1
