"""When a task could begin as other ranks show it.

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
    placed = [(number, one) for number, one in enumerate(ranks) if one is not None]
    computing = [one for _, one in placed]
    lanes = _lanes(computing)
    joint = _JointCalls(computing)
    in_lane: dict[tuple[str, int] | None, list[int]] = {}
    for place, lane in enumerate(lanes):
        in_lane.setdefault(lane, []).append(place)
    found: list[Array | None] = [None] * len(ranks)
    for place, (number, one) in enumerate(placed):
        sent = np.full(len(one.tasks), UNKNOWN, dtype=np.int64)
        mates = in_lane[lanes[place]] if lanes[place] is not None else []
        for other in (mate for mate in mates if mate != place):
            sent_by_peer = _sent_to(one, placed[other][1])
            sent = np.where(sent_by_peer >= 0, sent_by_peer, sent)
        sent = np.where(sent < 0, _all_there(one, joint), sent)
        found[number] = sent
    return found


class _JointCalls:
    """The calls of all ranks that are no Sends or Recvs."""

    def __init__(self, ranks: Sequence[Computed]) -> None:
        mine = [np.flatnonzero((one.calls.use > RECV) & (one.calls.seq >= 0)) for one in ranks]
        made = list(zip(ranks, mine, strict=True))
        empty = [np.zeros(0, dtype=np.int64)]
        number = np.concatenate(empty + [_number(one.calls, at) for one, at in made])
        called = np.concatenate(empty + [one.calls.called_ns[at] for one, at in made])
        order = np.argsort(number, kind="stable")
        opening = np.flatnonzero(np.diff(number[order], prepend=-1))
        self._numbers = number[order][opening]
        self._last = np.maximum.reduceat(called[order], opening) if len(opening) else called

    def latest(self, wanted: Array) -> Array:
        """When the last of all ranks made each of these calls; -1 if none."""
        if not len(self._numbers):
            return np.full(len(wanted), UNKNOWN, dtype=np.int64)
        place = np.minimum(np.searchsorted(self._numbers, wanted), len(self._numbers) - 1)
        return np.where(self._numbers[place] == wanted, self._last[place], UNKNOWN)


def _number(calls: RankCalls, at: Array) -> Array:
    """A number for communicator and place in it, equal on all ranks of a job (at,)."""
    return np.asarray(calls.comm[at] * (1 << 40) + calls.seq[at])


def _all_there(one: Computed, joint: _JointCalls) -> Array:
    """For the first task of each iteration when the last member made the joint call before
    (tasks,); -1 unknown, and for those that receive."""
    before = np.array([block.begin - 1 for block in one.blocks], dtype=np.int64)[one.tasks.block]
    opening = (np.diff(one.tasks.block, prepend=-1) != 0) & ~one.tasks.receives & (before >= 0)
    latest = np.full(len(opening), UNKNOWN, dtype=np.int64)
    at = before[opening]
    there = np.where(one.calls.seq[at] >= 0, one.calls.called_ns[at], UNKNOWN)
    last = np.maximum(there, joint.latest(_number(one.calls, at)))
    latest[opening] = np.where(there >= 0, last, there)
    return latest


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
