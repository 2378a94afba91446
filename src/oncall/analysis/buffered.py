"""What a kernel leaves in buffers: sent when the next operation has begun already.

A kernel of a collective ends when its last data is in a buffer of NCCL's, and the proxy sends it
after that. So what is missing of an operation when the next one begins is either on its way, or
was lost from the record. On its way it comes first, for a queue pair keeps the order: sooner or
later an operation begins with nothing missing. What was lost stays missing.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Truths = NDArray[np.bool_]


def begins_late(lane: Ints, expected_bytes: Ints, sent_bytes: Ints) -> Truths:
    """Whether what was sent since an operation began (p,) is at first that of those before it.

    All (p,), by lane, then in order: its lane, its volume, and what was sent from its beginning
    to that of the next one. More than the volume is overhead, and pays for nothing missing.
    """
    count = len(lane)
    missing = expected_bytes - sent_bytes
    so_far = np.cumsum(missing)
    # The least so far within the lane, its beginning included: where nothing was missing.
    lowest = np.minimum(so_far, so_far - missing)
    order = np.argsort(lowest, kind="stable")
    rank = np.empty(count, dtype=np.int64)
    rank[order] = np.arange(count)
    number = np.cumsum(np.diff(lane, prepend=lane[:1]) > 0)
    running = np.minimum.accumulate(rank - count * number) + count * number
    backlog = so_far - lowest[order[running]]
    settled = np.append(np.flatnonzero(backlog == 0), count)
    next_settled = settled[np.searchsorted(settled, np.arange(count))]
    lane_ends = np.searchsorted(number, number, side="right")
    on_its_way = (backlog > 0) & (next_settled < lane_ends)
    return np.append(False, on_its_way[:-1] & (np.diff(number) == 0))
