"""Collective algorithms taken apart into the steps of their flows (Vedrfolnir III-B).

A step is one message from one member to another. It may begin when the messages it needs have
come and its sender's step before is over; `needs` says which. To add an algorithm, write a
function that returns its steps and put it under its name in ALGORITHMS: ranks are numbered from 0
within the communicator, sizes are shares of the whole buffer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Integers = NDArray[np.int64]
NONE = -1


@dataclass(frozen=True)
class Steps:
    """All messages of one collective, arrays of one length.

    `src`, `dst` (n,) members; `step` (n,) from 1, counted at the sender; `share` (n,) of the
    buffer; `needs` (n, k) the messages, by place, that must have come first, or NONE.
    """

    src: Integers
    dst: Integers
    step: Integers
    share: NDArray[np.float64]
    needs: Integers

    def __len__(self) -> int:
        return len(self.src)


def decompose(algorithm: str, op: str, members: int) -> Steps:
    """The steps of `op` among `members` by an algorithm of ALGORITHMS.

    Raises KeyError if it is not known there, ValueError if it cannot serve so many members.
    """
    return ALGORITHMS[algorithm, op](members)


def _ring(members: int, rounds: int) -> Steps:
    """Each member passes on to the next what came from the one before; all steps are alike."""
    step, src = (grid.ravel() for grid in np.mgrid[1 : rounds + 1, 0:members])
    before = (step - 2) * members + (src - 1) % members
    return Steps(
        src,
        (src + 1) % members,
        step,
        np.full(len(src), 1 / members),
        np.where(step > 1, before, NONE)[:, None],
    )


def ring_reduce_scatter(members: int) -> Steps:
    """n - 1 steps; each member ends with one reduced share."""
    return _ring(members, members - 1)


def ring_all_gather(members: int) -> Steps:
    """n - 1 steps; each member's share goes round once."""
    return _ring(members, members - 1)


def ring_all_reduce(members: int) -> Steps:
    """Reduce-scatter, then all-gather: 2 (n - 1) steps."""
    return _ring(members, 2 * (members - 1))


def halving_doubling(members: int) -> Steps:
    """All-reduce by exchanges with ever nearer members, then back again (Thakur et al. 2005).

    In step k of the first half a member exchanges half of what it holds with the one at a
    distance of members / 2^k. Raises ValueError unless `members` is a power of two.
    """
    halves = members.bit_length() - 1
    if members < 1 or members != 1 << halves:
        raise ValueError(f"halving-doubling takes a power of two, not {members}")
    distances = [members >> k for k in range(1, halves + 1)]
    order = np.array([*distances, *reversed(distances)], np.int64)
    shares = np.array([2.0**-k for k in range(1, halves + 1)])
    step, src = (grid.ravel() for grid in np.mgrid[1 : len(order) + 1, 0:members])
    came_from = src ^ order[step - 2]
    return Steps(
        src,
        src ^ order[step - 1],
        step,
        np.concatenate([shares, shares[::-1]])[step - 1],
        np.where(step > 1, (step - 2) * members + came_from, NONE)[:, None],
    )


def tree_all_reduce(members: int) -> Steps:
    """Reduced up a binary tree, then broadcast down it; member m has children 2m + 1 and 2m + 2.

    A member's message up needs those of its children; its messages down need its parent's.
    """
    child = np.arange(members - 1, 0, -1)
    parent = (child - 1) // 2
    up = np.full(members, NONE)
    up[child] = np.arange(len(child))
    down = np.full(members, NONE)
    down[child] = len(child) + np.arange(len(child))
    padded = np.append(up, [NONE] * (members + 2))
    needs_up = padded[np.stack([2 * child + 1, 2 * child + 2], axis=1)]
    from_root = np.stack([up[1:2], up[2:3] if members > 2 else [NONE]], axis=1)
    needs_down = np.where(
        (parent == 0)[:, None],
        np.broadcast_to(from_root, (len(child), 2)) if members > 1 else needs_up,
        np.stack([down[parent], np.full(len(child), NONE)], axis=1),
    )
    src = np.concatenate([child, parent])
    return Steps(
        src,
        np.concatenate([parent, child]),
        np.concatenate([np.ones(len(child), np.int64), np.where(parent == 0, 1, 2)]),
        np.ones(2 * len(child)),
        np.concatenate([needs_up, needs_down]),
    )


ALGORITHMS: Mapping[tuple[str, str], Callable[[int], Steps]] = {
    ("RING", "AllReduce"): ring_all_reduce,
    ("RING", "AllGather"): ring_all_gather,
    ("RING", "ReduceScatter"): ring_reduce_scatter,
    ("HALVING_DOUBLING", "AllReduce"): halving_doubling,
    ("TREE", "AllReduce"): tree_all_reduce,
}


# Which flow a member waits for: its queues of steps to send and to receive (Vedrfolnir Table I).
#
# Arrived messages are compared with what the next send needs. Until they have arrived, the member
# waits, and it is known for whom; once they have, it sends as soon as it is free.


@dataclass(frozen=True)
class Message:
    """One step of another member's flow, as seen by who needs it: `step` counts at its sender."""

    src: int
    step: int


@dataclass(frozen=True)
class Send:
    """One step of this member: to whom, its share of the buffer, and what must have come first."""

    dst: int
    step: int
    share: float
    needs: frozenset[Message] = frozenset()


class StepQueues:
    """A member's sends in order, and what has come so far."""

    def __init__(self, sends: Iterable[Send]) -> None:
        self.sends = tuple(sends)
        self._came: set[Message] = set()

    def of(self, step: int) -> Sequence[Send]:
        """What goes out in a step: in a tree one message to each child."""
        return [send for send in self.sends if send.step == step]

    def came(self, message: Message) -> None:
        """A message is here; one that nothing needs is no matter."""
        self._came.add(message)

    def awaited_after(self, step: int) -> tuple[Message, ...]:
        """What the step after `step` waits for, in order of sender; empty: it waits for nobody."""
        needed = {message for send in self.of(step + 1) for message in send.needs}
        return tuple(sorted(needed - self._came, key=lambda message: (message.src, message.step)))


def queues_of(algorithm: str, op: str, members: int, member: int) -> StepQueues:
    """The queues of one member of a collective. Raises what `decompose` raises."""
    steps = decompose(algorithm, op, members)
    src, number = steps.src.tolist(), steps.step.tolist()
    return StepQueues(
        Send(
            int(steps.dst[n]),
            number[n],
            float(steps.share[n]),
            frozenset(Message(src[need], number[need]) for need in steps.needs[n] if need != NONE),
        )
        for n in sorted(range(len(steps)), key=number.__getitem__)
        if src[n] == member
    )
