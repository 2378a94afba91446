"""Where in the pipeline a rank is and which schedule it follows: by the hypothesis on the whole job
(`schedule_fit`) that explains the calls of all ranks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from oncall.analysis.tasks.call_patterns import most_frequent
from oncall.analysis.tasks.iteration_bounds import Block
from oncall.analysis.tasks.pipeline_layouts import Memberships, layouts
from oncall.analysis.tasks.rank_calls import RECV, SEND, UNKNOWN, RankCalls
from oncall.analysis.tasks.schedule_fit import (
    Hypothesis,
    Seen,
    Stated,
    explained,
    fit,
    seen_of,
)
from oncall.analysis.tasks.schedules import Array


@dataclass(frozen=True)
class Place:
    """A rank's place: its `stage` of so many `stages`, and the schedule that it follows."""

    stage: int
    stages: int
    chunks: int
    schedule: str
    micro_batches: int | None
    fewest_micro_batches: int | None  # of any iteration, where batches grow

    @property
    def behind(self) -> int:
        """Stages that follow its own."""
        return self.stages - 1 - self.stage

    @property
    def is_first(self) -> bool:
        return self.stage == 0

    @property
    def is_last(self) -> bool:
        return self.behind == 0

    @property
    def transfers_each(self) -> int:
        """How often it sends, and receives, for each micro-batch of an iteration; sends and
        receives of one pass forward."""
        return 2 * self.chunks - (self.is_first or self.is_last)


def directions(calls: RankCalls, *, both_ways: bool = False) -> Array | None:
    """For each call whether the pipeline's transfer goes with forwards: to the next stage or from
    the one before (n,); None where the other sides do not show it.

    `both_ways`: there are two stages that take turns, so that the next is the one before, too.
    """
    peers = np.unique(calls.peer[calls.use <= RECV]).tolist()
    if not peers or peers[0] == UNKNOWN or len(peers) > 2 or both_ways:
        return None
    onward = calls.peer == _following(calls.rank, peers)
    return np.asarray(np.where(calls.use == SEND, onward, ~onward))


def _following(rank: int, peers: Sequence[int]) -> int:
    """The rank of the next stage (UNKNOWN: none): stages follow one another in the order of ranks,
    and after the last comes the first again, where chunks take turns."""
    if len(peers) == 1:
        return peers[0] if peers[0] > rank else UNKNOWN
    above = [peer for peer in peers if peer > rank]
    return min(above) if above else min(peers)


@dataclass(frozen=True)
class Found:
    """A rank's calls and the blocks in them."""

    calls: RankCalls
    blocks: list[Block]

    @property
    def is_chained(self) -> bool:
        """The rank sends to other stages, or receives from them."""
        return bool((self.calls.use <= RECV).any())


@dataclass(frozen=True)
class Seated:
    """A rank in a pipeline, its blocks, and which of its transfers go with forwards (n,); None
    where that is not known. It stands for so many `ranks` that are alike and have such a place."""

    calls: RankCalls
    blocks: list[Block]
    place: Place
    forward: Array | None
    ranks: int = 1


def seat(one: Found, place: Place, ranks: int = 1) -> Seated:
    """A rank at its place. At an end of the pipeline it exchanges both with the same stage, and a
    Send is a forward's, or a gradient's."""
    forward = directions(one.calls, both_ways=place.stages == 2 and place.chunks > 1)
    if forward is None and place.chunks == 1 and (place.is_first or place.is_last):
        forward = (one.calls.use == SEND) == place.is_first
    return Seated(one.calls, one.blocks, place, forward, ranks)


def find_places(ranks: Sequence[Found], known: Memberships, stated: Stated) -> dict[int, Place]:
    """The places of a job's ranks that are here, by the hypothesis that explains all of them."""
    ranks = [one for one in ranks if one.is_chained]
    if not ranks:
        return {}
    looks = _looks(ranks)
    taken = fit(looks, layouts([one.calls for one in ranks], known, stated), stated)
    return {} if taken is None else _by_one(taken, looks, stated)


def _by_one(hypothesis: Hypothesis, looks: Sequence[Seen], stated: Stated) -> dict[int, Place]:
    """The places of all ranks that the hypothesis knows of."""
    seats, chunks = hypothesis.layout.seats, hypothesis.chunks
    looks = [one for one in looks if one.rank in seats]
    own = {one.rank: one.micro_batches(seats[one.rank], chunks) for one in looks}
    common = (
        most_frequent(np.array([count for count in own.values() if count])) or stated.micro_batches
    )
    # Inside the pipeline, evaluations look like more of the same where no other side is known.
    counts = [
        count
        for one in looks
        if one.directed or _is_end(*seats[one.rank])
        for count in explained(hypothesis, one)
    ]
    fewest = min(counts, default=None)
    return {
        rank: _by_hypothesis(hypothesis, rank, count or common, fewest)
        for rank, count in own.items()
    }


def _is_end(stage: int, stages: int) -> bool:
    return stage in (0, stages - 1)


def _looks(ranks: Sequence[Found]) -> list[Seen]:
    seen: dict[int, Seen] = {}
    for one in ranks:
        if one.calls.alike not in seen:
            seen[one.calls.alike] = _look(one)
    return [replace(seen[one.calls.alike], rank=one.calls.rank) for one in ranks]


def _look(one: Found) -> Seen:
    """A rank's iterations. If it has one neighbour, all its Sends go in one direction, unless the
    pipeline is a ring of two stages: then the direction is unknown."""
    neighbours = np.unique(one.calls.peer[one.calls.use <= RECV])
    return seen_of(one.calls, one.blocks, directions(one.calls) if len(neighbours) > 1 else None)


def _by_hypothesis(
    hypothesis: Hypothesis, rank: int, micro_batches: int | None, fewest: int | None
) -> Place:
    shape = hypothesis.chunks, hypothesis.schedule
    return Place(*hypothesis.layout.seats[rank], *shape, micro_batches, fewest)


class Shape(NamedTuple):
    """A block's transfers: how many, and the Sends before the first that comes with a Recv."""

    sends: int
    receives: int
    sent_alone: int
    joint: bool


def shapes_of(calls: RankCalls, blocks: Sequence[Block], forward: Array | None) -> list[Shape]:
    """The shape of each block."""
    if not blocks:
        return []
    events = np.concatenate([block.events for block in blocks])
    sizes = np.array([len(block.events) for block in blocks])
    ends = np.cumsum(sizes)
    starts = ends - sizes
    block = np.repeat(np.arange(len(blocks)), sizes)
    place = np.arange(len(events))
    send = calls.use[events] == SEND
    joint = _joint(calls, events, starts, block)
    if forward is not None:
        gradient = np.where(forward[events], ends[block], place)
        turn = np.minimum.reduceat(gradient, starts)
        before = np.maximum(turn - 1, 0)
        together = (starts < turn) & (turn < ends) & joint[before] & send[before]
    else:
        turn = np.minimum.reduceat(np.where(joint, place, ends[block]), starts)
        together = np.zeros(len(blocks), dtype=np.bool_)
    sent = np.concatenate([[0], np.cumsum(send)])
    sends = sent[ends] - sent[starts]
    columns = (
        sends,
        sizes - sends,
        sent[turn] - sent[starts] - together,
        np.logical_or.reduceat(joint, starts),
    )
    return list(map(Shape, *(column.tolist() for column in columns)))


def _joint(calls: RankCalls, events: Array, starts: Array, block: Array) -> Array:
    """The transfers (n,) that are exchanged together with the next one of their block: Megatron
    does so with a forward's output and a gradient, in one group call."""
    send = calls.use[events] == SEND
    group = calls.group[events]
    between = np.cumsum(calls.use[events[0] : events[-1] + 1] > RECV)[events - events[0]]
    grouped = np.logical_and.reduceat(group >= 0, starts)[block]
    joint = np.zeros(len(events), dtype=np.bool_)
    joint[:-1] = (block[:-1] == block[1:]) & np.where(
        grouped[:-1],
        (send[:-1] != send[1:]) & (group[:-1] == group[1:]),
        send[:-1] & ~send[1:] & (between[:-1] == between[1:]),
    )
    return joint
