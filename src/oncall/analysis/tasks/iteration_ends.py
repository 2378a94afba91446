"""What a rank does at the end of an iteration: gradients, optimizer, parameters, pauses.

From the last backward to the next forward a rank makes few calls, and the same ones every time.
Reductions there are of gradients; gathers behind them are of parameters. The optimizer runs before
the gathers. If nothing is gathered, it runs in the pause that is most often the longest.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from oncall.analysis.common.quantiles import quantile
from oncall.analysis.tasks import thresholds
from oncall.analysis.tasks.iteration_bounds import Block
from oncall.analysis.tasks.neighbours import after
from oncall.analysis.tasks.rank_calls import OUTSIDE, REPLICAS, UNKNOWN, RankCalls
from oncall.analysis.tasks.schedules import Array
from oncall.analysis.traffic import parallelism

_FAR = np.iinfo(np.int64).max


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
    calls: RankCalls, blocks: Sequence[Block], last: Array, over_ns: Array, next_ns: Array
) -> list[Ends]:
    """The tasks at the ends of blocks of training.

    last (blocks,), over_ns, next_ns (ranks, blocks): position of the last call of a block's
    forwards and backwards, when they were over, and when those of the next block began; -1 where
    not known, of all ranks alike. `over_ns` is -1 of blocks that are not training, too.
    """
    mine = np.flatnonzero(np.isin(calls.use, (REPLICAS, OUTSIDE)))
    if not len(mine) or not blocks:
        return []
    block = np.searchsorted([b.begin for b in blocks], mine, side="right") - 1
    kept = (block >= 0) & np.any(over_ns >= 0, axis=0)[block]
    kept[kept] = mine[kept] < np.array([b.until for b in blocks])[block[kept]]
    mine, block = mine[kept], block[kept]
    large, behind = calls.size_bytes[mine] >= parallelism.SMALL_BYTES, mine > last[block]
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
    pauses = _Pauses(calls, mine[behind], block[behind], over, next_ns)
    reduced, gathered = np.full(len(blocks), UNKNOWN), np.full(len(blocks), _FAR)
    np.maximum.at(reduced, block[gradients | embedding], mine[gradients | embedding])
    np.minimum.at(gathered, block[parameters], mine[parameters])
    optimizer, baseline = pauses.optimizer(reduced, gathered)
    found += [optimizer, *pauses.others(baseline)]
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


class _Pauses:
    """The pauses after each call at the ends of blocks, up to what the rank does next."""

    def __init__(
        self, calls: RankCalls, at: Array, block: Array, over: Array, next_ns: Array
    ) -> None:
        following = after(calls.entered_ns, UNKNOWN)[:, at]
        is_last = np.diff(block, append=-1) != 0
        begins = next_ns[:, block]
        until = np.where(is_last & (begins >= 0), np.minimum(begins, following), following)
        until = np.maximum(until, over[:, at])
        known = ((over[:, at] >= 0) & (following >= 0)).any(axis=0)
        self.calls = calls
        self.at, self.block = at[known], block[known]
        self.since, self.until = over[:, at[known]], until[:, known]
        self.pause = self.until - self.since
        self.word = calls.word[self.at]
        self.blocks = next_ns.shape[1]
        step = np.diff(next_ns[:, (next_ns >= 0).any(axis=0)])
        self.iteration_ns = _baseline(step) if step.shape[1] else np.full(len(step), np.inf)

    def optimizer(self, reduced: Array, gathered: Array) -> tuple[Ends, Array]:
        """The pause right before parameters are gathered, else after the call that the longest
        pause follows most often; and its baseline length (ranks,), ns."""
        closing = self.at + 1 == gathered[self.block]
        if closing.any():
            closing = np.broadcast_to(closing, self.pause.shape)
        else:
            closing = self._longest_recurring(self.at >= reduced[self.block])
        n = len(self.at)
        places = np.where(closing, np.arange(n), n)
        next_closing = after(np.minimum.accumulate(places[:, ::-1], axis=1)[:, ::-1], n)
        last = np.append(self.block, -1)[next_closing] != self.block
        shown = closing & last & (self.pause > 0)
        baseline = np.nan_to_num(quantile(np.where(shown, self.pause, np.nan), 0.25, 1))
        most = baseline + thresholds.PAUSE * self.iteration_ns
        expected = self.since + baseline.astype(np.int64)[:, np.newaxis]
        until = np.where(self.pause > most[:, np.newaxis], expected, self.until)
        self.baseline = np.where(shown, baseline[:, np.newaxis], 0.0)
        none = np.full(n, UNKNOWN, dtype=np.int64)
        return Ends("optimizer", self.block, self.since, until, none, shown), baseline

    def _longest_recurring(self, allowed: Array) -> Array:
        words, number = np.unique(self.word[allowed], return_inverse=True)
        if not len(words):
            return np.zeros(self.pause.shape, dtype=np.bool_)
        pause = self.pause[:, allowed]
        pauses = np.stack([_baseline(pause[:, number == i]) for i in range(len(words))], axis=1)
        often = np.bincount(number) >= thresholds.USUALLY * len(np.unique(self.block))
        best = words[np.argmax(np.where(often, pauses, -1), axis=1)]
        return np.asarray(allowed & (self.word == best[:, np.newaxis]))

    def others(self, optimizer_ns: Array) -> list[Ends]:
        """Pauses that take a good part of an iteration and do not occur in every iteration. If a
        call follows that occurs only with them, they are checkpoints."""
        part = (thresholds.PAUSE * self.iteration_ns)[:, np.newaxis]
        much = self.pause > self.baseline + self._baseline_after() + part
        following = np.append(self.calls.word, self.calls.word[:1])[self.at + 1]
        words, number, counts = np.unique(following, return_inverse=True, return_counts=True)
        rare = counts[number] <= thresholds.USUALLY * self.blocks if len(words) else much
        updated = np.where(self.baseline > 0, optimizer_ns.astype(np.int64)[:, np.newaxis], 0)
        none = np.full(len(self.at), UNKNOWN, dtype=np.int64)
        return [
            Ends(task, self.block, self.since + updated, self.until, none, which)
            for task, which in (("checkpoint", much & rare), ("other", much & ~rare))
        ]

    def _baseline_after(self) -> Array:
        """The baseline pause after each call of a kind, if it comes with most iterations."""
        words, number = np.unique(self.word, return_inverse=True)
        if not len(words):
            return np.zeros(self.pause.shape)
        baseline = np.stack(
            [_baseline(self.pause[:, number == i]) for i in range(len(words))], axis=1
        )
        often = np.bincount(number, minlength=len(words)) >= thresholds.USUALLY * self.blocks
        following = np.where(often, baseline, 0.0)[:, number]
        return np.asarray(np.where(self.baseline > 0, 0.0, following))


def _baseline(pauses: Array) -> Array:
    """The length of a pause in which nothing else happens: the lower quartile of each row."""
    return np.asarray(np.quantile(pauses, 0.25, axis=1))
