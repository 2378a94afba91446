"""Quantiles of each row of a matrix in which some values are unknown."""

from __future__ import annotations

import numpy as np

from oncall.analysis.tasks.schedules import Array


def quantile_of(values: Array, known: Array, share: float) -> Array:
    """The quantile of the known values of each row (rows,), between two of them as numpy's; NaN
    where there is none. `values`, `known` (rows, n)."""
    known = np.broadcast_to(known, values.shape)
    count = known.sum(axis=-1)
    if not values.shape[-1] or not count.any():
        return np.full(values.shape[:-1], np.nan)
    ordered = np.sort(np.where(known, values, np.inf), axis=-1)
    ordered = np.where(count[..., np.newaxis] > 0, ordered, 0.0)
    place = share * np.maximum(count - 1, 0)
    below = np.floor(place).astype(np.int64)
    above = np.minimum(below + 1, np.maximum(count - 1, 0))
    low, high = (_picked(ordered, each) for each in (below, above))
    part, step = place - below, high - low
    found = np.where(part < 0.5, low + step * part, high - step * (1 - part))
    return np.asarray(np.where(count > 0, found, np.nan))


def median_of(values: Array, known: Array) -> Array:
    """The same of the median."""
    return quantile_of(values, known, 0.5)


def _picked(ordered: Array, place: Array) -> Array:
    return np.take_along_axis(ordered, place[..., np.newaxis], axis=-1)[..., 0]


def before(values: Array, first: object) -> Array:
    """For each of the last axis the value of the one before it, `first` for the first."""
    opening = np.full((*values.shape[:-1], 1), first, dtype=values.dtype)
    return np.concatenate([opening, values[..., :-1]], axis=-1)[..., : values.shape[-1]]


def after(values: Array, last: object) -> Array:
    """For each of the last axis the value of the one after it, `last` for the last."""
    return before(values[..., ::-1], last)[..., ::-1]
