"""Exposed communication: the time in which a rank communicates, and computes nothing meanwhile.

Ranks that wait for another one expose what it spends. On a device an NCCL kernel runs, and no
other. On a host (gloo) an operation is in flight, and no thread of the program is in an operator
until it ends. That needs neither groups nor the other sides of transfers.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np

Array: TypeAlias = np.ndarray[Any, Any]

EVERY_NS = 5_000_000  # short beside a step; the profile of a minute has 12,000 of these


@dataclass
class Activity:
    """What a process did while it was profiled, by the trace's own clock.

    `kernels` are (start, end) of those that compute; `spans` are (thread, start, end, whether it is
    an operator) of what its threads were in. `callers` are threads that call collectives.
    """

    kernels: array[int] = field(default_factory=lambda: array("q"))
    spans: array[int] = field(default_factory=lambda: array("q"))
    callers: set[int] = field(default_factory=set)
    helpers: set[int] = field(default_factory=set)  # threads that gloo's operations end on

    def computed(self) -> Array:
        """When devices computed (n, 2)."""
        return np.frombuffer(self.kernels, dtype=np.int64).reshape(-1, 2)

    def operators(self) -> Array:
        """When the program's threads were in an operator with nothing inside it (n, 2)."""
        every = np.frombuffer(self.spans, dtype=np.int64).reshape(-1, 4)
        every = every[~np.isin(every[:, 0], [*(self.helpers - self.callers)])]
        every = every[np.lexsort((-every[:, 2], every[:, 1], every[:, 0]))]
        last = np.diff(every[:, 0], append=-1) != 0
        alone = last | (np.roll(every[:, 1], -1) >= every[:, 2])
        return np.asarray(every[alone & (every[:, 3] == 1), 1:3])


def exposed_time(activity: Activity, kernels: Array, gloo: Array) -> Array:
    """Rows (n, 3) of start, end, and how much of the time between was exposed communication.

    `kernels` and `gloo` are (start, end) of NCCL kernels and of operations of gloo.
    """
    spans = activity.computed() if len(kernels) else activity.operators()
    every = np.concatenate([spans, kernels, gloo])
    if not len(kernels) and not len(gloo):
        return np.zeros((0, 3), dtype=np.int64)
    busy = _merged(spans)
    exposed = _beside(_merged(kernels), busy) if len(kernels) else _until_ends(gloo, busy)
    begin, end = int(every[:, 0].min()) // EVERY_NS, -(-int(every[:, 1].max()) // EVERY_NS)
    edges = np.arange(begin, end + 1) * EVERY_NS
    return np.stack([edges[:-1], edges[1:], np.diff(_before(exposed, edges))], axis=1)


def _merged(spans: Array) -> Array:
    """Spans (n, 2) in order, those that overlap made one."""
    ordered = spans[np.argsort(spans[:, 0], kind="stable")]
    if not len(ordered):
        return ordered
    until = np.maximum.accumulate(ordered[:, 1])
    first = np.append(True, ordered[1:, 0] > until[:-1])
    last = np.append(first[1:], True)
    return np.stack([ordered[first, 0], until[last]], axis=1)


def _beside(spans: Array, busy: Array) -> Array:
    """The parts of merged spans (n, 2) in which nothing of merged `busy` runs."""
    edges = np.unique(np.concatenate([spans.ravel(), busy.ravel()]))
    parts = np.stack([edges[:-1], edges[1:]], axis=1)
    return np.asarray(parts[_within(parts[:, 0], spans) & ~_within(parts[:, 0], busy)])


def _within(at: Array, spans: Array) -> Array:
    """Whether each instant lies in one of the merged spans."""
    place = np.searchsorted(spans[:, 0], at, side="right") - 1
    return (
        np.asarray((place >= 0) & (at < spans[np.maximum(place, 0), 1])) if len(spans) else at < at
    )


def _until_ends(operations: Array, busy: Array) -> Array:
    """When the host waited for operations (n, 2): it did nothing, and one of them ended before it
    went on. What goes on beside an operation that ends later is its own."""
    return np.array([*_waits(operations, busy)], dtype=np.int64).reshape(-1, 2)


def _waits(operations: Array, busy: Array) -> Iterator[tuple[int, int]]:
    ordered = operations[np.argsort(operations[:, 1], kind="stable")]
    begins = np.append(np.iinfo(np.int64).min, busy[:, 1])
    ends = np.append(busy[:, 0], np.iinfo(np.int64).max)
    low = np.searchsorted(ordered[:, 1], begins, side="right")
    high = np.searchsorted(ordered[:, 1], ends, side="right")
    for gap in np.flatnonzero(high > low).tolist():
        inside = ordered[low[gap] : high[gap]]
        last = int(begins[gap])
        for start, end in sorted(inside.tolist()):
            if end > max(start, last):
                yield max(start, last), end
                last = end


def _before(spans: Array, at: Array) -> Array:
    """How much of the disjoint, ordered spans lies before each instant."""
    if not len(spans):
        return np.zeros(len(at), dtype=np.int64)
    total = np.append(0, np.cumsum(spans[:, 1] - spans[:, 0]))
    place = np.searchsorted(spans[:, 0], at, side="right")
    over = np.maximum(spans[np.maximum(place - 1, 0), 1] - at, 0)
    return np.asarray(total[place] - np.where(place > 0, over, 0))
