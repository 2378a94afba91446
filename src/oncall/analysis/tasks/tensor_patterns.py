"""What the calls within tasks show: how many belong to a forward, and where a backward begins.

Each layer of each micro-batch makes the same calls, so the calls of a stage repeat; forwards and
backwards differ in what they call, or in how fast. Nothing about the model is known in advance:
lengths are measured where a task is alone, else inferred from the sequence of calls.
"""

from __future__ import annotations

import numpy as np

from oncall.analysis.tasks.schedules import Array
from oncall.analysis.tasks.thresholds import Thresholds


def most_frequent(lengths: Array) -> int | None:
    """The most frequent of the lengths (the longest of those), None of none."""
    if not len(lengths):
        return None
    values, counts = np.unique(lengths, return_counts=True)
    return int(values[counts == counts.max()].max())


def period(words: Array, starts: Array, thresholds: Thresholds) -> int | None:
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
    for word in rare[: thresholds.most_words].tolist():
        places = np.flatnonzero(block == word)
        for distance in (places[1:] - places[0])[: thresholds.most_periods].tolist():
            if 2 * distance > n:
                break
            if np.mean(block[distance:] == block[:-distance]) >= thresholds.repeats:
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
