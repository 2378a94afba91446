"""Evaluations: passes that only go forward, before an iteration or between two.

They are told from training by what never comes back. Few ranks call anything between the last pass
of an evaluation and the first of the next iteration, so that both lie between the same two bounds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from oncall.analysis.iteration_bounds import Block
from oncall.analysis.pipeline_places import Place, shape_of
from oncall.analysis.rank_calls import SEND, UNKNOWN, RankCalls
from oncall.analysis.schedules import GPIPE, Array


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
    if cut == len(events):
        return [replace(block, passes=passes)]
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
            started_ns=ended_ns if ended_ns != UNKNOWN else int(calls.entered_ns[last]),
        ),
    ]


def _passes(calls: RankCalls, block: Block, place: Place, forward: Array | None) -> int:
    """How many passes without a backward a block begins with."""
    if block.torn_before or block.torn_after:
        return 0
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
