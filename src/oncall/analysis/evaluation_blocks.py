"""Evaluations: passes that only go forward, before an iteration or between two.

They are told from training by what never comes back. Few ranks call anything between the last pass
of an evaluation and the first of the next iteration, so that both lie between the same two bounds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from oncall.analysis.iteration_bounds import Block
from oncall.analysis.pipeline_places import Place, shape_of
from oncall.analysis.rank_calls import RECV, SEND, UNKNOWN, RankCalls
from oncall.analysis.schedules import GPIPE, INTERLEAVED, Array, warm_up


def split_evaluations(
    calls: RankCalls, blocks: Sequence[Block], place: Place, forward: Array | None
) -> list[Block]:
    """The blocks, each either of evaluation or of training. Torn ones stay as they are."""
    return [
        part
        for block in blocks
        for part in _split(calls, block, _passes(calls, block, place, forward), place)
    ]


def _split(calls: RankCalls, block: Block, passes: int, place: Place) -> list[Block]:
    """An evaluation of so many passes, and what comes after it."""
    events = block.events
    cut = passes * place.transfers_forward
    if passes <= 0 or cut > len(events):
        return [block]
    if cut >= len(events) - 1:  # one more may have come in
        return [replace(block, passes=-(-len(events) // place.transfers_forward))]
    last = events[cut - 1]
    at = int(last + 1 if calls.use[last] == SEND else events[cut])
    ended_ns = int(calls.ended_ns[last])
    return [
        replace(block, end=at, until=at, events=events[:cut], torn_after=False, passes=passes),
        replace(
            block,
            begin=at,
            events=events[cut:],
            torn_before=False,
            is_bounded=False,
            started_ns=ended_ns if ended_ns != UNKNOWN else int(calls.entered_ns[last]),
        ),
    ]


def _passes(calls: RankCalls, block: Block, place: Place, forward: Array | None) -> int:
    """How many passes without a backward a block begins with."""
    if block.torn_before:
        return 0
    if block.torn_after:
        return _passes_begun(calls, block, place, forward)
    shape = shape_of(calls, block, forward)
    if forward is not None:
        onward = int(forward[block.events].sum())
        excess = 2 * onward - len(block.events)
        return excess // place.transfers_forward if excess > 0 else 0
    if place.chunks > 1 or place.schedule == GPIPE:
        return 0
    if place.is_first or place.is_last:
        return abs(shape.sends - shape.receives)
    if place.micro_batches is None or place.micro_batches <= place.behind:
        return 0  # no exchange of both kinds at once that evaluations would lack
    return shape.sends if not shape.joint else max(0, shape.sent_alone - place.behind)


def _passes_begun(calls: RankCalls, block: Block, place: Place, forward: Array | None) -> int:
    """The same where the recording ends in the block: more forwards than any iteration begins
    with."""
    if forward is None or place.schedule == GPIPE:
        return 0
    if place.chunks > 1 and (place.stages is None or place.micro_batches is None):
        return 0
    events = block.events
    onward = forward[events] & (calls.use[events] == (RECV if place.is_last else SEND))
    gradients = np.flatnonzero(~forward[events])
    leading = int(onward[: gradients[0]].sum() if len(gradients) else onward.sum())
    most = 1 + place.behind
    if place.chunks > 1:
        stages, stage = place.template
        most = 2 + warm_up(INTERLEAVED, stages, stage, place.micro_batches or 0, place.chunks)
    if leading <= most:
        return 0
    return (leading - most if len(gradients) else leading) // place.chunks
