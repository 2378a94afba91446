"""Where in the pipeline a rank is and which schedule it follows, by its own calls.

If there is a hypothesis on the whole job (`schedule_fit`), that decides. Otherwise the rank's own
calls do, read as 1F1B: the first stage never receives before it sends, the last stage sends no
output on, and the forwards before the first backward show how many stages follow.
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
    Layout,
    Seen,
    Stated,
    explained,
    fit,
    seen_of,
)
from oncall.analysis.tasks.schedules import ONE_FORWARD_ONE_BACKWARD, Array


@dataclass(frozen=True)
class Place:
    """A rank's place: `behind` stages follow its own, `is_first` and `is_last` mark the ends.

    `stages` and so `stage` are None where no rank with data shows how long the pipeline is.
    """

    behind: int
    is_first: bool
    is_last: bool
    chunks: int
    schedule: str
    micro_batches: int | None
    stages: int | None
    fewest_micro_batches: int | None = None  # of any iteration, where batches grow

    @property
    def stage(self) -> int | None:
        return None if self.stages is None else self.stages - 1 - self.behind

    @property
    def template(self) -> tuple[int, int]:
        """Stages and stage that stand for it in a schedule: as many follow, and one comes before
        unless it is the first."""
        if self.stages is not None:
            return self.stages, self.stages - 1 - self.behind
        before = 0 if self.is_first else 1
        return before + 1 + self.behind, before

    @property
    def transfers_each(self) -> int:
        """How often it sends, and receives, for each micro-batch of an iteration."""
        return 2 * self.chunks - (self.is_first or self.is_last)

    @property
    def transfers_forward(self) -> int:
        """Sends and receives of one pass forward."""
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
    found = fit(looks, layouts([one.calls for one in ranks], known, stated), stated)
    if found.taken is None:
        several = found.ambiguous and any(one.directed for one in looks)
        return {} if several else _by_themselves(ranks, looks, stated)
    return _by_one(found.taken, looks, stated)


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
    stage, stages = hypothesis.layout.seats[rank]
    return Place(
        behind=stages - 1 - stage,
        is_first=stage == 0,
        is_last=stage == stages - 1,
        chunks=hypothesis.chunks,
        schedule=hypothesis.schedule,
        micro_batches=micro_batches,
        stages=stages,
        fewest_micro_batches=fewest,
    )


def _by_themselves(
    ranks: Sequence[Found], looks: Sequence[Seen], stated: Stated
) -> dict[int, Place]:
    """Each rank's place by its own calls alone, the same of those that are alike; none if some
    rank's are not those of 1F1B."""
    places: dict[int, Place | None] = {}
    for one, seen in zip(ranks, looks, strict=True):
        if one.calls.alike in places:
            continue
        place = places[one.calls.alike] = place_by_itself(one, directions(one.calls), stated)
        if place is None:
            continue
        stages, stage = place.template
        itself = Hypothesis(
            Layout({seen.rank: (stage, stages)}, "its own calls"), ONE_FORWARD_ONE_BACKWARD, 1
        )
        if seen.shapes and not explained(itself, seen):
            return {}
    return {
        one.calls.rank: place for one in ranks if (place := places[one.calls.alike]) is not None
    }


def place_by_itself(one: Found, forward: Array | None, stated: Stated) -> Place | None:
    """The place of a rank by its own calls, were they 1F1B's; None where they do not show it."""
    calls, blocks = one.calls, one.blocks
    whole = [block for block in blocks if not (block.torn_before or block.torn_after)]
    shapes = [s for s in shapes_of(calls, whole or blocks, forward) if s.sends and s.receives]
    if not shapes:
        return None
    # Evaluations and torn blocks are fewer than iterations.
    counts = [shape.sends for shape in shapes if shape.sends == shape.receives]
    sends = most_frequent(np.array(counts)) if counts else None
    shape = next((s for s in shapes if s.sends == sends == s.receives), shapes[0])
    # Without the other sides, only exchanges of both kinds at once show when backwards begin.
    if forward is None and not any(s.joint for s in shapes):
        return None
    is_first = shape.begins_with_send
    place = Place(
        behind=shape.sent_alone,
        is_first=is_first,
        is_last=not is_first and shape.sent_alone == 0 and shape.joint,
        chunks=1,
        schedule=ONE_FORWARD_ONE_BACKWARD,
        micro_batches=stated.micro_batches,
        stages=None,
    )
    if sends and sends % place.transfers_each == 0:
        place = replace(place, micro_batches=sends // place.transfers_each)
    return place


class Shape(NamedTuple):
    """A block's transfers: how many, and the Sends before the first that comes with a Recv."""

    sends: int
    receives: int
    begins_with_send: bool
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
        send[starts],
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
