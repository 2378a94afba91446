"""One number per iteration for all ranks of a node, though each recorded another part of the job.

Ranks leave the calls between two iterations together, since all ranks make most of these calls. So
blocks that began together are one iteration. Counts of communicators are not needed: they begin
anew with every process and differ between communicators.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from oncall.analysis.tasks.iteration_bounds import Block
from oncall.analysis.tasks.schedules import Array

NOT_NUMBERED = int(np.iinfo(np.int64).min)


@dataclass(frozen=True)
class Numbered:
    """A rank's blocks; arrays (blocks,).

    `trains`: with tasks of training; `whole`: with all tasks of an iteration; `began_ns`: -1
    unknown; `count`: the number of the first call on a communicator that every block uses, -1
    unknown.
    """

    blocks: Sequence[Block]
    trains: Array
    whole: Array
    began_ns: Array
    count: Array


@dataclass(frozen=True)
class _Every:
    """The blocks of all ranks, one rank's after the other's; arrays (n,).

    `rank`: index of its rank; `torn`, `trained`: of the blocks before it, those that are torn
    behind, and those that train.
    """

    rank: Array
    trains: Array
    torn_before: Array
    torn: Array
    trained: Array
    began_ns: Array
    count: Array

    @staticmethod
    def of(ranks: Sequence[Numbered]) -> _Every:
        """The blocks in one; `began_ns` only where ranks began a block of training together."""
        flags = _flags(ranks)
        trains = np.concatenate([one.trains for one in ranks])
        began_ns = np.concatenate([one.began_ns for one in ranks])
        torn_before, torn_after, bounded = np.concatenate(
            [flags[id(one.blocks)] for one in ranks], axis=1
        )
        together = trains & (began_ns >= 0) & bounded & ~torn_before
        return _Every(
            rank=np.repeat(np.arange(len(ranks)), [len(one.blocks) for one in ranks]),
            trains=trains,
            torn_before=torn_before,
            torn=np.cumsum(torn_after) - torn_after,
            trained=np.cumsum(trains) - trains,
            began_ns=np.where(together, began_ns, NOT_NUMBERED),
            count=np.concatenate([one.count for one in ranks]),
        )

    def pairs(self, at: Array) -> tuple[Array, Array]:
        """Each of the blocks `at` that has another of its rank behind it, and that one."""
        same = self.rank[at[:-1]] == self.rank[at[1:]]
        return at[:-1][same], at[1:][same]

    def iterations(self, block: Array, other: Array) -> Array:
        """From each block to the other of its rank: how many iterations, 0 where calls were lost
        in between."""
        lost = self.torn[block] != self.torn[other]
        return np.asarray(np.where(lost, 0, self.trained[other] - self.trained[block]))

    def steps(self, values: Array) -> tuple[Array, Array]:
        """The steps (k,) of the values (n,) from one iteration to the next, and their ranks."""
        block, other = self.pairs(np.flatnonzero(self.trains & (values >= 0)))
        trained = self.iterations(block, other)
        seen = trained > 0
        block, other, trained = block[seen], other[seen], trained[seen]
        return (values[other] - values[block]) / trained, self.rank[block]


def _flags(ranks: Sequence[Numbered]) -> dict[int, Array]:
    """Of the blocks, by their identity: torn before, torn after, bounded (3, blocks)."""
    found: dict[int, Array] = {}
    for one in ranks:  # those that are alike share their blocks
        if id(one.blocks) not in found:
            flags = [(b.torn_before, b.torn_after, b.is_bounded) for b in one.blocks]
            found[id(one.blocks)] = np.array(flags, dtype=np.bool_).reshape(-1, 3).T
    return found


def number_blocks(ranks: Sequence[Numbered], together: float) -> list[Array]:
    """The iteration of each block of each rank; 0 is the first that some rank recorded completely.

    Blocks that began within the share `together` of an iteration are one iteration. Where every
    recorder lost calls, the numbers of calls show how many iterations are missing; if they do not,
    the baseline duration does.
    """
    if not ranks:
        return []
    every = _Every.of(ranks)
    starts = every.began_ns
    numbers = np.full(len(starts), NOT_NUMBERED)
    known = np.flatnonzero(starts != NOT_NUMBERED)
    if len(known):
        steps, _ = every.steps(starts)
        # Checkpoints, however many, only make the way to the next iteration longer.
        shortest_ns, baseline_ns = np.quantile(steps, (0.25, 0.5)) if len(steps) else (np.inf,) * 2
        order = known[np.argsort(starts[known], kind="stable")]
        steps = np.diff(starts[order], prepend=starts[order[0]])
        opens = (steps > together * shortest_ns) | (np.arange(len(order)) == 0)
        place = np.full(len(starts), -1)
        place[order] = np.cumsum(opens) - 1
        apart = np.maximum(1, np.round(np.diff(starts[order[opens]]) / max(baseline_ns, 1)))
        _count_apart(ranks, every, place, apart)
        numbers[known] = np.concatenate([[0], np.cumsum(apart)])[place[known]].astype(np.int64)
    _fill_in(every, numbers)
    whole = np.concatenate([one.whole for one in ranks]) & (numbers != NOT_NUMBERED)
    numbers[numbers != NOT_NUMBERED] -= numbers[whole].min() if whole.any() else 0
    return np.split(numbers, np.cumsum([len(one.blocks) for one in ranks])[:-1])


def _count_apart(ranks: Sequence[Numbered], every: _Every, place: Array, apart: Array) -> None:
    """Write the number of iterations between each two places in time, where a rank shows it: by its
    count of calls, or because it recorded all of them."""
    block, other = every.pairs(np.flatnonzero((place >= 0) & (every.count >= 0)))
    calls = every.count[other] - every.count[block]
    baseline = _calls_each(ranks, every)[every.rank[block]]
    adjacent = (place[other] - place[block] == 1) & (calls > 0) & (baseline > 0)
    adjacent &= np.isfinite(baseline)
    counted = np.round(calls[adjacent] / baseline[adjacent])
    apart[place[block[adjacent]]] = np.maximum(1, counted)
    block, other = every.pairs(np.flatnonzero(place >= 0))
    trained = every.iterations(block, other)
    seen = (place[other] - place[block] == 1) & (trained > 0)
    apart[place[block[seen]]] = trained[seen]


def _calls_each(ranks: Sequence[Numbered], every: _Every) -> Array:
    """How many calls each rank counts in an iteration (ranks,), infinite where nothing shows it."""
    steps, rank = every.steps(every.count)
    bounds = np.searchsorted(rank, np.arange(len(ranks) + 1)).tolist()
    baselines: dict[int, float] = {}  # ranks that are alike share their counts
    for number, one in enumerate(ranks):
        if id(one.count) not in baselines:
            mine = steps[bounds[number] : bounds[number + 1]]
            baselines[id(one.count)] = float(np.median(mine)) if len(mine) else np.inf
    return np.array([baselines[id(one.count)] for one in ranks])


def _fill_in(every: _Every, numbers: Array) -> None:
    """Number the blocks whose begin was not seen: one less than the block after it, or else one
    more than the block before it, if nothing was lost in between."""
    at = np.flatnonzero(every.trains)
    if not len(at):
        return
    # Blocks of training of one rank, in a row without a loss.
    torn = (np.diff(every.rank[at], prepend=-1) != 0) | every.torn_before[at]
    row, place = np.cumsum(torn), np.arange(len(at))
    known = numbers[at] != NOT_NUMBERED
    behind = np.minimum.accumulate(np.where(known, place, len(at) - 1)[::-1])[::-1]
    before = np.maximum.accumulate(np.where(known, place, 0))
    for nearest in (before, behind):  # the one behind counts more
        found = ~known & known[nearest] & (row[nearest] == row)
        numbers[at[found]] = (numbers[at[nearest]] + place - nearest)[found]
