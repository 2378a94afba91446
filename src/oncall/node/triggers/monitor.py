"""One flow of a collective, watched step by step: events in, captures and handovers out.

Vedrfolnir III-C2, figure 8. No clock, no packets: the owner of a monitor passes it what happened
and when, and carries out what it returns.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, TypeAlias


@dataclass(frozen=True)
class Message:
    """One step of another member's flow, as seen by who needs it: `step` counts at its sender."""

    src: int
    step: int


# How often one step of one flow may be looked at: so many detections, spread over its time.
#
# Queues that stand for milliseconds raise every round trip meanwhile; one look an interval shows as
# much as all of them (Vedrfolnir III-C2, figure 5). The number is bounded, and so is the cost.


@dataclass
class Budget:
    """Detections of a step that should take `expected_ns`. The caller passes the time.

    Ordinary ones are at least an interval apart, and `apart_ns`, as long as one takes. One more is
    kept for a standstill and waits for nothing; it is neither spent otherwise nor handed over.
    """

    expected_ns: float
    detections: int  # of its own
    most: int  # with what others hand over
    apart_ns: float = 0.0
    left: int = field(init=False)
    spent: int = field(init=False, default=0)
    stall_is_left: bool = field(init=False, default=True)
    _next_ns: float = field(init=False, default=float("-inf"))

    def __post_init__(self) -> None:
        if self.detections < 1 or self.most < self.detections or not self.expected_ns > 0:
            raise ValueError("a budget has detections, at most `most`, and a time to spread them")
        self.left = self.detections

    @property
    def interval_ns(self) -> float:
        """The least time between two: its own detections last for the step."""
        return max(self.expected_ns / self.detections, self.apart_ns)

    def take(self, now_ns: float) -> bool:
        """Whether there may be one now; if so, it is spent."""
        if self.left < 1 or now_ns < self._next_ns:
            return False
        self.left -= 1
        self.spent += 1
        self._next_ns = now_ns + self.interval_ns
        return True

    def take_for_stall(self, now_ns: float) -> bool:
        """The same for a stalled flow: at once, and once."""
        if not self.stall_is_left:
            return False
        self.stall_is_left = False
        self._next_ns = now_ns + self.interval_ns
        return True

    def add(self, detections: int) -> int:
        """Take over what others have left; returns how many found room below `most`."""
        room = self.most - self.left - self.spent
        taken = max(0, min(detections, room))
        self.left += taken
        return taken

    def hand_over(self) -> int:
        """All that is left; nothing stays."""
        left, self.left = self.left, 0
        return left


Reason: TypeAlias = Literal["rtt", "stall", "late"]
HANDOVER_COSTS = 1  # detection


@dataclass(frozen=True)
class Policy:
    """How much a step may cost."""

    detections: int = 3  # of a step: one may fall between two pauses (Vedrfolnir figure 12)
    most: int = 24  # with what others hand over, whoever they are
    apart_ns: float = 0.0  # as long as a closer look takes: another one in it adds nothing


@dataclass(frozen=True)
class Begun:
    """A step begins: when, what it should take, the round trip it should not exceed, how long it
    may go without a byte, and how long it may take at all while it moves."""

    step: int
    at_ns: float
    expected_ns: float
    threshold_ns: float
    stall_ns: float
    late_ns: float = float("inf")


@dataclass(frozen=True)
class Capture:
    """A closer look is justified, with the reason. `value_ns`: the round trip, the time without a
    byte, or the step's time so far; `limit_ns`: the limit that it exceeds."""

    step: int
    at_ns: float
    reason: Reason
    value_ns: float
    limit_ns: float


@dataclass(frozen=True)
class Handover:
    """Detections for the flow whose message is waited for."""

    message: Message
    detections: int


class Monitor:
    """The step that a flow is in. `captures` are never more than its budget, and one stall."""

    def __init__(self, policy: Policy | None = None) -> None:
        self._policy = policy or Policy()
        self._now: Begun | None = None
        self._budget: Budget | None = None
        self._moved_ns = 0.0
        self._looked_still_ns = 0.0  # how long it had been stalled when that was last captured
        self._awaited: tuple[int, Message] | None = None  # after which step, and what

    def begin(self, begun: Begun) -> None:
        """A step begins; the one before is over, whether or not that was reported."""
        self._now, self._awaited = begun, None
        self._moved_ns, self._looked_still_ns = begun.at_ns, 0.0
        policy = self._policy
        self._budget = Budget(begun.expected_ns, policy.detections, policy.most, policy.apart_ns)

    def measured(self, at_ns: float, rtt_ns: float) -> Capture | None:
        """A packet on the flow's path took this long. Flows that share their sender's own link wait
        in the NIC and not on the path; then only a step that is not over in time shows the delay.
        """
        if self._now is None or self._budget is None:
            return None
        now, took_ns = self._now, at_ns - self._now.at_ns
        is_long = rtt_ns > now.threshold_ns
        if not (is_long or took_ns > now.late_ns) or not self._budget.take(at_ns):
            return None
        if is_long:
            return Capture(now.step, at_ns, "rtt", rtt_ns, now.threshold_ns)
        return Capture(now.step, at_ns, "late", took_ns, now.late_ns)

    def moved(self, at_ns: float) -> None:
        """Bytes of the step went out."""
        if at_ns > self._moved_ns:
            self._moved_ns, self._looked_still_ns = at_ns, 0.0

    def look(self, at_ns: float) -> Capture | None:
        """Time has passed: is the flow stalled, or still stalled?"""
        if self._now is None or self._budget is None:
            return None
        limit_ns, still_ns = self._now.stall_ns, at_ns - self._moved_ns
        # A stall shows something new when it has lasted twice as long: a queue would have
        # drained, a cycle of pauses never opens. So few detections last for any.
        if still_ns <= max(limit_ns, 2 * self._looked_still_ns):
            return None
        if not self._budget.take_for_stall(at_ns) and not self._budget.take(at_ns):
            return None
        self._looked_still_ns = still_ns
        return Capture(self._now.step, at_ns, "stall", still_ns, limit_ns)

    @property
    def left(self) -> int:
        """What `wait` would hand over."""
        left = self._budget.left if self._budget is not None else 0
        return max(0, left - HANDOVER_COSTS)

    def wait(self, message: Message) -> Handover | None:
        """The step goes on only when a message comes, though there is more of it to send: what is
        left goes to that message's flow. May be called again; what comes meanwhile goes, too."""
        left = self._budget.hand_over() if self._budget is not None else 0
        return _handover(message, left)

    def end(self, awaited: tuple[Message, ...]) -> Handover | None:
        """The step is over; what is left of its budget goes to the flow that is waited for now
        (figure 7: node 0 hands it to host 3, whose message it needs). Without one it lapses."""
        if self._now is None or self._budget is None:
            return None
        left = self._budget.hand_over()
        self._awaited = (self._now.step, awaited[0]) if awaited else None
        self._now = self._budget = None
        return self._forward(left)

    def came(self, message: Message) -> None:
        """The awaited message has arrived: nothing more is handed over to its flow."""
        if self._awaited is not None and self._awaited[1] == message:
            self._awaited = None

    def handed(self, step: int, detections: int) -> Handover | None:
        """Others gave this many detections to this step. A step that is over passes them on."""
        if self._now is not None and self._budget is not None and self._now.step == step:
            self._budget.add(detections)
            return None
        is_just_over = self._awaited is not None and self._awaited[0] == step
        return self._forward(min(detections, self._policy.most)) if is_just_over else None

    def _forward(self, detections: int) -> Handover | None:
        return _handover(self._awaited[1], detections) if self._awaited is not None else None


def _handover(message: Message, detections: int) -> Handover | None:
    """Costs one of them: so there are never more packets than detections, and what is handed round
    in a cycle of waits comes to an end."""
    left = detections - HANDOVER_COSTS
    return Handover(message, left) if left > 0 else None
