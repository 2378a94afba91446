"""One number per iteration for all ranks of a node, though each recorded another part of the job.

Ranks leave the calls between two iterations together, since all ranks make most of these calls. So
blocks that began together are one iteration. Counts of communicators are not needed: they begin
anew with every process and differ between communicators.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from oncall.analysis.calls.iteration_bounds import Block
from oncall.analysis.calls.schedules import Array

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


def number_blocks(ranks: Sequence[Numbered], together: float) -> list[Array]:
    """The iteration of each block of each rank; 0 is the first that some rank recorded completely.

    Blocks that began within the share `together` of an iteration are one iteration. Where every
    recorder lost calls, the numbers of calls show how many iterations are missing; if they do not,
    the baseline duration does.
    """
    if not ranks:
        return []
    began = [_starts(one) for one in ranks]
    starts = np.concatenate(began)
    numbers = np.full(len(starts), NOT_NUMBERED)
    known = np.flatnonzero(starts != NOT_NUMBERED)
    if len(known):
        every = np.concatenate([_steps(*each) for each in zip(ranks, began, strict=True)])
        # Checkpoints, however many, only make the way to the next iteration longer.
        shortest_ns, baseline_ns = np.quantile(every, (0.25, 0.5)) if len(every) else (np.inf,) * 2
        order = known[np.argsort(starts[known], kind="stable")]
        steps = np.diff(starts[order], prepend=starts[order[0]])
        opens = (steps > together * shortest_ns) | (np.arange(len(order)) == 0)
        place = np.full(len(starts), -1)
        place[order] = np.cumsum(opens) - 1
        apart = np.maximum(1, np.round(np.diff(starts[order[opens]]) / max(baseline_ns, 1)))
        _count_apart(ranks, place, apart)
        numbers[known] = np.concatenate([[0], np.cumsum(apart)])[place[known]].astype(np.int64)
    for one, mine in zip(ranks, _split(ranks, numbers), strict=True):
        _fill_in(one, mine)
    whole = np.concatenate([one.whole for one in ranks]) & (numbers != NOT_NUMBERED)
    numbers[numbers != NOT_NUMBERED] -= numbers[whole].min() if whole.any() else 0
    return _split(ranks, numbers)


def _split(ranks: Sequence[Numbered], values: Array) -> list[Array]:
    """Values of all blocks by rank."""
    return np.split(values, np.cumsum([len(one.blocks) for one in ranks])[:-1])


def _count_apart(ranks: Sequence[Numbered], place: Array, apart: Array) -> None:
    """Write the number of iterations between each two places in time, where a rank shows it: by its
    count of calls, or because it recorded all of them."""
    baselines: dict[int, float] = {}  # ranks that are alike share their counts
    for one, mine in zip(ranks, _split(ranks, place), strict=True):
        at = np.flatnonzero((mine >= 0) & (one.count >= 0))
        if id(one.count) not in baselines:
            counted = _steps(one, one.count)
            baselines[id(one.count)] = float(np.median(counted)) if len(counted) else np.inf
        baseline = baselines[id(one.count)]
        calls = np.diff(one.count[at])
        adjacent = (np.diff(mine[at]) == 1) & (calls > 0) & (0 < baseline < np.inf)
        apart[mine[at][:-1][adjacent]] = np.maximum(1, np.round(calls[adjacent] / baseline))
    for one, mine in zip(ranks, _split(ranks, place), strict=True):
        at = np.flatnonzero(mine >= 0)
        trained = _trained(one, at)
        seen = (np.diff(mine[at]) == 1) & (trained > 0)
        apart[mine[at][:-1][seen]] = trained[seen]


def _trained(one: Numbered, at: Array) -> Array:
    """From each of the blocks `at` to the next of them: how many iterations, 0 where calls were
    lost in between."""
    torn = np.cumsum([0, *(block.torn_after for block in one.blocks)])
    trained = np.cumsum([0, *one.trains.tolist()])
    return np.asarray(np.where(np.diff(torn[at]) == 0, np.diff(trained[at]), 0))


def _starts(one: Numbered) -> Array:
    """When each block of training began, where ranks began it together."""
    together = np.array([b.is_bounded and not b.torn_before for b in one.blocks], dtype=np.bool_)
    return np.asarray(
        np.where(one.trains & (one.began_ns >= 0) & together, one.began_ns, NOT_NUMBERED)
    )


def _steps(one: Numbered, values: Array) -> Array:
    """The steps of the values from one iteration to the next."""
    at = np.flatnonzero(one.trains & (values >= 0))
    trained = _trained(one, at)
    return np.asarray(np.diff(values[at])[trained > 0] / trained[trained > 0])


def _fill_in(one: Numbered, numbers: Array) -> None:
    """Number the blocks whose begin was not seen: one less than the block after it, or one more
    than the block before it, if nothing was lost in between."""
    blocks, trained = one.blocks, np.flatnonzero(one.trains)
    for i, j in reversed(list(pairwise(trained.tolist()))):
        if numbers[i] == NOT_NUMBERED != numbers[j] and not blocks[j].torn_before:
            numbers[i] = numbers[j] - 1
    for i, j in pairwise(trained.tolist()):
        if numbers[j] == NOT_NUMBERED != numbers[i] and not blocks[j].torn_before:
            numbers[j] = numbers[i] + 1
