"""Windows of work requests: how fast a queue pair worked through the last few (VenusTrace 3.2.2).

A request may be posted long before the one ahead of it is over, so single requests show no rate; a
window of them does. A window ends after `w` requests, or earlier when nothing is outstanding, so
that it contains no idle time.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]

REQUESTS = 50  # VenusTrace 4: the size of its window


@dataclass(frozen=True)
class Runs:
    """Requests that one completion retired: arrays (n,), by flow, then in order of completion."""

    flow: Ints
    begun_ns: Ints  # posted, or the completion before if that was later
    completed_ns: Ints
    requests: Ints
    bytes: Ints
    outstanding: Ints  # after the completion


@dataclass(frozen=True)
class Windows:
    """Arrays (m,), by flow, then by time. `full`: of w requests or more."""

    flow: Ints
    start_ns: Ints
    end_ns: Ints
    posted: Ints
    completed: Ints
    outstanding: Ints
    bytes: Ints
    full: NDArray[np.bool_]


def windows(runs: Runs, w: int = REQUESTS) -> Windows:
    """The windows that the runs make up. The last of a flow may go on with what comes next: it is
    a window of its own here."""
    n = len(runs.flow)
    if not n:
        empty = np.zeros(0, np.int64)
        return Windows(*(empty,) * 7, full=np.zeros(0, np.bool_))
    busy_ends = (runs.outstanding == 0) | (np.diff(runs.flow, append=runs.flow[-1] + 1) != 0)
    busy = np.cumsum(busy_ends) - busy_ends  # number of the busy period (n,)
    before = np.cumsum(runs.requests) - runs.requests
    first_of_busy = np.searchsorted(busy, busy, side="left")
    within = (before - before[first_of_busy]) // w
    opens = np.ones(n, dtype=bool)
    opens[1:] = (np.diff(busy) != 0) | (np.diff(within) != 0)
    at = np.flatnonzero(opens)
    last = np.append(at[1:], n) - 1
    completed = np.add.reduceat(runs.requests, at)
    outstanding = runs.outstanding[last]
    # At the start: what the first run left outstanding, and itself; nothing in a busy period's
    # first window, whose requests are all posted in it.
    earlier = np.where(first_of_busy[at] == at, 0, runs.outstanding[at] + runs.requests[at])
    return Windows(
        flow=runs.flow[at],
        start_ns=runs.begun_ns[at],
        end_ns=runs.completed_ns[last],
        posted=np.maximum(completed + outstanding - earlier, 0),
        completed=completed,
        outstanding=outstanding,
        bytes=np.add.reduceat(runs.bytes, at),
        full=completed >= w,
    )


def representative(found: Windows) -> Ints:
    """Which window of each flow to keep: the slowest full one; without one, the largest."""
    lasted_ns = np.maximum(found.end_ns - found.start_ns, 1)
    speed = np.where(found.full, found.bytes / lasted_ns, np.inf)
    order = np.lexsort((-found.bytes, speed, found.flow))
    is_first = np.diff(found.flow[order], prepend=-1) != 0
    kept: Ints = np.sort(order[is_first])
    return kept
