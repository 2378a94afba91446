"""Sorting millions of rows by two whole numbers at once."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]


def sorted_by(major: Ints, minor: Ints) -> Ints:
    """The order (n,) of rows by `major`, then `minor`, ties in their order; both int64 (n,)."""
    if not len(major):
        return np.zeros(0, dtype=np.int64)
    low, span = int(minor.min()), int(minor.max()) - int(minor.min()) + 1
    groups = int(major.max()) - int(major.min()) + 1
    if groups * span < 2**63:
        # One key sorts three times as fast as two.
        return np.argsort((major - major.min()) * span + (minor - low), kind="stable")
    return np.lexsort((minor, major))
