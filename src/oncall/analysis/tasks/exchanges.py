"""What each group call of interleaved 1F1B exchanges, as Megatron-LM makes them.

Without `--overlap-p2p-communication` a rank exchanges all that is due in one group call: after each
forward of the warm-up, after each forward and backward of the steady state, after each backward at
the end. Both ends of the pipeline receive from each other what they need some tasks later, so the
n-th Recv is not that of the n-th task. Within a call the gradient for the stage before is sent
first, then the forward's output (`_batched_p2p_ops`).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np

from oncall.analysis.tasks.schedules import INTERLEAVED, Array, warm_up


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
