"""When timed operations ended: between the watchdog's last two looks, and after their durations.

A dump says when the watchdog discovered that an operation was over. It looks every 100 ms
(kWatchdogThreadSleepMillis of each PyTorch that has a recorder), so that this is late by up to as
much: more than most iterations can bear. With timing, an operation ended no sooner than its
duration after its call and after the previous operation on its stream, and it had not ended when
the watchdog last looked without finding it.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

Array: TypeAlias = np.ndarray[Any, Any]

_LOOKS_EVERY_NS = 100_000_000  # of the watchdog


def ended_by_then(
    stream: Array, called_ns: Array, begun_ns: Array, ended_ns: Array, duration_ns: Array
) -> Array:
    """The earliest end (n,) that an entry's times allow, ns; `ended_ns` where it has no duration.

    `stream` (n,) numbers what the device runs one after the other, in the order of entries;
    `begun_ns` and `ended_ns` are when the watchdog discovered it, 0 where it did not.
    """
    timed = np.flatnonzero((ended_ns > 0) & (duration_ns > 0))
    if not len(timed):
        return ended_ns
    timed = timed[np.argsort(stream[timed], kind="stable")]
    called, ended = called_ns[timed], ended_ns[timed]
    took = np.clip(duration_ns[timed], 0, np.maximum(ended - called, 0))  # a file may say anything
    began = np.maximum(called, ended - _LOOKS_EVERY_NS - took)
    began = np.maximum(began, begun_ns[timed] - _LOOKS_EVERY_NS)
    # Each begins once the one before it is over: a running maximum of what lies before their sum.
    first = np.flatnonzero(np.diff(stream[timed], prepend=-1))
    busy = np.cumsum(took) - took
    busy -= np.repeat(busy[first], np.diff(first, append=len(timed)))
    free = np.empty_like(began)
    for begin, end in zip(first, [*first[1:], len(timed)], strict=True):
        free[begin:end] = np.maximum.accumulate((began - busy)[begin:end])
    found = ended_ns.copy()
    found[timed] = np.clip(free + busy + took, np.minimum(called + took, ended), ended)
    return found
