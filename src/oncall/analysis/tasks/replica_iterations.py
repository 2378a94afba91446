"""Iterations of jobs whose ranks only exchange gradients and parameters: data parallelism alone.

No call lies within the forwards and backwards of such a job. But what replicas exchange repeats in
every iteration. Before its first exchange the rank computes, so the longest pause usually ends
there.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from oncall.analysis.calls.iteration_bounds import Block
from oncall.analysis.calls.rank_calls import OUTSIDE, REPLICAS, UNKNOWN, RankCalls
from oncall.analysis.calls.schedules import Array
from oncall.analysis.calls.tensor_patterns import most_frequent, period


def replica_blocks(calls: RankCalls) -> list[Block]:
    """A block for each iteration: from its first exchange to the next one's; none if unknown."""
    at = np.flatnonzero(calls.use == REPLICAS)
    if len(at) < 2 or np.isin(calls.use, (REPLICAS, OUTSIDE)).sum() < len(calls):
        return []
    cuts = at[_first_exchanges(calls, at)]
    if not len(cuts):
        return []
    bounds = [*([0] if cuts[0] > at[0] else []), *cuts.tolist(), len(calls)]
    lost = np.concatenate([[0], np.cumsum(calls.lost)])
    blocks = []
    for begin, end in pairwise(bounds):
        left = begin > 0 and (not calls.knows_ends or calls.ended_ns[begin - 1] >= 0)
        torn = bool(lost[end] > lost[begin + 1])
        blocks.append(
            Block(
                begin=begin,
                end=end,
                until=end,
                events=at[slice(*np.searchsorted(at, (begin, end)))],
                torn_before=begin == 0 or bool(calls.lost[begin]),
                torn_after=torn,
                left_at=begin - 1 if left else UNKNOWN,
            )
        )
    return blocks


def whole_blocks(blocks: list[Block]) -> Array:
    """Which blocks have all exchanges of an iteration (blocks,)."""
    lengths = np.array([len(block.events) for block in blocks], dtype=np.int64)
    torn = np.array([block.torn_before or block.torn_after for block in blocks], dtype=np.bool_)
    each = most_frequent(lengths[~torn]) if (~torn).any() else most_frequent(lengths)
    return np.asarray(~torn & (lengths == each))


def _first_exchanges(calls: RankCalls, at: Array) -> Array:
    """Which of the exchanges `at` are the first of an iteration (n,); the very first is one if
    it is like the others."""
    words, thresholds = calls.word[at], calls.thresholds
    pauses = calls.entered_ns[at[1:]] - _left(calls, at[:-1])
    starts = np.concatenate([[0], np.flatnonzero(calls.lost[at][1:]) + 1])
    length = period(words, starts, thresholds)
    if length is None:
        long = pauses > thresholds.exchange_times * np.median(pauses)
        if not long.any():
            long[:] = True  # one exchange each
        return np.concatenate([[False], long])
    ends = np.append(starts[1:], len(at))
    longest = int(np.argmax(ends - starts))
    begin, end = int(starts[longest]), int(ends[longest])
    phases = (np.arange(begin + 1, end) - begin) % length
    baseline_ns = np.array([np.median(pauses[begin : end - 1][phases == p]) for p in range(length)])
    first = begin + 1 + int(np.flatnonzero(phases == np.argmax(baseline_ns))[0])
    alike = (words[1:] == words[first]) & (words[:-1] == words[first - 1])
    # The same two exchanges may follow one another within an iteration, too.
    if alike.sum() > thresholds.repeated * len(at) / length:
        alike &= pauses > thresholds.long_pause * baseline_ns.max()
    return np.concatenate([[words[0] == words[first]], alike])


def _left(calls: RankCalls, at: Array) -> Array:
    """When the rank was done with each call, as far as recorded."""
    return np.maximum(calls.entered_ns[at], calls.ended_ns[at])
