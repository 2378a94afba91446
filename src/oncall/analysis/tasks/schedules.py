"""Pipeline schedules: in which order a rank does the forwards and backwards of an iteration.

1F1B and its interleaved form as in Megatron-LM (Narayanan et al., SC '21, section 2.2; Megatron's
`forward_backward_pipelining_with_interleaving`), GPipe as in Huang et al., 2019, and passes that
only go forward, as evaluation does.

What each group call of interleaved 1F1B exchanges, as Megatron-LM makes them.

Without `--overlap-p2p-communication` a rank exchanges all that is due in one group call: after each
forward of the warm-up, after each forward and backward of the steady state, after each backward at
the end. Both ends of the pipeline receive from each other what they need some tasks later, so the
n-th Recv is not that of the n-th task. Within a call the gradient for the stage before is sent
first, then the forward's output (`_batched_p2p_ops`).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any, TypeAlias

import numpy as np

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]

ONE_FORWARD_ONE_BACKWARD = "1F1B"
INTERLEAVED = "interleaved"
GPIPE = "GPipe"
FORWARD_ONLY = "forward only"
SCHEDULES = (ONE_FORWARD_ONE_BACKWARD, INTERLEAVED, GPIPE)


@dataclass(frozen=True)
class Order:
    """The tasks of one iteration on one rank, in the order they run; arrays (tasks,).

    `receives`, `sends`: whether a task needs, and passes on, something of another stage.
    `joined`: no send or receive lies between the task and the one after it.
    """

    backward: Array
    chunk: Array
    micro_batch: Array
    receives: Array
    sends: Array
    joined: Array

    def __len__(self) -> int:
        return len(self.backward)


@cache
def task_order(
    schedule: str,
    stages: int,
    stage: int,
    micro_batches: int,
    chunks: int = 1,
    *,
    exchanged_together: bool = False,
) -> Order:
    """The tasks of `stage` (0 to `stages` - 1) in an iteration of `micro_batches`.

    `exchanged_together`: in the steady state of interleaved 1F1B what a forward and the backward
    after it send is exchanged in one group call, after both (no `--overlap-p2p-communication`).
    """
    forwards = _virtual(stages, micro_batches, chunks)
    backwards = forwards.copy()
    backwards[0] = chunks - 1 - backwards[0]
    if schedule == FORWARD_ONLY:
        backwards = backwards[:, :0]
    before = warm_up(schedule, stages, stage, micro_batches, chunks)
    backward, index = _alternating(forwards.shape[1], backwards.shape[1], before)
    chunk, micro_batch = np.where(
        backward,
        _at(backwards, index, backward),
        _at(forwards, index, ~backward),
    )
    virtual = chunk * stages + stage
    first, last = virtual == 0, virtual == chunks * stages - 1
    receives, sends = ~np.where(backward, last, first), ~np.where(backward, first, last)
    joined = np.zeros(len(backward), dtype=np.bool_)
    joined[:-1] = ~sends[:-1] & ~receives[1:]
    if exchanged_together:
        steady = np.arange(len(backward)) >= before
        joined[:-1] |= steady[:-1] & ~backward[:-1] & backward[1:]
        joined[:-1] &= ~(backward[:-1] & ~backward[1:])
    return Order(backward, chunk, micro_batch, receives, sends, joined)


def warm_up(schedule: str, stages: int, stage: int, micro_batches: int, chunks: int = 1) -> int:
    """Forwards before the steady state, in which forwards and backwards take turns."""
    total = micro_batches * chunks
    if schedule in (GPIPE, FORWARD_ONLY):
        return total
    if chunks == 1:
        return min(stages - stage - 1, total)
    return min(2 * (stages - stage - 1) + (chunks - 1) * stages, total)


def _virtual(stages: int, micro_batches: int, chunks: int) -> Array:
    """Chunk and micro-batch of each forward (2, n): groups of `stages` micro-batches, each group
    through all chunks before the next."""
    number = np.arange(micro_batches)
    group = number // stages if chunks > 1 else np.zeros_like(number)
    chunk, micro_batch = np.repeat(np.arange(chunks), micro_batches), np.tile(number, chunks)
    order = np.lexsort((micro_batch, chunk, np.tile(group, chunks)))
    return np.array([chunk[order], micro_batch[order]])


def _alternating(forwards: int, backwards: int, before: int) -> tuple[Array, Array]:
    """Which tasks are backwards, and each task's number among those of its direction."""
    if not backwards:
        return np.zeros(forwards, dtype=np.bool_), np.arange(forwards)
    steady = np.tile([False, True], forwards - before)
    ends = np.ones(before, dtype=np.bool_)
    backward = np.concatenate([~ends, steady, ends])
    index = np.where(backward, np.cumsum(backward), np.cumsum(~backward)) - 1
    return backward, index


def _at(tasks: Array, index: Array, wanted: Array) -> Array:
    """The columns `index` of `tasks` where they are wanted, anything elsewhere."""
    if not tasks.shape[1]:
        return np.zeros((2, len(index)), dtype=np.int64)
    return np.asarray(tasks[:, np.where(wanted, index, 0)])


@dataclass(frozen=True)
class Exchanges:
    """The Sends and Recvs of an iteration in the order of the calls; arrays (n,).

    `forward`: it goes with forwards, else with gradients. `after`: how many tasks are done before.
    """

    send: Array
    forward: Array
    after: Array

    def are(self, send: Array, group: Array) -> bool:
        """Whether these are the Sends and Recvs that were made, in those group calls (n,)."""
        if len(send) != len(self.send) or (group < 0).any():
            return False
        apart = np.diff(group) != 0
        return bool((send == self.send).all() and (apart == (np.diff(self.after) != 0)).all())


@cache
def interleaved_exchanges(stages: int, stage: int, micro_batches: int, chunks: int) -> Exchanges:
    """The exchanges of `stage` in an iteration of `micro_batches`."""
    first, last, newest = stage == 0, stage == stages - 1, chunks - 1
    total = micro_batches * chunks
    before = warm_up(INTERLEAVED, stages, stage, micro_batches, chunks)
    found: list[tuple[bool, bool, int]] = []

    def chunk(number: int, *, backward: bool = False) -> int:
        forwards = number % (stages * chunks) // stages
        return newest - forwards if backward else forwards

    def exchange(after: int, *, onward: bool, back: bool, wants: bool, gradient: bool) -> None:
        due_exchanges = ((back, True, False), (wants, False, True), (onward, True, True))
        for due, send, forward in (*due_exchanges, (gradient, False, False)):
            if due:
                found.append((send, forward, after))

    exchange(0, onward=False, back=False, wants=not first, gradient=False)
    for done in range(before):
        following = done + 1 < total and not (first and chunk(done + 1) == 0)
        exchange(
            done + 1,
            onward=not (last and chunk(done) == newest),
            back=False,
            wants=following,
            gradient=done == before - 1 and before < total and not last,
        )
    steady = total - before
    for done in range(steady):
        # What the other end of the pipeline sends is for a task that comes `stages - 1` later.
        wraps = first and chunk(done + before - (stages - 1)) == newest
        turns = last and chunk(done - (stages - 1), backward=True) == 0
        exchange(
            before + 2 * (done + 1),
            onward=not (last and chunk(done + before) == newest),
            back=not (first and chunk(done, backward=True) == 0),
            wants=done < steady - 1 and not wraps,
            gradient=not turns,
        )
    if before == total:
        exchange(total, onward=False, back=False, wants=False, gradient=not last)
    for done in range(steady, total):
        turns = last and done + 1 < total and chunk(done + 1, backward=True) == newest
        exchange(
            total + done + 1,
            onward=False,
            back=not (first and chunk(done, backward=True) == 0),
            wants=False,
            gradient=done < total - 1 and not turns,
        )
    send, forward, after = (np.array(column) for column in zip(*found, strict=True))
    return Exchanges(send, forward, after)
