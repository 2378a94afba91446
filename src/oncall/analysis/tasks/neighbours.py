"""What comes before and after each of a row."""

from __future__ import annotations

import numpy as np

from oncall.analysis.tasks.schedules import Array


def before(values: Array, first: object) -> Array:
    """For each of the last axis the value of the one before it, `first` for the first."""
    opening = np.full((*values.shape[:-1], 1), first, dtype=values.dtype)
    return np.concatenate([opening, values[..., :-1]], axis=-1)[..., : values.shape[-1]]


def after(values: Array, last: object) -> Array:
    """For each of the last axis the value of the one after it, `last` for the last."""
    return before(values[..., ::-1], last)[..., ::-1]
