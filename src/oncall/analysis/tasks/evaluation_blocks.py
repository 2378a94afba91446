"""Evaluations: forward passes without backwards, before an iteration or between two.

A forward of training is followed by its backward; one of an evaluation is not. Few ranks make a
call between the last pass of an evaluation and the first pass of the next iteration, so both may
lie in one block, between the same two bounds.

Batches grow, so one iteration may have more micro-batches than another.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from oncall.analysis.tasks.iteration_bounds import Block
from oncall.analysis.tasks.pipeline_places import Seated
from oncall.analysis.tasks.rank_calls import SEND
from oncall.analysis.tasks.schedules import ONE_FORWARD_ONE_BACKWARD, Array, warm_up


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
    place, each, events = one.place, one.place.transfers_each, len(block.events)
    if block.torn_after:
        gradients = one.forward is not None and not one.forward[block.events].all()
        return events // each if evaluates and not gradients else 0
    if one.forward is not None:
        onward = int(one.forward[block.events].sum())
        return max(0, 2 * onward - events) // each
    # Forwards and backwards look alike: those beyond an iteration's are of an evaluation.
    expected = 2 * each * (place.micro_batches or 0)
    same = expected and place.fewest_micro_batches in (None, place.micro_batches)
    return max(0, events - expected) // each if same else 0


def _ends_in_evaluation(one: Seated) -> bool:
    """The recording ends in forwards alone, as many as an iteration begins with, and no gradient
    was asked for after them."""
    block, place = one.blocks[-1] if one.blocks else None, one.place
    if block is None or one.forward is None or place.micro_batches is None:
        return False
    if not block.torn_after or block.torn_before or not one.forward[block.events].all():
        return False
    if place.stage == place.stages - 1:  # it asks for none
        return False
    sent = int((one.calls.use[block.events] == SEND).sum())
    warm = warm_up(place.schedule, place.stages, place.stage, place.micro_batches, place.chunks)
    done = not one.calls.knows_ends or one.calls.ended_ns[block.events[-1]] >= 0
    return bool(done and sent >= min(1 + warm, place.micro_batches * place.chunks))


def micro_batch_counts(ranks: Sequence[Seated]) -> list[Array]:
    """For each rank the micro-batches of its blocks (blocks,), 0 without data. Torn blocks have as
    many as the whole one next to them."""
    found = []
    for one in ranks:
        counts = np.array([_own(one, block) for block in one.blocks], dtype=np.int64)
        whole = np.flatnonzero(counts)
        if len(whole):
            nearest = np.searchsorted((whole[1:] + whole[:-1]) / 2, np.arange(len(counts)))
            counts = counts[whole[nearest]]
        else:
            counts[:] = one.place.micro_batches or 0
        found.append(counts)
    return found


def is_whole(one: Seated, block: Block) -> bool:
    """Whether a block holds a whole iteration although calls may be missing at its ends.

    A torn block lacks forwards at its begin, or backwards at its end. The last stage of 1F1B does
    not show this, since each of its forwards is followed by its backward.
    """
    place = one.place
    is_last = place.stage == place.stages - 1
    if one.forward is None or (is_last and place.schedule == ONE_FORWARD_ONE_BACKWARD):
        return False
    return 2 * int(one.forward[block.events].sum()) == len(block.events)


def _own(one: Seated, block: Block) -> int:
    """The micro-batches of a block that is whole, else 0."""
    sends = int((one.calls.use[block.events] == SEND).sum())
    count, rest = divmod(sends, one.place.transfers_each)
    torn = (block.torn_before or block.torn_after) and not is_whole(one, block)
    return 0 if block.passes or rest or torn or 2 * sends != len(block.events) else count
