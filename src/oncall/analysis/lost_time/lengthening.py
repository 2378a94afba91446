"""Whether iterations have become longer, where nothing recorded shows why.

A job in which each of the last iterations takes much longer than any of the first is slow, whether
or not its operations show for whom it waits: some recorders keep no sends and receives.
"""

from __future__ import annotations

import numpy as np

from oncall.analysis.lost_time.causes import Entry
from oncall.analysis.lost_time.limits import Limits
from oncall.analysis.lost_time.programs import Ints, Times


def lengthened(length_ns: Times, begin_ns: Ints, limits: Limits) -> Entry | None:
    """By how much the last iterations are longer than the first; nobody is named."""
    ordered = length_ns[np.argsort(begin_ns, kind="stable")]
    number = max(limits.repeats, int(limits.ends * len(ordered)))
    first, last = ordered[:number], ordered[-number:]
    if len(ordered) < 2 * number or last.min() < (1 + limits.too_much) * first.max():
        return None
    return Entry(
        cause="unexplained",
        ranks=(),
        share=float(1 - np.median(first) / np.median(last)),
        low=float(1 - first.max() / last.min()),
        segments=number,
        gain_ns=float(last.sum() - number * np.median(first)),
        begin_ns=int(np.sort(begin_ns)[-number]),
    )
