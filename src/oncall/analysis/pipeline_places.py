"""Where in the pipeline a rank is and what its schedule is, as far as its own calls tell it.

What is told is taken as told. Else: the first stage never receives before it sends, the last sends
nothing on, and the forwards before the first backward tell how many stages follow (1F1B).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from oncall.analysis.iteration_bounds import Block
from oncall.analysis.rank_calls import RECV, SEND, UNKNOWN, RankCalls
from oncall.analysis.schedules import (
    GPIPE,
    INTERLEAVED,
    ONE_FORWARD_ONE_BACKWARD,
    Array,
    warm_up,
)
from oncall.analysis.tensor_patterns import usual


@dataclass(frozen=True)
class Told:
    """What is told of a job; None: not told."""

    stages: int | None = None
    micro_batches: int | None = None
    chunks: int | None = None
    schedule: str | None = None


@dataclass(frozen=True)
class Place:
    """A rank's place: `behind` stages follow its own, `is_first` and `is_last` tell the ends.

    `stages` and so `stage` are None where no rank that is seen tells how long the pipeline is.
    """

    behind: int
    is_first: bool
    is_last: bool
    chunks: int
    schedule: str
    micro_batches: int | None
    stages: int | None

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


def directions(calls: RankCalls, told_place: tuple[int, int] | None) -> Array | None:
    """For each call whether the pipeline's transfer goes with forwards: to the next stage or from
    the one before (n,); None where the other sides do not tell.

    `told_place`: the rank's stage and how many there are.
    """
    events = calls.use <= RECV
    peers = np.unique(calls.peer[events]).tolist()
    if not peers or peers[0] == UNKNOWN:
        return None
    if len(peers) > 2 or (told_place is not None and told_place[1] == 2 and _both_ways(calls)):
        return None
    following = _following(calls.rank, peers)
    onward = calls.peer == following
    return np.asarray(np.where(calls.use == SEND, onward, ~onward))


def _both_ways(calls: RankCalls) -> bool:
    """With two stages, interleaved, the next stage is the one before, too."""
    sends = calls.use == SEND
    at = np.flatnonzero(calls.use <= RECV)
    return bool(len(at) > 1 and sends[at[:2]].all() and len(np.unique(calls.peer[at])) == 1)


def _following(rank: int, peers: Sequence[int]) -> int:
    """The rank of the next stage (UNKNOWN: none): stages follow one another in the order of ranks,
    and after the last comes the first again, where chunks take turns."""
    if len(peers) == 1:
        return peers[0] if peers[0] > rank else UNKNOWN
    above = [peer for peer in peers if peer > rank]
    return min(above) if above else min(peers)


def find_place(
    calls: RankCalls,
    blocks: Sequence[Block],
    forward: Array | None,
    told: Told,
    told_place: tuple[int, int] | None,
) -> Place | None:
    """The place of a rank that sends or receives; None where its calls do not tell it."""
    whole = [block for block in blocks if not (block.torn_before or block.torn_after)]
    shapes = [shape_of(calls, block, forward) for block in (whole or blocks)]
    shapes = [shape for shape in shapes if shape.sends and shape.receives]
    if not shapes:
        return None
    # Evaluations and torn blocks are fewer than iterations.
    counts = [shape.sends for shape in shapes if shape.sends == shape.receives]
    transfers = usual(np.array(counts)) if counts else None
    shape = next((s for s in shapes if s.sends == transfers == s.receives), shapes[0])
    chunks = told.chunks or 1
    if told_place is not None:
        stage, stages = told_place
        behind, first, last = stages - 1 - stage, stage == 0, stage == stages - 1
    else:
        first = shape.begins_with_send
        last = not first and shape.sent_alone == 0 and shape.joint
        behind, stages = shape.sent_alone, None
    place = Place(
        behind=behind,
        is_first=first,
        is_last=last,
        chunks=chunks,
        schedule=told.schedule or (INTERLEAVED if chunks > 1 else ONE_FORWARD_ONE_BACKWARD),
        micro_batches=None,
        stages=stages,
    )
    if transfers and transfers % place.transfers_each == 0:
        place = replace(place, micro_batches=transfers // place.transfers_each)
    elif told.micro_batches:
        place = replace(place, micro_batches=told.micro_batches)
    all_first = forward is not None and _is_gpipe(shape, place)
    if all_first and (told.schedule is None or chunks > 1):
        place = replace(place, schedule=GPIPE)
    return place


@dataclass(frozen=True)
class Shape:
    """A block's transfers: how many, and the Sends before the first that comes with a Recv."""

    sends: int
    receives: int
    begins_with_send: bool
    sent_alone: int
    joint: bool


def shape_of(calls: RankCalls, block: Block, forward: Array | None) -> Shape:
    events = block.events
    send = calls.use[events] == SEND
    # Megatron exchanges a forward's output and a gradient in one group call.
    group = calls.group[events]
    if (group >= 0).all():
        joint = (send[:-1] != send[1:]) & (group[:-1] == group[1:])
    else:
        between = np.cumsum(calls.use > RECV)[events]
        joint = send[:-1] & ~send[1:] & (between[:-1] == between[1:])
    if forward is not None:
        gradients = np.flatnonzero(~forward[events])
        first = gradients[0] if len(gradients) else len(events)
        together = 0 < first < len(events) and joint[first - 1] and send[first - 1]
        sent_alone = int(send[:first].sum()) - bool(together)
    else:
        firsts = np.flatnonzero(joint)
        sent_alone = int(send[: firsts[0]].sum()) if len(firsts) else int(send.sum())
    return Shape(int(send.sum()), int((~send).sum()), bool(send[0]), sent_alone, bool(joint.any()))


def _is_gpipe(shape: Shape, place: Place) -> bool:
    """All forwards come before all backwards, though 1F1B would not do so.

    Interleaved, some versions of Megatron do that for as many micro-batches as there are stages.
    """
    if place.micro_batches is None or place.stages is None:
        return False
    stages, stage = place.template
    fewest = warm_up(ONE_FORWARD_ONE_BACKWARD, stages, stage, place.micro_batches, place.chunks)
    forwards = place.micro_batches * place.chunks
    sent = forwards - place.micro_batches * place.is_last
    return fewest < forwards and 0 < sent <= shape.sent_alone
