"""What a rank does at the end of an iteration: gradients, the optimizer, parameters, pauses.

From the last backward to the next forward a rank calls little, and the same every time. What it
reduces there are gradients, what it gathers behind them parameters; the optimizer runs before that,
or, where nothing is gathered, in the pause that is most often the longest.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from oncall.analysis.calls.iteration_bounds import Block
from oncall.analysis.calls.rank_calls import OUTSIDE, REPLICAS, UNKNOWN, RankCalls
from oncall.analysis.calls.schedules import Array

_FAR = np.iinfo(np.int64).max


@dataclass(frozen=True)
class Ends:
    """Tasks of one kind; arrays (n,), ns, -1 unknown. `at`: the last call of each, -1 none."""

    task: str
    block: Array
    started_ns: Array
    ended_ns: Array
    at: Array


def iteration_ends(
    calls: RankCalls, blocks: Sequence[Block], last: Array, over_ns: Array, next_ns: Array
) -> list[Ends]:
    """The tasks at the ends of blocks of training.

    last, over_ns, next_ns (blocks,): position of the last call of a block's forwards and
    backwards, when they were over, and when those of the next block began; -1 where not known.
    `over_ns` is -1 of blocks that are not training, too.
    """
    mine = np.flatnonzero(np.isin(calls.use, (REPLICAS, OUTSIDE)))
    if not len(mine) or not blocks:
        return []
    block = np.searchsorted([b.begin for b in blocks], mine, side="right") - 1
    kept = (block >= 0) & (over_ns >= 0)[block]
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
    pauses = _Pauses(calls, mine[behind], block[behind], over, next_ns)
    reduced, gathered = np.full(len(blocks), UNKNOWN), np.full(len(blocks), _FAR)
    np.maximum.at(reduced, block[gradients | embedding], mine[gradients | embedding])
    np.minimum.at(gathered, block[parameters], mine[parameters])
    optimizer, baseline = pauses.optimizer(reduced, gathered)
    found += [optimizer, *pauses.others(baseline)]
    return [one for one in found if len(one.block)]


def _over(calls: RankCalls) -> Array:
    """When each call was over (n,): where only calls are recorded, as the rank went on to the
    next."""
    if calls.knows_ends:
        return calls.ended_ns
    return np.append(calls.entered_ns[1:], UNKNOWN)


def _span(
    task: str, calls: RankCalls, over: Array, at: Array, block: Array, over_ns: Array
) -> Ends:
    """From the first call of each block to the end of its last, but not before its backwards."""
    first = np.flatnonzero(np.diff(block, prepend=-1))
    final = np.append(first[1:], len(block))[: len(first)] - 1
    begun = np.maximum(calls.entered_ns[at[first]], over_ns[block[first]])
    ended = over[at[final]]
    shown = (ended < 0) | (ended > begun)
    return Ends(task, block[first][shown], begun[shown], ended[shown], at[final][shown])


class _Pauses:
    """The pauses after each call at the ends of blocks, up to what the rank does next."""

    def __init__(
        self, calls: RankCalls, at: Array, block: Array, over: Array, next_ns: Array
    ) -> None:
        following = np.append(calls.entered_ns, UNKNOWN)[at + 1]
        is_last = np.diff(block, append=-1) != 0
        begins = next_ns[block]
        until = np.where(is_last & (begins >= 0), np.minimum(begins, following), following)
        until = np.maximum(until, over[at])
        known = (over[at] >= 0) & (following >= 0)
        self.calls = calls
        self.at, self.block = at[known], block[known]
        self.since, self.until = over[at][known], until[known]
        self.pause = self.until - self.since
        self.word = calls.word[self.at]
        self.blocks = len(next_ns)
        step = np.diff(next_ns[next_ns >= 0])
        self.iteration_ns = _baseline(step) if len(step) else np.inf

    def optimizer(self, reduced: Array, gathered: Array) -> tuple[Ends, float]:
        """The pause right before parameters are gathered, else after the call that the longest
        pause follows most often; and its baseline length (ns)."""
        closing = self.at + 1 == gathered[self.block]
        if not closing.any():
            closing = self._longest_recurring(self.at >= reduced[self.block])
        at = np.flatnonzero(closing)
        at = at[(np.diff(self.block[at], append=-1) != 0) & (self.pause[at] > 0)]
        baseline = _baseline(self.pause[at])
        until = self.until[at]
        if np.isfinite(self.iteration_ns):
            much = self.pause[at] > baseline + self.calls.thresholds.pause * self.iteration_ns
            until = np.where(much, self.since[at] + int(baseline), until)
        none = np.full(len(at), UNKNOWN, dtype=np.int64)
        self.baseline = np.zeros(len(self.at))
        self.baseline[at] = baseline
        return Ends("optimizer", self.block[at], self.since[at], until, none), baseline

    def _longest_recurring(self, allowed: Array) -> Array:
        words, number = np.unique(self.word[allowed], return_inverse=True)
        if not len(words):
            return allowed
        pauses = [_baseline(self.pause[allowed][number == i]) for i in range(len(words))]
        often = np.bincount(number) >= self.calls.thresholds.usually * len(np.unique(self.block))
        best = words[np.argmax(np.where(often, pauses, -1))]
        return np.asarray(allowed & (self.word == best))

    def others(self, optimizer_ns: float) -> list[Ends]:
        """Pauses that cost a good part of an iteration and do not come with every one: before a
        call that comes with them alone they are checkpoints."""
        much = (
            self.pause
            > self.baseline
            + self._baseline_after()
            + self.calls.thresholds.pause * self.iteration_ns
        )
        following = np.append(self.calls.word, self.calls.word[:1])[self.at + 1]
        words, number, counts = np.unique(following, return_inverse=True, return_counts=True)
        rare = counts[number] <= self.calls.thresholds.usually * self.blocks if len(words) else much
        since = self.since + np.where(self.baseline > 0, int(optimizer_ns), 0)
        none = np.full(len(much), UNKNOWN, dtype=np.int64)
        return [
            Ends(task, self.block[which], since[which], self.until[which], none[which])
            for task, which in (("checkpoint", much & rare), ("other", much & ~rare))
        ]

    def _baseline_after(self) -> Array:
        """The baseline pause after each call of a kind, if it comes with most iterations."""
        words, number = np.unique(self.word, return_inverse=True)
        baseline = np.array([_baseline(self.pause[number == i]) for i in range(len(words))])
        often = (
            np.bincount(number, minlength=len(words)) >= self.calls.thresholds.usually * self.blocks
        )
        after = np.where(often, baseline, 0.0)[number] if len(words) else np.zeros(0)
        return np.asarray(np.where(self.baseline > 0, 0.0, after))


def _baseline(pauses: Array) -> float:
    """What a pause takes if nothing else comes with it: the lower quartile; 0 of none."""
    return float(np.quantile(pauses, 0.25)) if len(pauses) else 0.0
