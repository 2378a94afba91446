"""Which flow a member waits for: its queues of steps to send and to receive (Vedrfolnir Table I).

Arrived messages are compared with what the next send needs. Until they have arrived, the member
waits, and it is known for whom; once they have, it sends as soon as it is free.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass


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
    # A collector that watches no steps does without numpy.
    from oncall.node.triggers.decomposition import NONE, decompose

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
