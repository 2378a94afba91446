"""What a kernel leaves in buffers: data that is sent when the next operation has already begun.

A kernel of a collective ends when its last data is in a buffer of NCCL's; the proxy sends that data
afterwards. So the volume that an operation lacks when the next one begins is either still in a
buffer, or was lost from the record. A queue pair keeps the order: buffered data is sent first, so
sooner or later an operation begins with nothing missing. Lost volume stays missing.
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


def begins_within(
    lane: Ints, expected_bytes: Ints, sent_bytes: Ints, is_open: Truths | None = None
) -> Truths:
    """Whether some of what was sent since an operation began (p,) is another's, or some of its own
    was sent before: as in `begins_late`, where nothing but payload was counted.

    What is missing, or too much, is then made up for to the byte: between two moments of the same
    balance, an operation that begins with another does not begin with its own data. A lane ends
    with nothing missing where its last operation is in flight: `is_open` (p,).
    """
    if not len(lane):
        return np.zeros(0, dtype=bool)
    number = np.cumsum(np.diff(lane, prepend=lane[:1]) > 0)
    opens, closes = np.diff(number, prepend=-1) > 0, np.diff(number, append=number[-1] + 1) > 0
    missing = expected_bytes - sent_bytes
    so_far = np.cumsum(missing) - missing
    balance = so_far - so_far[opens][number]  # as each begins; then as its lane ends
    at_end = np.where(is_open, 0, balance + missing) if is_open is not None else balance + missing
    spans = _inside(
        np.insert(number, np.flatnonzero(closes) + 1, number[closes]),
        np.insert(balance, np.flatnonzero(closes) + 1, at_end[closes]),
    )
    within: Truths = spans[np.arange(len(lane)) + number] > 0
    return within


def _inside(lane: Ints, balance: Ints) -> Ints:
    """How many other balances are met again, in its lane, around each moment (n,)."""
    count = len(lane)
    place = np.arange(count)
    order = np.lexsort((place, balance, lane))
    again = (np.diff(lane[order]) == 0) & (np.diff(balance[order]) == 0)
    first, last = order[np.append(True, ~again)], order[np.append(~again, True)]
    depth = np.zeros(count + 1, dtype=np.int64)
    np.add.at(depth, np.minimum(first + 1, last), 1)
    np.add.at(depth, last, -1)
    own = np.zeros(count, dtype=np.int64)
    own[order] = np.cumsum(np.append(True, ~again)) - 1
    is_in_own = (first[own] < place) & (place < last[own])
    inside: Ints = np.cumsum(depth)[:count] - is_in_own
    return inside
