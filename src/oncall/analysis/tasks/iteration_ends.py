"""What a rank does at the end of an iteration: gradients, optimizer, parameters.

From the last backward to the next forward a rank makes few calls, and the same ones every time.
Reductions there are of gradients; gathers behind them are of parameters. The optimizer runs before
the gathers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from oncall.analysis.tasks.iteration_bounds import Block
from oncall.analysis.tasks.rank_calls import OUTSIDE, REPLICAS, UNKNOWN, RankCalls
from oncall.analysis.tasks.row_quantiles import after
from oncall.analysis.tasks.schedules import Array


@dataclass(frozen=True)
class Ends:
    """Tasks of one kind, of ranks that make equal calls.

    `block` and `at` (n,): the last call of each task, -1 none; times (ranks, n) in ns, -1 unknown;
    `shown` (ranks, n): which tasks exist.
    """

    task: str
    block: Array
    started_ns: Array
    ended_ns: Array
    at: Array
    shown: Array


def iteration_ends(
    calls: RankCalls, blocks: Sequence[Block], last: Array, over_ns: Array
) -> list[Ends]:
    """The tasks at the ends of blocks of training.

    last (blocks,), over_ns (ranks, blocks): position of the last call of a block's forwards and
    backwards, and when they were over; -1 where not known, and of blocks that are not training.
    """
    mine = np.flatnonzero(np.isin(calls.use, (REPLICAS, OUTSIDE)))
    if not len(mine) or not blocks:
        return []
    block = np.searchsorted([b.begin for b in blocks], mine, side="right") - 1
    kept = (block >= 0) & np.any(over_ns >= 0, axis=0)[block]
    kept[kept] = mine[kept] < np.array([b.until for b in blocks])[block[kept]]
    mine, block = mine[kept], block[kept]
    large, behind = calls.size_bytes[mine] >= calls.thresholds.small_bytes, mine > last[block]
    replicas, outside = calls.use[mine] == REPLICAS, calls.use[mine] == OUTSIDE
    # Gradients may be reduced while the last backward runs; what is seen of it comes after that.
    gradients = replicas & calls.reduces[mine] & large
    parameters = replicas & ~calls.reduces[mine] & large & behind
    embedding = outside & calls.sums[mine] & large & behind
    over = _over(calls)
    found = [
        _span(name, calls, over, mine[which], block[which], over_ns)
        for name, which in (
            ("gradients", gradients),
            ("embedding", embedding),
            ("parameters", parameters),
        )
    ]
    found.append(_optimizer(calls, over, mine[behind], mine[parameters], block[parameters]))
    known = over_ns >= 0
    found = [replace(one, shown=one.shown & known[:, one.block]) for one in found]
    return [one for one in found if one.shown.any()]


def _over(calls: RankCalls) -> Array:
    """When each call was over (ranks, n). Where only calls are recorded: when the rank made its
    next call."""
    if calls.knows_ends:
        return calls.ended_ns
    return after(calls.entered_ns, UNKNOWN)


def _span(
    task: str, calls: RankCalls, over: Array, at: Array, block: Array, over_ns: Array
) -> Ends:
    """From the first call of each block to the end of its last, but not before its backwards."""
    first = np.flatnonzero(np.diff(block, prepend=-1))
    final = np.append(first[1:], len(block))[: len(first)] - 1
    begun = np.maximum(calls.entered_ns[:, at[first]], over_ns[:, block[first]])
    ended = over[:, at[final]]
    shown = (ended < 0) | (ended > begun)
    return Ends(task, block[first], begun, ended, at[final], shown)


def _optimizer(calls: RankCalls, over: Array, behind: Array, gathers: Array, block: Array) -> Ends:
    """The pause right before parameters are gathered: from the call `behind` a block's tasks."""
    first = np.diff(block, prepend=-1) != 0
    first &= np.isin(gathers - 1, behind)
    at, block = gathers[first], block[first]
    since, until = over[:, at - 1], calls.entered_ns[:, at]
    none = np.full(len(at), UNKNOWN, dtype=np.int64)
    return Ends("optimizer", block, since, until, none, (since >= 0) & (until > since))
