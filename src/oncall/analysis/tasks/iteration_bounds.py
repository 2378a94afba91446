"""Where iterations begin and end in one rank's calls.

Between the last backward of an iteration and the first forward of the next, a rank makes calls that
it makes nowhere else: norms, losses, flags, over groups that no task uses. Those calls are the
bounds, whatever they are. A place where the recorder lost calls is a bound, too: the calls on both
sides of it belong to one iteration or to two, and only counting shows which.

Iterations of jobs whose ranks only exchange gradients and parameters: data parallelism alone.

No call lies within the forwards and backwards of such a job. But what replicas exchange repeats in
every iteration. Before its first exchange the rank computes, so the longest pause usually ends
there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from oncall.analysis.tasks import thresholds
from oncall.analysis.tasks.call_patterns import most_frequent, period
from oncall.analysis.tasks.rank_calls import OUTSIDE, RECV, REPLICAS, SEND, TASK, UNKNOWN, RankCalls
from oncall.analysis.tasks.schedules import Array


@dataclass(frozen=True)
class Block:
    """Calls `begin` to `end` (positions, the end not included) between two bounds.

    `events` are the positions of what shows tasks in it. `torn_before`, `torn_after`: calls may
    be missing there, as the recorder lost them or the recording began or ended. `left_at`: the
    call that is the bound before it, UNKNOWN without data; `until`: the position at which the next
    block begins. `passes`: so many passes forward, of an evaluation; 0: of training. `is_bounded`:
    a bound lies before it.
    """

    begin: int
    end: int
    until: int
    events: Array
    torn_before: bool
    torn_after: bool
    left_at: int
    passes: int = 0
    is_bounded: bool = True


def find_blocks(calls: RankCalls) -> list[Block]:
    """The blocks in the order of the calls; none where nothing shows tasks."""
    events = task_events(calls)
    if not len(events):
        return []
    bounding = np.isin(calls.use, _bounding(calls))
    bounds_upto = np.concatenate([[0], np.cumsum(bounding)])
    lost_upto = np.concatenate([[0], np.cumsum(calls.lost)])
    after = events + 1
    bound = bounds_upto[events[1:]] > bounds_upto[after[:-1]]
    torn = lost_upto[after[1:]] > lost_upto[after[:-1]]
    cuts = np.flatnonzero(bound | torn)
    positions = np.flatnonzero(bounding)
    firsts = np.concatenate([[0], cuts + 1])
    lasts = np.concatenate([cuts, [len(events) - 1]])
    # The bounds around a block: the last before its first event, the first after its last.
    before = np.searchsorted(positions, events[firsts]) - 1
    behind = np.searchsorted(positions, events[lasts])
    padded = np.concatenate([positions, [len(calls)]])
    begins = np.where(before >= 0, padded[np.maximum(before, 0)] + 1, 0)
    begins = _after_parameters(calls, begins)
    begins[1:] = np.maximum(begins[1:], events[lasts[:-1]] + 1)
    ends = np.minimum(padded[behind], np.append(events[firsts[1:]], len(calls)))
    torn_between = [True, *torn[cuts].tolist(), True]
    left_at = np.where(before >= 0, begins - 1, UNKNOWN).tolist()
    n, begin = len(firsts), begins.tolist()
    return [
        Block(
            begin=begin[i],
            end=end,
            until=begin[i + 1] if i + 1 < n else len(calls),
            events=events[first : last + 1],
            # Where the recording begins with a bound the first block is whole.
            torn_before=torn_between[i] and (i > 0 or before[0] < 0),
            torn_after=torn_between[i + 1] and (i + 1 < n or behind[-1] >= len(positions)),
            left_at=UNKNOWN if torn_between[i] and i else left_at[i],
        )
        for i, (first, last, end) in enumerate(
            zip(firsts.tolist(), lasts.tolist(), ends.tolist(), strict=True)
        )
    ]


def _after_parameters(calls: RankCalls, begins: Array) -> Array:
    """The begins, each behind what replicas exchange right there: parameters, once the optimizer
    is done. Gathered later, they come while the first forward runs."""
    apart = np.append(np.flatnonzero(calls.use != REPLICAS), len(calls))
    return np.asarray(np.where(begins > 0, apart[np.searchsorted(apart, begins)], begins))


def task_events(calls: RankCalls) -> Array:
    """Positions of the calls that show tasks: the pipeline's, else those within tasks, else those
    between replicas."""
    for uses in ((SEND, RECV), (TASK,), (REPLICAS,)):
        found = np.flatnonzero(np.isin(calls.use, uses))
        if len(found):
            return found
    return np.zeros(0, dtype=np.int64)


def started_ns(calls: RankCalls, blocks: Sequence[Block]) -> Array:
    """When the rank left the bound before each block (..., blocks), UNKNOWN without data."""
    at = np.array([block.left_at for block in blocks], dtype=np.int64)
    entered, ended = calls.entered_ns[..., at], calls.ended_ns[..., at]
    return np.where(at >= 0, np.where(ended >= 0, ended, entered), UNKNOWN)


def _bounding(calls: RankCalls) -> Sequence[int]:
    """Calls that are made between iterations only. Gradients may be reduced within a backward, so
    that they bound only where nothing else does."""
    return (OUTSIDE,) if (calls.use == OUTSIDE).any() else (REPLICAS,)


def left_together(ranks: Sequence[RankCalls], blocks: Sequence[Sequence[Block]]) -> list[Array]:
    """When each rank left the bound before each of its blocks (blocks,), UNKNOWN without data.
    Where only calls are recorded, that is when the last of those seen has called as well."""
    left = [started_ns(*each) for each in zip(ranks, blocks, strict=True)]
    bounds = [
        (rank, block, (int(calls.comm[at]), int(calls.seq[at])))
        for rank, (calls, mine) in enumerate(zip(ranks, blocks, strict=True))
        for block, at in enumerate(one.begin - 1 for one in mine)
        if not calls.knows_ends and at >= 0 and left[rank][block] >= 0 and calls.seq[at] != UNKNOWN
    ]
    last: dict[tuple[int, int], int] = {}
    for rank, block, bound in bounds:
        last[bound] = max(last.get(bound, UNKNOWN), int(left[rank][block]))
    for rank, block, bound in bounds:
        left[rank][block] = last[bound]
    return left


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
    words = calls.word[at]
    pauses = calls.entered_ns[at[1:]] - _left(calls, at[:-1])
    starts = np.concatenate([[0], np.flatnonzero(calls.lost[at][1:]) + 1])
    length = period(words, starts)
    if length is None:
        long = pauses > thresholds.EXCHANGE_TIMES * np.median(pauses)
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
    if alike.sum() > thresholds.REPEATED * len(at) / length:
        alike &= pauses > thresholds.LONG_PAUSE * baseline_ns.max()
    return np.concatenate([[words[0] == words[first]], alike])


def _left(calls: RankCalls, at: Array) -> Array:
    """When the rank was done with each call, as far as recorded."""
    return np.maximum(calls.entered_ns[at], calls.ended_ns[at])
