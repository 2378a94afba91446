"""The times of like iterations as they were recorded, place by place."""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np

from oncall.analysis.lost_time.graph import Graph
from oncall.analysis.lost_time.limits import Limits
from oncall.analysis.lost_time.programs import NONE, Flags, Programs, Times
from oncall.analysis.lost_time.segments import Segments


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
    place = segments.first[:, :, None] + np.arange(graph.width + 1)
    inside = known[:, :, None] & (np.arange(graph.width + 1) <= graph.length[:, None])
    place = np.where(inside, place, 0)
    base = int(programs.at_ns[place[inside]].min())
    call = np.where(inside, (programs.at_ns - base).astype(np.float64)[place], np.nan)
    within = inside[:, :, :-1] & graph.exists
    duration = np.where(within, programs.duration_ns[place[:, :, :-1]], np.nan)
    there = ~np.isnan(call[:, :, :-1])
    timed = bool(there.any() and np.isfinite(duration[there]).mean() > limits.timed)
    if not programs.on_device:
        return Measured(base, call[:, :, 0], call, duration, known, timed)
    over = programs.at_ns - base + programs.duration_ns
    left = np.where(known, over[segments.first - 1], np.nan)
    behind = np.broadcast_to(graph.length[:, None], call.shape) == np.arange(graph.width + 1)
    call = np.where(behind & inside, over[np.maximum(place - 1, 0)], call)
    return Measured(base, left, call, duration, known, timed)


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
