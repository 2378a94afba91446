"""Which schedule a job runs: the one that best explains the Sends and Recvs of all ranks.

A hypothesis says where the ranks are in the pipeline and which schedule they follow. From it
follows in which order each rank sends and receives (`schedules.task_order`). The hypothesis whose
orders are nearest to what the ranks did in their whole iterations is taken. If two hypotheses that
name tasks differently are equally near, none is taken.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np

from oncall.analysis.tasks import thresholds
from oncall.analysis.tasks.iteration_bounds import Block
from oncall.analysis.tasks.rank_calls import RECV, SEND, UNKNOWN, RankCalls
from oncall.analysis.tasks.schedules import (
    GPIPE,
    INTERLEAVED,
    ONE_FORWARD_ONE_BACKWARD,
    Array,
    Order,
    task_order,
)

_FORMS = ("one after the other", "exchanged together", "asked for ahead")

Seats: TypeAlias = dict[int, tuple[int, int]]  # rank: its stage, and how many there are


@dataclass(frozen=True)
class Stated:
    """What is stated of a job; None: not stated."""

    stages: int | None = None
    micro_batches: int | None = None
    chunks: int | None = None
    schedule: str | None = None


@dataclass(frozen=True)
class Layout:
    """Where ranks are. `because`: how that is known; `is_reported`: it does not contradict what is
    stated."""

    seats: Seats
    because: str
    is_reported: bool = True


@dataclass(frozen=True)
class Hypothesis:
    """A schedule on a layout; GPipe in chunks is interleaved with all forwards first."""

    layout: Layout
    schedule: str
    chunks: int
    is_reported: bool = True


@dataclass(frozen=True)
class Seen:
    """What one rank's whole iterations look like: how often each sequence of transfers comes.

    A sequence says of each Send and Recv, in order, whether it goes with forwards, or, where that
    is not known (`directed` is false), whether it is a Send.
    """

    rank: int
    directed: bool
    neighbours: int  # ranks that it exchanges with; 0: not known
    shapes: Sequence[tuple[bytes, int]]

    def micro_batches(self, place: tuple[int, int], chunks: int) -> int | None:
        """In its most common iteration, were it at this stage; None: a part of one would be
        left."""
        return _micro_batches(len(self.shapes[0][0]), place, chunks) if self.shapes else None


def seen_of(calls: RankCalls, blocks: Sequence[Block], forward: Array | None) -> Seen:
    """The whole iterations of a rank. What an evaluation sends before one never comes back."""
    events = np.flatnonzero(calls.use <= RECV)
    send = calls.use[events] == SEND
    onward = np.zeros_like(send) if forward is None else forward[events]
    # What one group call holds has no order of its own: sends first, forwards first.
    group = calls.group[events]
    apart = (group < 0) | (np.diff(group, prepend=-2) != 0)
    order = np.lexsort((~onward, ~send, np.cumsum(apart)))
    flags = (send if forward is None else onward)[order].astype(np.bool_)
    counts: dict[bytes, int] = {}
    whole = [block for block in blocks if not (block.torn_before or block.torn_after)]
    begins = np.searchsorted(events, [block.events[0] for block in whole]).tolist()
    for begin, block in zip(begins, whole, strict=True):
        shape = flags[begin : begin + len(block.events)].tobytes()
        excess = 2 * shape.count(1) - len(shape)
        if (
            abs(excess) < len(shape)
            and (b"\1" if excess > 0 else b"\0") * abs(excess) == shape[: abs(excess)]
        ):
            shape = shape[abs(excess) :]
            counts[shape] = counts.get(shape, 0) + 1
    by_frequency = sorted(counts.items(), key=lambda item: -item[1])
    peers = np.unique(calls.peer[events])
    neighbours = 0 if (peers == UNKNOWN).any() or len(peers) > 2 else len(peers)
    shapes = by_frequency[: thresholds.MOST_SHAPES]
    return Seen(calls.rank, forward is not None, neighbours, shapes)


def fit(ranks: Sequence[Seen], layouts: Sequence[Layout], stated: Stated) -> Hypothesis | None:
    """The hypothesis that explains the ranks best, of equal ones the first layout's; None: none
    does, or several that label differently."""
    ranks = [one for one in ranks if one.shapes]
    found: list[tuple[float, Hypothesis]] = []
    for layout in layouts:
        if not ranks or not all(one.rank in layout.seats for one in ranks):
            continue
        for hypothesis in _hypotheses(layout, ranks, stated):
            misfit = _misfit(hypothesis, ranks)
            if misfit == 0 and hypothesis.is_reported and stated.schedule:
                return hypothesis
            misfit += thresholds.AGAINST_STATED * (not hypothesis.is_reported)
            found.append((misfit, hypothesis))
    found.sort(key=lambda one: one[0])
    if not found or found[0][0] > thresholds.FITS:
        return None
    least, best = found[0]
    alike = [other for misfit, other in found[1:] if misfit <= thresholds.ALIKE * least]
    # What is known of a place in the pipeline goes before what is only assumed.
    rivals = [other for other in alike if other.layout.because == best.layout.because]
    for other in rivals:
        if not _label_alike(best, other, ranks):
            return None
    return best


def _hypotheses(layout: Layout, ranks: Sequence[Seen], stated: Stated) -> Iterator[Hypothesis]:
    """Every schedule that the counts of transfers allow."""
    in_chunks = stated.schedule == INTERLEAVED or (stated.chunks or 1) > 1
    for chunks in range(1, thresholds.MOST_CHUNKS + 1):
        if 2 * sum(_may_be(one, layout.seats[one.rank], chunks) for one in ranks) < len(ranks):
            continue
        if chunks > 1 and not in_chunks and any(layout.seats[one.rank][1] == 2 for one in ranks):
            continue  # all transfers would be between the same two, which Megatron-LM refuses
        for schedule in (ONE_FORWARD_ONE_BACKWARD if chunks == 1 else INTERLEAVED, GPIPE):
            is_reported = layout.is_reported and stated.chunks in (None, chunks)
            if stated.schedule is not None:
                is_reported &= chunks > 1 if in_chunks else schedule == stated.schedule
            yield Hypothesis(layout, schedule, chunks, is_reported)


def _may_be(one: Seen, place: tuple[int, int], chunks: int) -> bool:
    """Whether the rank mostly sends as often, and to as many."""
    return one.micro_batches(place, chunks) is not None and _has_neighbours(one, place, chunks)


def _has_neighbours(one: Seen, place: tuple[int, int], chunks: int) -> bool:
    """With chunks the stages are a ring: the last one sends to the first."""
    stage, stages = place
    is_end = stage in (0, stages - 1)
    return one.neighbours in (0, 1 if stages == 2 or (is_end and chunks == 1) else 2)


def _micro_batches(transfers: int, place: tuple[int, int], chunks: int) -> int | None:
    stage, stages = place
    each = 2 * (2 * chunks - (stage in (0, stages - 1)))
    count, rest = divmod(transfers, each)
    odd = rest or not count or stages < 2 or (chunks > 1 and (count % stages or stages < 2))
    return None if odd else count


def _misfit(one: Hypothesis, ranks: Sequence[Seen]) -> float:
    """0 if all ranks mostly do as the hypothesis says, 1 if none does anything like it."""
    distances: dict[tuple[int, tuple[int, int]], float] = {}  # ranks that are alike share shapes
    found = []
    for rank in ranks:
        key = id(rank.shapes), one.layout.seats[rank.rank]
        if key not in distances:
            distances[key] = _median_distance(one, rank)
        found.append(distances[key])
    return float(np.mean(found))


def _median_distance(one: Hypothesis, rank: Seen) -> float:
    """The median of the rank's iterations: few are evaluations, or have lost calls."""
    counts = [count for _, count in rank.shapes]
    return float(np.median(np.repeat([_distance(one, rank, s) for s, _ in rank.shapes], counts)))


def explained(one: Hypothesis, rank: Seen) -> list[int]:
    """The micro-batches of the rank's iterations that are as the hypothesis says."""
    place = one.layout.seats[rank.rank]
    return [
        count
        for shape, _ in rank.shapes
        if (count := _micro_batches(len(shape), place, one.chunks)) is not None
        and _distance(one, rank, shape) < thresholds.EXPLAINED
    ]


def _distance(one: Hypothesis, rank: Seen, shape: bytes) -> float:
    """How far a sequence is from that of the schedule, in whatever form it exchanges."""
    place = one.layout.seats[rank.rank]
    count = _micro_batches(len(shape), place, one.chunks)
    if count is None or not _has_neighbours(rank, place, one.chunks):
        return 1.0
    return _nearest(one.schedule, *place, count, one.chunks, rank.directed, shape)


@lru_cache(maxsize=4096)
def _nearest(
    schedule: str,
    stage: int,
    stages: int,
    micro_batches: int,
    chunks: int,
    directed: bool,
    shape: bytes,
) -> float:
    """Transfers out of place, on average, at most 1."""
    order = task_order(schedule, stages, stage, micro_batches, chunks)
    upto = np.cumsum(np.frombuffer(shape, dtype=np.bool_))
    expected = (np.cumsum(transfers(order, directed, form)) for form in _FORMS[: 1 + 2 * chunks])
    return min(1.0, *(float(np.abs(upto - each).mean()) for each in expected))


def transfers(order: Order, directed: bool, form: str) -> Array:
    """The Sends and Recvs of an iteration in order, each as in `Seen`.

    Megatron-LM's interleaved schedule exchanges for a forward and the backward after it at once;
    or, overlapped, it asks for the next one's input as soon as a forward, or backward, has sent.
    """
    number = np.arange(len(order))
    recv_at, send_at = 2.0 * number, 2.0 * number + 1
    if form == "asked for ahead":
        for backward in (False, True):
            mine = np.flatnonzero(order.backward == backward)
            recv_at[mine[1:]] = send_at[mine[:-1]] + 0.5
    elif form == "exchanged together":
        backwards = np.flatnonzero(order.backward)
        before = int(backwards[0]) - 1 if len(backwards) else len(order)
        paired = (number >= before) & (number < 2 * len(backwards) - before)
        pair = number - (number - before) % 2
        recv_at = np.where(paired, 2.0 * pair, recv_at)
        send_at = np.where(paired, 2.0 * pair + 3, send_at)
    at = np.concatenate([recv_at[order.receives], send_at[order.sends]])
    send = np.repeat([False, True], [order.receives.sum(), order.sends.sum()])
    onward = ~np.concatenate([order.backward[order.receives], order.backward[order.sends]])
    sequence = np.lexsort((~onward, ~send, at))
    return np.asarray(np.where(directed, onward, send)[sequence])


def _label_alike(one: Hypothesis, other: Hypothesis, ranks: Sequence[Seen]) -> bool:
    """Whether both give the tasks of every rank the same names."""
    return all(all(map(np.array_equal, _names(one, rank), _names(other, rank))) for rank in ranks)


def _names(one: Hypothesis, rank: Seen) -> tuple[Any, ...]:
    stage, stages = one.layout.seats[rank.rank]
    count = rank.micro_batches((stage, stages), one.chunks) or 0
    order = task_order(one.schedule, stages, stage, count, one.chunks)
    return stage, order.backward, order.chunk, order.micro_batch
