"""Who shares a communicator, where the log does not say: read from the calls themselves.

Members of one communicator issue the same operation under the same number, and they issue it
together: the difference of their call times hardly varies, while it wanders by many operations
between ranks that merely run the same program. Where that gap is not plain, nothing is claimed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]

LEAST_COMMON = 8  # operations two lanes must share before anything is read from them
MOST_LANES = 1024  # five of each of 200 ranks; the comparison is quadratic
_LEAST_AGREEMENT = 0.99  # one wrong call at the end (CCL-D H2) must not hide a communicator
_PLAIN = 4.0  # members are this much closer in time than any stranger is
_ALIKE = 2.5  # and among themselves no step is larger than this
_HOST_JITTER_NS = 100_000.0  # closer than this, differences say nothing
_SAMPLES = 2048


@dataclass(frozen=True)
class Lane:
    """The collectives of one rank on one stream: numbers that rise, kinds of call, times; (n,)."""

    rank: int
    seq: Array
    call: Array
    at_ns: Array


def find_groups(lanes: Sequence[Lane]) -> list[tuple[int, ...]]:
    """Lanes (by index) that are one communicator; lanes of which this is not plain are in none."""
    usable = [i for i, lane in enumerate(lanes) if len(lane.seq) >= LEAST_COMMON]
    if len(usable) > MOST_LANES or not usable:
        return []
    spread, together = _compare([lanes[i] for i in usable])
    ranks = [lanes[i].rank for i in usable]
    groups: list[tuple[int, ...]] = []
    for cluster in _clusters(range(len(usable)), _edges(spread, together)):
        groups += _settle(cluster, spread, together, ranks)
    return [tuple(usable[i] for i in group) for group in groups]


# ---------------------------------------------------------------- comparing


def _compare(lanes: Sequence[Lane]) -> tuple[Array, Array]:
    """For each two lanes: how much their time difference varies (ns, inf if the calls differ),
    and whether that is less than the time from one operation to the next."""
    call, at = _sample(lanes)
    n = len(lanes)
    spread = np.full((n, n), np.inf)
    together = np.zeros((n, n), dtype=bool)
    for i in range(n - 1):
        rest = slice(i + 1, n)
        both = (call[rest] >= 0) & (call[i] >= 0)
        same = both & (call[rest] == call[i])
        common, agree = both.sum(axis=1), same.sum(axis=1)
        likely = (common >= LEAST_COMMON) & (agree >= _LEAST_AGREEMENT * common)
        likely &= np.array([lane.rank != lanes[i].rank for lane in lanes[rest]])
        for j in np.flatnonzero(likely) + i + 1:
            shared = same[j - i - 1]
            difference = at[j, shared] - at[i, shared]
            varies = np.median(np.abs(difference - np.median(difference)))
            spread[i, j] = spread[j, i] = max(varies, _HOST_JITTER_NS)
            pace = (at[i, shared].max() - at[i, shared].min()) / max(1, shared.sum() - 1)
            together[i, j] = together[j, i] = spread[i, j] <= max(pace, _HOST_JITTER_NS)
    return spread, together


def _sample(lanes: Sequence[Lane]) -> tuple[Array, Array]:
    """Calls (lanes, k; -1: none) and times (lanes, k) at numbers that several lanes have."""
    numbers, lanes_with = np.unique(
        np.concatenate([np.unique(lane.seq) for lane in lanes]), return_counts=True
    )
    numbers = numbers[lanes_with > 1]
    # Low numbers belong to communicators that are seldom used: all of them, then every so many.
    few = numbers[: _SAMPLES // 2]
    many = numbers[_SAMPLES // 2 :]
    numbers = np.concatenate([few, many[:: max(1, len(many) // (_SAMPLES // 2))]])
    call = np.full((len(lanes), len(numbers)), -1, dtype=np.int64)
    at = np.zeros((len(lanes), len(numbers)))
    origin = min(int(lane.at_ns.min()) for lane in lanes)
    for row, lane in enumerate(lanes):
        place = np.minimum(np.searchsorted(lane.seq, numbers), len(lane.seq) - 1)
        there = lane.seq[place] == numbers
        call[row, there] = lane.call[place[there]]
        at[row, there] = (lane.at_ns[place[there]] - origin).astype(np.float64)
    return call, at


# --------------------------------------------------------------- clustering


def _edges(spread: Array, together: Array) -> list[tuple[float, int, int]]:
    first, second = np.nonzero(np.triu(together))
    return sorted((float(spread[i, j]), int(i), int(j)) for i, j in zip(first, second, strict=True))


def _clusters(
    lanes: Iterable[int], edges: Sequence[tuple[float, int, int]]
) -> list[tuple[list[int], list[float]]]:
    """Connected lanes, each with the heights at which they joined (a minimum spanning forest)."""
    parent = {lane: lane for lane in lanes}
    heights: dict[int, list[float]] = {lane: [] for lane in parent}

    def root(lane: int) -> int:
        while parent[lane] != lane:
            parent[lane] = parent[parent[lane]]
            lane = parent[lane]
        return lane

    for height, i, j in edges:
        a, b = root(i), root(j)
        if a != b:
            parent[b] = a
            heights[a] += [*heights.pop(b), height]
    members: dict[int, list[int]] = {}
    for lane in parent:
        members.setdefault(root(lane), []).append(lane)
    return [(members[top], sorted(heights[top])) for top in heights]


def _settle(
    cluster: tuple[list[int], list[float]], spread: Array, together: Array, ranks: Sequence[int]
) -> list[tuple[int, ...]]:
    """The communicators in a cluster: itself, its parts where a gap is plain, or none."""
    lanes, heights = cluster
    if len(lanes) < 2:
        return []
    steps = np.array(heights[1:]) / np.array(heights[:-1])
    widest = int(steps.argmax()) if len(steps) else 0
    if len(steps) and steps[widest] >= _PLAIN:
        here = np.isin(np.arange(len(ranks)), lanes)
        close = together & np.outer(here, here) & (spread <= heights[widest])
        parts = _clusters(lanes, _edges(spread, close))
        return [group for part in parts for group in _settle(part, spread, together, ranks)]
    nearest = np.delete(spread[lanes], lanes, axis=1).min(initial=np.inf)
    alone = nearest >= _PLAIN * heights[-1]
    alike = not len(steps) or steps[widest] <= _ALIKE
    distinct = len({ranks[lane] for lane in lanes}) == len(lanes)
    return [tuple(lanes)] if alone and alike and distinct else []
