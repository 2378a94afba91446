"""Statistics of alternating pairs: medians, and intervals that assume nothing of the noise."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import median


def interval(values: Sequence[float], confidence: float = 0.95) -> tuple[float, float]:
    """A confidence interval of the median: the order statistics that hold it that often.

    Too few values for that give their whole range.
    """
    ordered = sorted(values)
    count = len(ordered)
    outside, below = 0.0, 0
    while below < count // 2:
        outside += math.comb(count, below) / 2**count
        if 2 * outside > 1 - confidence:
            break
        below += 1
    below = max(0, below - 1)
    return ordered[below], ordered[count - 1 - below]


def shown(values: Sequence[float], unit: str, digits: int) -> str:
    """Median and interval: `+0.1 % (-0.2 to +0.3)`."""
    low, high = interval(values)
    return f"{median(values):+.{digits}f} {unit} ({low:+.{digits}f} to {high:+.{digits}f})"
