"""When a task could begin as other ranks show it, by the clock of the rank that computes it.

A rank that is alone in its tensor-parallel group makes no call within a task: where calls alone are
recorded, nothing on it shows when a Recv was over and the computation began. The rank that sends
shows it: no sooner than it called its Send, and no sooner than the receiver asked. What begins an
iteration and receives nothing begins when the last member has made the joint call before it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from oncall.analysis.tasks.iteration_bounds import Block
from oncall.analysis.tasks.rank_calls import RECV, UNKNOWN, RankCalls
from oncall.analysis.tasks.schedules import Array
from oncall.analysis.tasks.task_positions import Tasks


@dataclass(frozen=True)
class Computed:
    """The tasks of one rank: its stage, the virtual stages of the job, and each task's iteration
    (tasks,), -1 for those that count for none."""

    calls: RankCalls
    blocks: Sequence[Block]
    tasks: Tasks
    stage: int
    stages: int
    iteration: Array

    @property
    def virtual(self) -> Array:
        """The virtual stage of each task (tasks,)."""
        return self.tasks.chunk * self.stages + self.stage


def inputs_sent(ranks: Sequence[Computed | None]) -> list[Array | None]:
    """For each rank when what each of its tasks works on was sent, or when the ranks that it begins
    an iteration with were all there (tasks,), -1 unknown; None where its stage is not known."""
    computing = [one for one in ranks if one is not None]
    numbers, latest = _joint_calls(computing)
    in_lane: dict[tuple[str, int] | None, list[Computed]] = {}
    lanes = _lanes(computing)
    for one, lane in zip(computing, lanes, strict=True):
        in_lane.setdefault(lane, []).append(one)
    sent: list[Array] = []
    for one, lane in zip(computing, lanes, strict=True):
        found = _all_there(one, numbers, latest)
        for other in in_lane[lane] if lane is not None else ():
            sent_by_peer = _sent_to(one, other)
            found = np.where(sent_by_peer >= 0, sent_by_peer, found)
        sent.append(found)
    left = iter(sent)
    return [None if one is None else next(left) for one in ranks]


def _joint_calls(ranks: Sequence[Computed]) -> tuple[Array, Array]:
    """The calls of all ranks that are no Sends or Recvs: what distinguishes each, in order, and
    when the last of its members made it (n,)."""
    mine = [np.flatnonzero((one.calls.use > RECV) & (one.calls.seq >= 0)) for one in ranks]
    each = [
        (_number(one.calls, at), one.calls.called_ns[at])
        for one, at in zip(ranks, mine, strict=True)
    ]
    number, called = (
        (np.concatenate(values) for values in zip(*each, strict=True)) if each else (mine, mine)
    )
    order = np.lexsort((called, number))
    last = order[np.flatnonzero(np.diff(number[order], append=UNKNOWN))]
    return number[last], called[last]


def _number(calls: RankCalls, at: Array) -> Array:
    """A number for communicator and place in it, equal on all ranks of a job (at,)."""
    return np.asarray(calls.comm[at] * (1 << 40) + calls.seq[at])


def _all_there(one: Computed, numbers: Array, latest: Array) -> Array:
    """For the first task of each iteration when the last member made the joint call before
    (tasks,); -1 unknown, and for those that receive."""
    before = np.array([block.begin - 1 for block in one.blocks], dtype=np.int64)[one.tasks.block]
    opening = (np.diff(one.tasks.block, prepend=-1) != 0) & ~one.tasks.receives & (before >= 0)
    there = np.full(len(opening), UNKNOWN, dtype=np.int64)
    if len(numbers):
        place = np.searchsorted(numbers, _number(one.calls, before[opening]))
        known = one.calls.seq[before[opening]] >= 0
        there[opening] = np.where(known, latest[np.minimum(place, len(latest) - 1)], UNKNOWN)
    return there


def _lanes(ranks: Sequence[Computed]) -> list[tuple[str, int] | None]:
    """Which pipeline each rank belongs to: that of its communicator, else its place among the ranks
    of its stage, as pipelines keep their order from stage to stage."""
    names = [_pipeline(one.calls) for one in ranks]
    if all(name is not None for name in names):
        return [("comm", name) for name in names if name is not None]
    by_stage: dict[int, list[int]] = {}
    for place, one in enumerate(ranks):
        by_stage.setdefault(one.stage, []).append(place)
    if len({len(mine) for mine in by_stage.values()}) != 1:
        return [None] * len(ranks)
    lanes: list[tuple[str, int] | None] = [None] * len(ranks)
    for mine in by_stage.values():
        for lane, place in enumerate(sorted(mine, key=lambda each: ranks[each].calls.rank)):
            lanes[place] = ("place", lane)
    return lanes


def _pipeline(calls: RankCalls) -> int | None:
    """The one communicator of its Sends and Recvs, if it is known."""
    comms = {*calls.comm[calls.partners].tolist()}
    return calls.comms[comms.pop()] if len(comms) == 1 else None


def _sent_to(one: Computed, other: Computed) -> Array:
    """When `other` sent what each task of `one` works on (tasks,), by its own clock; -1 if not."""
    step = np.where(other.tasks.backward, -1, 1)
    gives = np.flatnonzero((other.tasks.send_at >= 0) & (other.iteration >= 0))
    wants = (one.tasks.recv_at >= 0) & (one.iteration >= 0)
    offered = _key(other, (other.virtual + step))[gives]
    order = np.argsort(offered, kind="stable")
    offered, gives = offered[order], gives[order]
    if not len(gives):
        return np.full(len(one.tasks), UNKNOWN, dtype=np.int64)
    wanted = _key(one, one.virtual)
    place = np.minimum(np.searchsorted(offered, wanted), len(gives) - 1)
    there = wants & (offered[place] == wanted)
    at = other.calls.called_ns[other.tasks.send_at[gives[place]]]
    return np.asarray(np.where(there, at, UNKNOWN))


def _key(one: Computed, virtual: Array) -> Array:
    """A number for iteration, virtual stage, micro-batch and direction (tasks,)."""
    code = (one.iteration + 1) * (1 << 12) + virtual + 1
    return np.asarray((code * (1 << 16) + one.tasks.micro_batch) * 2 + one.tasks.backward)
