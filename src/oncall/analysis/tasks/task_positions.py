"""Which of a rank's calls belong to which task: the transfers by their order, the others by place.

In an iteration the n-th Send is that of the n-th task that sends, whatever the schedule; so an
iteration that is complete needs nothing but counting. One that the recorder tore is counted from
the end that is whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from oncall.analysis.calls.exchanges import Exchanges, interleaved_exchanges
from oncall.analysis.calls.iteration_bounds import Block
from oncall.analysis.calls.rank_calls import SEND, UNKNOWN, RankCalls
from oncall.analysis.calls.schedules import (
    FORWARD_ONLY,
    INTERLEAVED,
    Array,
    Order,
    task_order,
)
from oncall.analysis.calls.tensor_patterns import period, usual
from oncall.analysis.tasks.micro_batch_counts import is_whole
from oncall.analysis.tasks.pipeline_places import Place, Seated

NOWHERE = -2  # before the first call is -1


@dataclass(frozen=True)
class Tasks:
    """Tasks of one rank in the order they ran; arrays (t,), positions of calls, -1 none.

    `block` is the block of each. Tasks of one `group` follow one another without a transfer; a
    group's calls lie between the positions `low` and `high` (the calls there not included).
    `complete`: the whole iteration was counted.
    """

    block: Array
    backward: Array
    chunk: Array
    micro_batch: Array
    receives: Array
    sends: Array
    recv_at: Array
    send_at: Array
    group: Array
    low: Array
    high: Array
    evaluation: Array
    complete: Array

    def __len__(self) -> int:
        return len(self.block)


def place_tasks(one: Seated, micro_batches: Array) -> Tasks:
    """The tasks of all blocks that can be counted; `micro_batches` (blocks,)."""
    calls, blocks, forward = one.calls, one.blocks, one.forward
    parts = []
    for number, block in enumerate(blocks):
        counted = _count(one, block, int(micro_batches[number]))
        if counted is not None:
            parts.append((number, *counted))
    interleaved = one.place.schedule == INTERLEAVED
    exchanged = [_exchanged(calls, blocks[n], order, end) for n, order, end in parts]
    together = interleaved and (any(exchanged) or _together(calls, blocks, parts, forward))
    return _join(
        [
            _in_block(calls, blocks[n], n, order(together), forward, end)
            if found is None
            else _between_exchanges(blocks[n], n, order(True), found)
            for (n, order, end), found in zip(parts, exchanged, strict=True)
        ]
    )


@dataclass(frozen=True)
class _Ordered:
    """A schedule still to be asked for; called with whether exchanges are made together."""

    schedule: str
    place: Place
    micro_batches: int

    def __call__(self, together: bool) -> Order:
        stages, stage = self.place.template
        return task_order(
            self.schedule,
            stages,
            stage,
            self.micro_batches,
            self.place.chunks,
            exchanged_together=together,
        )


def _count(one: Seated, block: Block, micro_batches: int) -> tuple[_Ordered, int] | None:
    """The schedule that fits a block, and from where to count: 1 its begin, -1 its end, 0 both
    agree; None if none fits."""
    place = one.place
    if block.passes:
        return _Ordered(FORWARD_ONLY, place, block.passes), 0
    each = place.transfers_each
    sends = int((one.calls.use[block.events] == SEND).sum())
    receives = len(block.events) - sends
    even = sends == receives and sends % each == 0
    torn = (block.torn_before or block.torn_after) and not (even and is_whole(one, block))
    if even and (not torn or sends // each == micro_batches):
        return _Ordered(place.schedule, place, sends // each), 0
    if not torn or not micro_batches or (block.torn_before and block.torn_after):
        return None
    if max(sends, receives) > each * micro_batches:
        return None
    return _Ordered(place.schedule, place, micro_batches), 1 if block.torn_after else -1


def _together(
    calls: RankCalls,
    blocks: Sequence[Block],
    parts: Sequence[tuple[int, _Ordered, int]],
    forward: Array | None,
) -> bool:
    """Whether forwards and backwards of the steady state exchange in one group call after both:
    then a forward's Send comes after the gradient that the backward behind it needs."""
    whole = [part for part in parts if part[2] == 0]
    if not whole:
        return False
    number, order, end = whole[len(whole) // 2]
    tasks = _in_block(calls, blocks[number], number, order(False), forward, end)
    inverted = (tasks.send_at >= 0) & (tasks.send_at < tasks.low)
    late = (tasks.low > NOWHERE) & (tasks.high >= 0) & (tasks.high < tasks.low)
    return bool((inverted | late).mean() > calls.thresholds.inverted)


def _in_block(
    calls: RankCalls, block: Block, number: int, order: Order, forward: Array | None, end: int
) -> Tasks:
    """The tasks of a block with their transfers and bounds."""
    events = block.events
    send = calls.use[events] == SEND
    recv_at = np.full(len(order), UNKNOWN, dtype=np.int64)
    send_at = recv_at.copy()
    if forward is None:
        _fill(recv_at, np.flatnonzero(order.receives), events[~send], end)
        _fill(send_at, np.flatnonzero(order.sends), events[send], end)
    else:
        onward = forward[events]
        for backward in (False, True):
            mine, turned = order.backward == backward, onward != backward
            _fill(recv_at, np.flatnonzero(order.receives & mine), events[~send & turned], end)
            _fill(send_at, np.flatnonzero(order.sends & mine), events[send & turned], end)
    group = np.concatenate([[0], np.cumsum(~order.joined[:-1])]) if len(order) else recv_at
    low, high = _bounds(block, recv_at, send_at, group, from_begin=end >= 0)
    return Tasks(
        block=np.full(len(order), number),
        backward=order.backward,
        chunk=order.chunk,
        micro_batch=order.micro_batch,
        receives=order.receives,
        sends=order.sends,
        recv_at=recv_at,
        send_at=send_at,
        group=group,
        low=low,
        high=high,
        evaluation=np.full(len(order), not order.backward.any()),
        complete=np.full(len(order), end == 0),
    )


def _exchanged(calls: RankCalls, block: Block, order: _Ordered, end: int) -> Exchanges | None:
    """The exchanges of a whole block, if they are those of Megatron's interleaved schedule."""
    place = order.place
    if order.schedule != INTERLEAVED or end != 0 or place.chunks == 1:
        return None
    stages, stage = place.template
    if order.micro_batches % stages:
        return None
    due = interleaved_exchanges(stages, stage, order.micro_batches, place.chunks)
    events = block.events
    return due if due.are(calls.use[events] == SEND, calls.group[events]) else None


def _between_exchanges(block: Block, number: int, order: Order, due: Exchanges) -> Tasks:
    """The tasks of a whole block: each has its calls between the exchanges before and after it."""
    n, events = len(order), block.events
    recv_at, send_at = np.full((2, n), UNKNOWN, dtype=np.int64)
    for backward in (False, True):
        mine, turned = order.backward == backward, due.forward != backward
        _fill(recv_at, np.flatnonzero(order.receives & mine), events[~due.send & turned], 0)
        _fill(send_at, np.flatnonzero(order.sends & mine), events[due.send & turned], 0)
    done = np.arange(n)
    before = np.searchsorted(due.after, done, side="right")  # events up to the task's begin
    low = np.concatenate([[block.begin - 1], events])[before]
    high = np.append(events, block.end)[before]
    return Tasks(
        block=np.full(n, number),
        backward=order.backward,
        chunk=order.chunk,
        micro_batch=order.micro_batch,
        receives=order.receives,
        sends=order.sends,
        recv_at=recv_at,
        send_at=send_at,
        group=np.cumsum(np.diff(before, prepend=before[:1]) != 0),
        low=low,
        high=high,
        evaluation=np.zeros(n, dtype=np.bool_),
        complete=np.ones(n, dtype=np.bool_),
    )


def _fill(target: Array, tasks: Array, positions: Array, end: int) -> None:
    """Give the positions to the tasks in order, counted from the begin or (-1) from the end."""
    n = min(len(tasks), len(positions))
    if n and end < 0:
        target[tasks[-n:]] = positions[-n:]
    elif n:
        target[tasks[:n]] = positions[:n]


def _bounds(
    block: Block, recv_at: Array, send_at: Array, group: Array, *, from_begin: bool
) -> tuple[Array, Array]:
    """Between which positions each task's group has its calls (tasks,); NOWHERE if not known."""
    groups = int(group[-1]) + 1 if len(group) else 0
    far = np.iinfo(np.int64).max
    last_recv, last_send = np.full((2, groups), NOWHERE)
    first_recv, first_send = np.full((2, groups), far)
    for at, lowest, highest in ((recv_at, first_recv, last_recv), (send_at, first_send, last_send)):
        known = at >= 0
        np.minimum.at(lowest, group[known], at[known])
        np.maximum.at(highest, group[known], at[known])
    opening = block.begin - 1 if from_begin else NOWHERE
    low = np.maximum(last_recv, np.concatenate([[opening], last_send[:-1]]))
    closing = far if from_begin and block.torn_after else block.end
    high = np.where(first_send < far, first_send, np.append(first_recv[1:], closing))
    # What nothing bounds from behind ends with the block, if the rank has begun it.
    later = np.maximum.accumulate((high < far)[::-1])[::-1]
    begun = ~later & (low > NOWHERE)
    high = np.where(begun, block.end, np.where(high == far, NOWHERE, high))
    return low[group], high[group]


def _join(parts: Sequence[Tasks]) -> Tasks:
    """All blocks' tasks; groups stay distinguished."""
    offset, moved = 0, []
    for part in parts:
        moved.append(part.group + offset)
        offset += int(part.group[-1]) + 1 if len(part) else 0
    fields = Tasks.__dataclass_fields__
    empty = np.zeros(0, dtype=np.int64)
    joined = {
        name: np.concatenate([getattr(part, name) for part in parts]) if parts else empty
        for name in fields
    }
    return Tasks(**(joined | {"group": np.concatenate(moved) if moved else empty}))


# ---------------------------------------------------------- without a pipeline


def place_alone(calls: RankCalls, blocks: Sequence[Block], micro_batches: int | None) -> Tasks:
    """The tasks where there is one stage: the calls repeat with every micro-batch."""
    if not blocks:
        return _join([])
    words = calls.word[np.concatenate([block.events for block in blocks])]
    starts = np.cumsum([0] + [len(block.events) for block in blocks[:-1]])
    length = period(words, starts, calls.thresholds)
    each = usual(np.array([len(block.events) for block in blocks]))
    if length is None and each:
        length = each // (micro_batches or 1)
    if not length or not each:
        return _join([])
    return _join([_alone(block, number, length, each) for number, block in enumerate(blocks)])


def _alone(block: Block, number: int, length: int, usually: int) -> Tasks:
    count = len(block.events) // length
    torn = block.torn_before or block.torn_after
    # A torn block is counted from the end that is whole.
    skipped = len(block.events) - count * length if block.torn_before else 0
    firsts = block.events[skipped : skipped + count * length : length]
    lasts = block.events[skipped + length - 1 : skipped + count * length : length]
    group = np.repeat(np.arange(count), 2)
    none = np.full(2 * count, UNKNOWN, dtype=np.int64)
    no = np.zeros(2 * count, dtype=np.bool_)
    return Tasks(
        block=np.full(2 * count, number),
        backward=np.tile([False, True], count),
        chunk=np.zeros(2 * count, dtype=np.int64),
        micro_batch=group,
        receives=no,
        sends=no,
        recv_at=none,
        send_at=none,
        group=group,
        low=np.repeat(firsts - 1, 2),
        high=np.repeat(lasts + 1, 2),
        evaluation=no,
        complete=np.full(2 * count, not torn or len(block.events) == usually),
    )
