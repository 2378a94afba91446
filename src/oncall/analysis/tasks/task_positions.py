"""Which of a rank's calls belong to which task: the transfers by their order, the others by place.

In an iteration the n-th Send is that of the n-th task that sends, whatever the schedule; so an
iteration that is complete needs nothing but counting. One that the recorder tore is counted from
the end that is whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

import numpy as np

from oncall.analysis.tasks import thresholds
from oncall.analysis.tasks.call_patterns import most_frequent, period
from oncall.analysis.tasks.evaluation_blocks import is_whole
from oncall.analysis.tasks.iteration_bounds import Block
from oncall.analysis.tasks.pipeline_places import Place, Seated
from oncall.analysis.tasks.rank_calls import SEND, UNKNOWN, RankCalls
from oncall.analysis.tasks.schedules import (
    FORWARD_ONLY,
    INTERLEAVED,
    Array,
    Exchanges,
    Order,
    interleaved_exchanges,
    task_order,
)

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
    if not any(exchanged):
        return _in_blocks(calls, blocks, parts, forward, together=together)
    return _join(
        [
            _in_blocks(calls, blocks, [part], forward, together=together)
            if found is None
            else _between_exchanges(blocks[part[0]], part[0], part[1](True), found)
            for part, found in zip(parts, exchanged, strict=True)
        ]
    )


@dataclass(frozen=True)
class _Ordered:
    """A schedule still to be asked for; called with whether exchanges are made together."""

    schedule: str
    place: Place
    micro_batches: int

    def __call__(self, together: bool) -> Order:
        stages, stage = self.place.stages, self.place.stage
        return task_order(
            self.schedule,
            stages,
            stage,
            self.micro_batches,
            self.place.chunks,
            exchanged_together=together,
        )


_Counted: TypeAlias = tuple[int, _Ordered, int]  # a block, its schedule, from where it is counted


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
    parts: Sequence[_Counted],
    forward: Array | None,
) -> bool:
    """Whether forwards and backwards of the steady state exchange in one group call after both:
    then a forward's Send comes after the gradient that the backward behind it needs."""
    whole = [part for part in parts if part[2] == 0]
    if not whole:
        return False
    tasks = _in_blocks(calls, blocks, [whole[len(whole) // 2]], forward, together=False)
    inverted = (tasks.send_at >= 0) & (tasks.send_at < tasks.low)
    late = (tasks.low > NOWHERE) & (tasks.high >= 0) & (tasks.high < tasks.low)
    return bool((inverted | late).mean() > thresholds.INVERTED)


def _in_blocks(
    calls: RankCalls,
    blocks: Sequence[Block],
    counted: Sequence[_Counted],
    forward: Array | None,
    *,
    together: bool,
) -> Tasks:
    """The tasks of blocks with their transfers and bounds, of all blocks at once."""
    parts = [(n, order(together), end) for n, order, end in counted]
    parts = [part for part in parts if len(part[1])]
    if not parts:
        return _join([])
    mine = [blocks[n] for n, _, _ in parts]
    ends = np.array([end for _, _, end in parts])
    sizes = np.array([len(order) for _, order, _ in parts])
    part = np.repeat(np.arange(len(parts)), sizes)
    order = Order(
        **{
            name: np.concatenate([getattr(each, name) for _, each, _ in parts])
            for name in Order.__dataclass_fields__
        }
    )
    events = np.concatenate([block.events for block in mine])
    moved = _Moved(events, np.repeat(np.arange(len(mine)), [len(b.events) for b in mine]), ends < 0)
    send = calls.use[events] == SEND
    recv_at, send_at = np.full((2, len(part)), UNKNOWN, dtype=np.int64)
    if forward is None:
        moved.fill(recv_at, part, order.receives, ~send)
        moved.fill(send_at, part, order.sends, send)
    else:
        for backward in (False, True):
            tasks, turned = order.backward == backward, forward[events] != backward
            moved.fill(recv_at, part, order.receives & tasks, ~send & turned)
            moved.fill(send_at, part, order.sends & tasks, send & turned)
    opening = np.diff(part, prepend=-1) != 0
    group = np.cumsum(opening | ~np.append(False, order.joined[:-1])) - 1
    low, high = _bounds(mine, ends >= 0, recv_at, send_at, group, part)
    trains = np.maximum.reduceat(order.backward, np.flatnonzero(opening))
    return Tasks(
        block=np.array([n for n, _, _ in parts])[part],
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
        evaluation=~trains[part],
        complete=(ends == 0)[part],
    )


def _exchanged(calls: RankCalls, block: Block, order: _Ordered, end: int) -> Exchanges | None:
    """The exchanges of a whole block, if they are those of Megatron's interleaved schedule."""
    place = order.place
    if order.schedule != INTERLEAVED or end != 0 or place.chunks == 1:
        return None
    stages, stage = place.stages, place.stage
    if order.micro_batches % stages:
        return None
    due = interleaved_exchanges(stages, stage, order.micro_batches, place.chunks)
    events = block.events
    return due if due.are(calls.use[events] == SEND, calls.group[events]) else None


def _between_exchanges(block: Block, number: int, order: Order, due: Exchanges) -> Tasks:
    """The tasks of a whole block: each has its calls between the exchanges before and after it."""
    n, events = len(order), block.events
    recv_at, send_at = np.full((2, n), UNKNOWN, dtype=np.int64)
    moved = _Moved(events, np.zeros(len(events), dtype=np.int64), np.array([False]))
    alone = np.zeros(n, dtype=np.int64)
    for backward in (False, True):
        mine, turned = order.backward == backward, due.forward != backward
        moved.fill(recv_at, alone, order.receives & mine, ~due.send & turned)
        moved.fill(send_at, alone, order.sends & mine, due.send & turned)
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


@dataclass(frozen=True)
class _Moved:
    """Sends and Recvs of blocks in order; (n,): their positions, and the block of each.
    `from_end` (blocks,): they are counted from the end of the block."""

    positions: Array
    block: Array
    from_end: Array

    def fill(self, target: Array, block: Array, tasks: Array, transfers: Array) -> None:
        """Give the chosen transfers (n,) to the chosen tasks, in order within each block; `target`
        (tasks,) are the positions, `block` the block of each task."""
        at, given = np.flatnonzero(tasks), np.flatnonzero(transfers)
        asks = np.bincount(block[at], minlength=len(self.from_end))
        has = np.bincount(self.block[given], minlength=len(self.from_end))
        mine = block[at]
        nth = np.arange(len(at)) - (np.cumsum(asks) - asks)[mine]
        nth += np.where(self.from_end, has - asks, 0)[mine]
        there = (nth >= 0) & (nth < has[mine])
        place = (np.cumsum(has) - has)[mine] + nth
        target[at[there]] = self.positions[given[place[there]]]


def _bounds(
    blocks: Sequence[Block],
    from_begin: Array,
    recv_at: Array,
    send_at: Array,
    group: Array,
    part: Array,
) -> tuple[Array, Array]:
    """Between which positions each task's group has its calls (tasks,); NOWHERE if not known.

    `part` (tasks,) is the block of each; `from_begin` (blocks,): counted from its begin."""
    far = np.iinfo(np.int64).max
    starts = np.flatnonzero(np.diff(group, prepend=-1))
    last_recv, last_send, first_recv, first_send = (
        each
        for extreme, none in ((np.maximum, NOWHERE), (np.minimum, far))
        for each in (
            extreme.reduceat(np.where(at >= 0, at, none), starts) for at in (recv_at, send_at)
        )
    )
    block = part[starts]
    begins = np.array([one.begin for one in blocks])
    ends = np.array([one.end for one in blocks])
    torn = np.array([one.torn_after for one in blocks])
    is_first, is_last = np.diff(block, prepend=-1) != 0, np.diff(block, append=-1) != 0
    opening = np.where(from_begin, begins - 1, NOWHERE)[block]
    low = np.maximum(last_recv, np.where(is_first, opening, np.roll(last_send, 1)))
    closing = np.where(from_begin & torn, far, ends)[block]
    following = np.where(is_last, closing, np.roll(first_recv, -1))
    high = np.where(first_send < far, first_send, following)
    # What nothing bounds from behind ends with the block, if the rank has begun it.
    place = np.arange(len(starts))
    bounded = np.maximum.reduceat(np.where(high < far, place, -1), np.flatnonzero(is_first))
    begun = (place > bounded[block]) & (low > NOWHERE)
    high = np.where(begun, ends[block], np.where(high == far, NOWHERE, high))
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
    events = np.concatenate([block.events for block in blocks])
    sizes = np.array([len(block.events) for block in blocks])
    starts = np.cumsum(sizes) - sizes
    length = period(calls.word[events], starts)
    each = most_frequent(sizes)
    if length is None and each:
        length = each // (micro_batches or 1)
    if not length or not each:
        return _join([])
    torn_before, torn_after = np.array([(b.torn_before, b.torn_after) for b in blocks]).T
    counts = sizes // length
    # A torn block is counted from the end that is whole.
    opening = starts + np.where(torn_before, sizes - counts * length, 0)
    block = np.repeat(np.arange(len(blocks)), counts)
    micro_batch = np.arange(len(block)) - np.repeat(np.cumsum(counts) - counts, counts)
    first = opening[block] + micro_batch * length
    complete = ~(torn_before | torn_after) | (sizes == each)
    twice = partial(np.repeat, repeats=2)  # a forward and its backward share the calls
    none = np.full(2 * len(block), UNKNOWN, dtype=np.int64)
    no = np.zeros(2 * len(block), dtype=np.bool_)
    return Tasks(
        block=twice(block),
        backward=np.tile([False, True], len(block)),
        chunk=np.zeros(2 * len(block), dtype=np.int64),
        micro_batch=twice(micro_batch),
        receives=no,
        sends=no,
        recv_at=none,
        send_at=none,
        group=twice(np.arange(len(block))),
        low=twice(events[first] - 1),
        high=twice(events[first + length - 1] + 1),
        evaluation=no,
        complete=twice(complete[block]),
    )
