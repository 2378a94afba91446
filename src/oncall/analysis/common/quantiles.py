"""Quantiles of what is known: NaN is not known, and does not count."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from oncall.analysis.common.ordering import order_of

Ints = NDArray[np.int64]
Times = NDArray[np.float64]


def quantile(values: Times, share: float, axis: int) -> Times:
    """As numpy's nanquantile, by one sort of the whole array; NaN where nothing is known."""
    ordered = np.array(np.moveaxis(values, axis, -1), order="C")
    if not ordered.shape[-1]:
        return np.full(ordered.shape[:-1], np.nan)
    ordered.sort(axis=-1)
    last = np.maximum(np.sum(~np.isnan(ordered), axis=-1) - 1, 0)
    at = last * share
    low = at.astype(np.int64)
    below = np.take_along_axis(ordered, low[..., None], -1)[..., 0]
    above = np.take_along_axis(ordered, np.minimum(low + 1, last)[..., None], -1)[..., 0]
    return np.asarray(below + (above - below) * (at - low))


def median(values: Times, axis: int) -> Times:
    """The median of what is known, NaN where nothing is."""
    return quantile(values, 0.5, axis)


def quantile_of_alike(key: Ints, values: Times, share: float) -> tuple[Times, Ints]:
    """Of each value (n,) the quantile of all that have its key, of two the less, and how many of
    these are known."""
    order = order_of(key)
    ordered, grouped = key[order], values[order]
    start = np.flatnonzero(np.diff(ordered, prepend=ordered[:1] - 1))
    size = np.diff(start, append=len(key))
    for each in np.unique(size):  # rows of one length sort several times as fast as all together
        rows = start[size == each, None] + np.arange(each)
        grouped[rows] = np.sort(grouped[rows], axis=1)  # NaN last
    known = np.add.reduceat(np.isfinite(grouped), start) if len(key) else size
    place = (np.maximum(known - 1, 0) * share).astype(np.int64)
    found, number = np.empty(len(key)), np.empty(len(key), dtype=np.int64)
    found[order] = np.repeat(grouped[start + place], size)
    number[order] = np.repeat(known, size)
    return found, number


def median_of_alike(key: Ints, values: Times) -> tuple[Times, Ints]:
    """The same of the median."""
    return quantile_of_alike(key, values, 0.5)
