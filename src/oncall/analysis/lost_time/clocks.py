"""Calls of all ranks on one time axis, by what all hosts do together.

All hosts leave a cut together, so a rank that seems to leave early or late there has a clock that
is off by as much. A rank may be late for other reasons: only its early iterations count.

This fails where a host works for long before its first call after the cut. So clocks are left as
they are if, by them, no host goes on from a call before its last member has come.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from oncall.analysis.lost_time.graph import Graph
from oncall.analysis.lost_time.limits import Limits
from oncall.analysis.lost_time.measured import Measured, median
from oncall.analysis.lost_time.programs import Times

_TURNS = 3  # after which medians of ranks and of segments hardly change


def on_one_axis(
    classes: Sequence[Measured], graphs: Sequence[Graph], limits: Limits
) -> list[Measured]:
    """The same times (one entry a class of segments) by the clock of the median rank.

    The largest class decides: what precedes it is alike, as the end of an evaluation is not.
    """
    largest = max(classes, key=lambda one: len(one.call))
    offset, elsewhere = _ahead([largest], limits), _ahead(classes, limits)
    offset = np.nan_to_num(np.where(np.isnan(offset), elsewhere, offset))
    moved = [replace(one, call=one.call - offset[None, :, None]) for one in classes]
    as_recorded = _gone_early(classes, graphs)
    believed = as_recorded <= min(limits.negligible, _gone_early(moved, graphs))
    return [*classes] if believed else moved


def _gone_early(classes: Sequence[Measured], graphs: Sequence[Graph]) -> float:
    """The share of calls from which hosts go on before their last member has come."""
    early, calls = 0, 0
    for one, graph in zip(classes, graphs, strict=True):
        rounds = graph.rounds
        if len(rounds):
            rank, place = rounds.nodes // graph.width, rounds.nodes % graph.width
            last = np.fmax.reduceat(one.call[:, rank, place], rounds.start, axis=1)
            over = one.call[:, rank, place + 1] - np.repeat(last, rounds.size, axis=1)
            early += int((over < 0).sum())
            calls += int((~np.isnan(over)).sum())
    return early / max(calls, 1)


def _ahead(classes: Sequence[Measured], limits: Limits) -> Times:
    """By how much each rank's clock is ahead (r,), NaN if unknown: a low value that was measured.

    By medians of ranks and of segments in turn: whoever is missing in one moves it no further.
    """
    found = []
    for one in classes:
        first = one.begin_ns + one.call[:, :, 0]
        offset = np.zeros(first.shape[1])
        for _ in range(_TURNS):
            begin = median(first - offset, 1)
            offset = np.nan_to_num(median(first - begin[:, None], 0))
        found.append(first - begin[:, None])
    ordered = np.sort(np.concatenate(found), axis=0)
    at = np.maximum(np.sum(~np.isnan(ordered), axis=0) - 1, 0) * limits.ordinary
    return np.asarray(np.take_along_axis(ordered, at.astype(np.int64)[None], 0)[0])
