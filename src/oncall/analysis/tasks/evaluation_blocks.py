"""Evaluations: forward passes without backwards, before an iteration or between two.

A forward of training is followed by its backward; one of an evaluation is not. Few ranks make a
call between the last pass of an evaluation and the first pass of the next iteration, so both may
lie in one block, between the same two bounds.

How many micro-batches each iteration of each rank has, even where calls are missing.

Batches grow, so one iteration may have more than another. For a torn iteration, its neighbours show
the number; at the ends of a recording, the ranks that recorded the whole iteration do.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from oncall.analysis.tasks.call_patterns import most_frequent
from oncall.analysis.tasks.iteration_bounds import Block
from oncall.analysis.tasks.pipeline_places import Seated, shapes_of
from oncall.analysis.tasks.rank_calls import RECV, SEND
from oncall.analysis.tasks.schedules import GPIPE, ONE_FORWARD_ONE_BACKWARD, Array, warm_up


def split_evaluations(ranks: Sequence[Seated]) -> list[list[Block]]:
    """The blocks of each rank, each either of evaluation or of training.

    Torn blocks stay as they are, except for an evaluation in which the recording ends: a rank whose
    own calls do not show it follows the others.
    """
    evaluates = any(map(_ends_in_evaluation, ranks))
    return [
        [
            part
            for number, block in enumerate(one.blocks, 1 - len(one.blocks))
            for part in _split(one, block, _passes(one, block, evaluates and number == 0))
        ]
        for one in ranks
    ]


def _split(one: Seated, block: Block, passes: int) -> list[Block]:
    """An evaluation with this many passes, and the rest of the block."""
    calls, events, each = one.calls, block.events, one.place.transfers_each
    cut = passes * each
    if passes <= 0 or cut > len(events):
        return [block]
    if cut >= len(events) - 1:  # one more may have come in
        return [replace(block, passes=-(-len(events) // each))]
    last = events[cut - 1]
    at = int(last + 1 if calls.use[last] == SEND else events[cut])
    return [
        replace(block, end=at, until=at, events=events[:cut], torn_after=False, passes=passes),
        replace(
            block,
            begin=at,
            events=events[cut:],
            torn_before=False,
            is_bounded=False,
            left_at=int(last),
        ),
    ]


def _passes(one: Seated, block: Block, evaluates: bool) -> int:
    """The number of passes without a backward that a block begins with. `evaluates`: the recording
    ends in the block, and other ranks evaluate at that time."""
    if block.torn_before:
        return 0
    if block.torn_after:
        return _passes_begun(one, block, evaluates)
    place, each = one.place, one.place.transfers_each
    if one.forward is not None:
        onward = int(one.forward[block.events].sum())
        return max(0, 2 * onward - len(block.events)) // each
    if place.schedule != ONE_FORWARD_ONE_BACKWARD:
        # Forwards and backwards look alike: those beyond an iteration's are of an evaluation.
        expected = 2 * place.transfers_each * (place.micro_batches or 0)
        same = expected and place.fewest_micro_batches in (None, place.micro_batches)
        return max(0, len(block.events) - expected) // each if same else 0
    shape = shapes_of(one.calls, [block], one.forward)[0]
    if (
        min(place.micro_batches or 0, place.fewest_micro_batches or place.behind + 1)
        <= place.behind
    ):
        return 0  # no exchange of both kinds at once that evaluations would lack
    return shape.sends if not shape.joint else max(0, shape.sent_alone - place.behind)


def _ends_in_evaluation(one: Seated) -> bool:
    if not one.blocks or not one.blocks[-1].torn_after or one.blocks[-1].torn_before:
        return False
    return _passes_begun(one, one.blocks[-1], evaluates=False) > 0


def _passes_begun(one: Seated, block: Block, evaluates: bool) -> int:
    """The same for a block in which the recording ends: an evaluation if it has more forwards than
    any iteration begins with, or all of those forwards completed and no gradient requested."""
    calls, place, events = one.calls, one.place, block.events
    each = place.transfers_each
    if one.forward is None:
        shape = shapes_of(calls, [block], None)[0]
        # In a ring each pass leaves one more Send on the first stage, one more Recv on the last.
        passes = abs(shape.sends - shape.receives)
        evaluates |= passes * each == len(events) and passes >= (place.micro_batches or 1)
        joint = place.schedule == ONE_FORWARD_ONE_BACKWARD and shape.joint
        return len(events) // each if evaluates and not joint else 0
    onward = one.forward[events]
    gradients = np.flatnonzero(~onward)
    if evaluates and not len(gradients):
        return len(events) // each
    if place.micro_batches is None:
        return 0
    before = int(gradients[0]) if len(gradients) else len(events)
    passed = onward & (calls.use[events] == (RECV if place.is_last else SEND))
    leading = int(passed[:before].sum())
    at = place.stages, place.stage, place.micro_batches, place.chunks
    warm = warm_up(place.schedule, *at)
    most = min(1 + warm, place.micro_batches * place.chunks)
    done = not calls.knows_ends or calls.ended_ns[events[-1]] >= 0
    if not len(gradients) and not place.is_last and done and leading >= most:
        return len(events) // each
    if place.schedule == GPIPE:
        return 0
    most += place.chunks > 1  # the next one may be asked for
    if leading <= most:
        return 0
    return (leading - most if len(gradients) else leading) // place.chunks


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
