"""How often one step of one flow may be looked at: so many detections, spread over its time.

Queues that stand for milliseconds raise every round trip meanwhile; one look an interval shows as
much as all of them (Vedrfolnir III-C2, figure 5). The number is bounded, and so is the cost.
"""

from __future__ import annotations

from dataclasses import dataclass, field


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
