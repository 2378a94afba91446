"""Which ranks make the same calls, as replicas do, each in communicators of its own; and what the
calls within tasks show: how many belong to a forward, and where a backward begins.

Each layer of each micro-batch makes the same calls, so the calls of a stage repeat; forwards and
backwards differ in what they call, or in how fast. Nothing about the model is known in advance:
lengths are measured where a task is alone, else inferred from the sequence of calls.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import blake2b
from itertools import pairwise

import numpy as np

from oncall.analysis.tasks import thresholds
from oncall.analysis.tasks.schedules import Array

_ODD = np.uint64(0x9E3779B97F4A7C15)  # spreads what differs in few bits over all of them


def group_order(columns: dict[str, Array], goes_on_ns: int) -> Array:
    """The calls, those of one group call with its Sends first, as a rank sends what it has before
    it receives more. Within a group call they have no order: a rank and its replica may record them
    in different orders. Recorders that count group calls in each communicator give equal numbers to
    calls that are not of one group call: those are not made directly one after the other."""
    n = len(columns["rank"])
    order = np.arange(n)
    group = columns["group_id"]
    together = (np.diff(group) == 0) & (group[1:] >= 0) & (np.diff(columns["rank"]) == 0)
    together &= np.diff(columns["called_ns"]) < goes_on_ns
    mine = np.flatnonzero(np.append(False, together) | np.append(together, False))
    run = np.cumsum(np.append(True, ~together))[mine]
    keys = (columns["peer"][mine], columns["seq"][mine], ~columns["send"][mine], run)
    order[mine] = mine[np.lexsort(keys)]
    return order


def likenesses(
    columns: dict[str, Array], begins: Array, named: Mapping[int, int | None]
) -> list[bytes]:
    """What distinguishes the calls of each rank, apart from times and communicators' names."""
    n = len(columns["rank"])
    number = np.cumsum(np.isin(np.arange(n), begins)) - 1
    # A communicator by where the rank first calls in it, a group call by its distance to the first.
    keys = number * (int(columns["place"].max(initial=0)) + 1) + columns["place"]
    _, first, place = np.unique(keys, return_index=True, return_inverse=True)
    group, peer = columns["group_id"].astype(np.int64), columns["peer"].astype(np.int64)
    uses = {place: -1 if use is None else use for place, use in named.items()}
    used = np.array([uses.get(int(place), -1) for place in columns["place"][first]], dtype=np.int64)
    mixed = columns["what"].astype(np.uint64)
    for values in (
        first[place] - begins[number],
        used[place],
        np.where(group >= 0, group - group[begins][number], np.iinfo(np.int64).min),
        np.where(peer >= 0, peer - columns["rank"], np.iinfo(np.int64).min),
        columns["seq"],
        columns["p2p"] * 4 + columns["peer_recorded"] * 2 + (columns["ended_ns"] >= 0),
    ):
        mixed = (mixed ^ np.asarray(values).astype(np.int64).view(np.uint64)) * _ODD
        mixed ^= mixed >> np.uint64(29)
    bounds = pairwise([*begins.tolist(), n])
    return [blake2b(mixed[begin:end].tobytes()).digest() for begin, end in bounds]


def most_frequent(lengths: Array) -> int | None:
    """The most frequent of the lengths (the longest of those), None of none."""
    if not len(lengths):
        return None
    values, counts = np.unique(lengths, return_counts=True)
    return int(values[counts == counts.max()].max())


def period(words: Array, starts: Array) -> int | None:
    """After how many calls the words (n,) repeat, between the places where blocks start; None if
    they do not, or at every call."""
    ends = np.append(starts[1:], len(words))
    longest = int(np.argmax(ends - starts))
    block = words[starts[longest] : ends[longest]]
    n = len(block)
    if n < 2 or (block == block[0]).all():
        return None
    # Distances between equal calls are few where the call is rare, as a loss or a batch's data is.
    values, counts = np.unique(block, return_counts=True)
    rare = values[np.argsort(counts, kind="stable")][np.sort(counts) > 1]
    for word in rare[: thresholds.MOST_WORDS].tolist():
        places = np.flatnonzero(block == word)
        for distance in (places[1:] - places[0])[: thresholds.MOST_PERIODS].tolist():
            if 2 * distance > n:
                break
            if np.mean(block[distance:] == block[:-distance]) >= thresholds.REPEATS:
                return int(distance)
    return None


def split(sizes: Array, sums: Array, gaps: Array, small: float) -> int:
    """After how many calls of a forward and its backward the backward begins.

    `sizes`, `sums` (n,): bytes of the most common calls and whether they are AllReduces; `gaps`
    (n-1,): baseline time from each to the next. A loss is summed over the vocabulary's parts in a
    few AllReduces at the end of the forward, `small` beside the largest call; without them the
    pace shows it: backwards take longer.
    """
    n = len(sizes)
    if n < 2:
        return n
    losses = np.flatnonzero(sums & (sizes <= small * sizes.max(initial=0)))
    losses = losses[(losses > 0) & (losses < n - 1)]
    if len(losses):
        return int(losses[-1]) + 1
    return _slower_from(gaps)


def _slower_from(gaps: Array) -> int:
    """The call from which on gaps differ most from those before; the gap between the two
    belongs to neither."""
    n = len(gaps)
    if n < 3:
        return (n + 1) // 2
    total, squares = np.cumsum(gaps), np.cumsum(np.square(gaps))
    before = np.arange(1, n - 1)  # gaps before the one that is left out
    behind = n - before - 1
    left = squares[before - 1] - np.square(total[before - 1]) / before
    rest, rest_squares = total[-1] - total[before], squares[-1] - squares[before]
    right = rest_squares - np.square(rest) / behind
    return int(before[np.argmin(left + right)]) + 1
