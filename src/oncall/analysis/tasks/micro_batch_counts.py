"""How many micro-batches each iteration of each rank has, even where calls are missing.

Batches grow, so one iteration may have more than another. For a torn iteration, its neighbours show
the number; at the ends of a recording, the ranks that recorded the whole iteration do.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from oncall.analysis.calls.iteration_bounds import Block
from oncall.analysis.calls.rank_calls import SEND
from oncall.analysis.calls.schedules import ONE_FORWARD_ONE_BACKWARD, Array
from oncall.analysis.calls.tensor_patterns import most_frequent
from oncall.analysis.tasks.pipeline_places import Seated

UNCERTAIN = 0


def micro_batch_counts(ranks: Sequence[Seated]) -> list[Array]:
    """For each rank the micro-batches of its blocks (blocks,), UNCERTAIN without data."""
    own = [np.array([_own(one, block) for block in one.blocks], dtype=np.int64) for one in ranks]
    first = _agreed([(mine[0], one.ranks) for one, mine in _torn(ranks, own, "torn_before", 0)])
    last = _agreed([(mine[-1], one.ranks) for one, mine in _torn(ranks, own, "torn_after", -1)])
    return [_completed(one, mine, first, last) for one, mine in zip(ranks, own, strict=True)]


def is_whole(one: Seated, block: Block) -> bool:
    """Whether a block holds a whole iteration although calls may be missing at its ends.

    A torn block lacks forwards at its begin, or backwards at its end. The last stage of 1F1B does
    not show this, since each of its forwards is followed by its backward.
    """
    place = one.place
    if one.forward is None or (place.is_last and place.schedule == ONE_FORWARD_ONE_BACKWARD):
        return False
    return 2 * int(one.forward[block.events].sum()) == len(block.events)


def _own(one: Seated, block: Block) -> int:
    """The micro-batches of a block that is whole, else UNCERTAIN."""
    sends = int((one.calls.use[block.events] == SEND).sum())
    count, rest = divmod(sends, one.place.transfers_each)
    torn = block.torn_before or block.torn_after
    if (
        block.passes
        or rest
        or 2 * sends != len(block.events)
        or (torn and not is_whole(one, block))
    ):
        return UNCERTAIN
    return count


def _torn(
    ranks: Sequence[Seated], own: Sequence[Array], which: str, at: int
) -> list[tuple[Seated, Array]]:
    return [
        (one, mine)
        for one, mine in zip(ranks, own, strict=True)
        if one.blocks and getattr(one.blocks[at], which)
    ]


def _agreed(counts: Sequence[tuple[int, int]]) -> int:
    every = [count for count, ranks in counts if count for _ in range(ranks)]
    return most_frequent(np.array(every)) or UNCERTAIN


def _completed(one: Seated, own: Array, first: int, last: int) -> Array:
    """The counts of all blocks of a rank: torn blocks get those of the whole blocks beside them."""
    counts = own.copy()
    whole = np.flatnonzero(own)
    for i in np.flatnonzero(own == UNCERTAIN).tolist():
        block = one.blocks[i]
        if i == 0 and block.torn_before and first:
            counts[i] = first
        elif i == len(own) - 1 and block.torn_after and last:
            counts[i] = last
        elif len(whole):
            at = int(np.searchsorted(whole, i))
            beside = {int(own[whole[max(at - 1, 0)]]), int(own[whole[min(at, len(whole) - 1)]])}
            seen = -(-len(block.events) // (2 * one.place.transfers_each))
            counts[i] = max(beside) if len(beside) == 1 or seen > min(beside) else UNCERTAIN
        else:
            counts[i] = one.place.micro_batches or UNCERTAIN
    return counts
