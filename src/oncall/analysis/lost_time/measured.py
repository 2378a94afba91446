"""The times of like iterations as they were recorded, place by place."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from oncall.analysis.lost_time.graph import Graph
from oncall.analysis.lost_time.limits import Limits
from oncall.analysis.lost_time.programs import NONE, Flags, Programs, Times
from oncall.analysis.lost_time.segments import Segments

_NUMBERS_AT_ONCE = 1 << 17  # 1 MB: some such arrays are worked on together


@dataclass(frozen=True)
class Measured:
    """Segments (s) of ranks (r) with `width` places each, ns.

    `call` (s, r, width + 1) by each rank's own clock; the entry behind a rank's last node is when
    it left the cut at the end, `left` (s, r) when it left the one before: a host that waits for its
    device there calls next at once; of devices the end of the cut is known. `duration`
    (s, r, width). NaN: not recorded. `known` (s, r).
    `timed`: operations state how long they took.
    """

    begin_ns: int  # what calls are counted from
    left: Times
    call: Times
    duration: Times
    known: Flags
    timed: bool


def measured(programs: Programs, segments: Segments, graph: Graph, limits: Limits) -> Measured:
    """The calls and durations of each segment."""
    known = segments.first != NONE
    base = int(programs.at_ns[segments.first[known]].min())
    places = np.arange(graph.width + 1)
    inside = places <= graph.length[:, None]
    behind = places == graph.length[:, None]
    call = np.full((*known.shape, graph.width + 1), np.nan)
    duration = np.full((*known.shape, graph.width), np.nan)
    left = np.full(known.shape, np.nan)
    for at, (first, here) in enumerate(zip(segments.first, known, strict=True)):
        rank, place = np.nonzero(inside & here[:, None])
        node = first[rank] + place
        call[at, rank, place] = programs.at_ns[node] - base
        within = place < graph.length[rank]
        duration[at, rank[within], place[within]] = programs.duration_ns[node[within]]
        if programs.on_device:  # a rank leaves a cut when that is over
            mine, before = np.flatnonzero(here), first[here] - 1
            left[at, mine] = programs.at_ns[before] - base + programs.duration_ns[before]
            ends = behind[rank, place]
            last = node[ends] - 1
            call[at, rank[ends], place[ends]] = (
                programs.at_ns[last] - base + programs.duration_ns[last]
            )
    there = ~np.isnan(call[:, :, :-1])
    timed = bool(there.any() and np.isfinite(duration[there]).mean() > limits.nearly_all)
    return Measured(
        base, left if programs.on_device else call[:, :, 0], call, duration, known, timed
    )


def few_ranks(times: Times) -> Iterator[slice]:
    """Some ranks at a time of arrays like `times` (s, r, width): as many as the processor's cache
    has room for."""
    segments, ranks, width = times.shape
    each = max(1, _NUMBERS_AT_ONCE // max(1, segments * width))
    for begin in range(0, ranks, each):
        yield slice(begin, begin + each)


def median(values: Times, axis: int) -> Times:
    """The median of what is known, NaN where nothing is."""
    return quantile(values, 0.5, axis)


def quantile(values: Times, share: float, axis: int) -> Times:
    """As numpy's nanquantile, by one sort of the whole array."""
    ordered = np.sort(np.moveaxis(values, axis, 0), axis=0)
    if not len(ordered):
        return np.full(ordered.shape[1:], np.nan)
    count = np.sum(~np.isnan(ordered), axis=0)
    at = np.maximum(count - 1, 0) * share
    low = np.floor(at).astype(np.int64)
    below = np.take_along_axis(ordered, low[None], 0)[0]
    above = np.take_along_axis(ordered, np.minimum(low + 1, np.maximum(count - 1, 0))[None], 0)[0]
    return np.asarray(below + (above - below) * (at - low))


def smallest(values: Times, axis: int) -> Times:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        return np.asarray(np.nanmin(values, axis=axis))
