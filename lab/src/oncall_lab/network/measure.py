"""What switches count while traffic flows: by egress port and flow, epoch by epoch.

As a programmable switch does at enqueue (Vedrfolnir III-C3, Hawkeye): packets, the queue they met,
and how many of them met their port paused. Also kept is what no switch can count, for the truth:
the time that a port served one flow while bytes of the collective stood there.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from oncall_lab.arrays import Bools, Floats
from oncall_lab.network.queues import Queues


@dataclass(frozen=True)
class Counts:
    """(epochs, legs) arrays of bytes; `met` are byte products: bytes that arrived, times met."""

    arrived: Floats
    met: Floats
    paused: Floats

    def __len__(self) -> int:
        return len(self.arrived)


@dataclass
class Meter:
    """Counts of one run. Call `quantum` after each `Queues.advance`, `close` after each epoch."""

    queues: Queues
    members: Bools  # (flows,) flows of the collective
    stolen: Floats = field(init=False)  # (legs,) bytes served while the collective's stood there
    _now: list[Floats] = field(init=False)
    _epochs: list[list[Floats]] = field(init=False, default_factory=list)

    def __post_init__(self) -> None:
        legs = self.queues.legs
        self.stolen = np.zeros(len(legs))
        self._member_leg = self.members[legs.flow].astype(float)
        self._now = [np.zeros(len(legs)) for _ in range(3)]

    def quantum(self, unsent: Floats) -> None:
        """Count what arrived for the quantum to come, and what the last one served.

        `unsent` (flows,): bytes that a sender offered and its own port did not take.
        """
        queues, legs = self.queues, self.queues.legs
        arrived, met, paused = self._now
        arrived += queues.arriving
        if not (queues.queued.any() or unsent.any()):
            return
        met += queues.arriving * queues.depth()[legs.port]
        paused += queues.arriving * queues.paused[legs.port]
        waiting = queues.queued.copy()
        waiting[legs.first] = unsent
        held_up = np.bincount(legs.port, waiting * self._member_leg, queues.ports) > 1.0
        self.stolen += queues.served * held_up[legs.port] * (1 - self._member_leg)

    def close(self) -> None:
        """End an epoch."""
        self._epochs.append(self._now)
        self._now = [np.zeros(len(self.queues.legs)) for _ in range(3)]

    def counts(self) -> Counts:
        """Everything counted, the open epoch last."""
        epochs = [*self._epochs, self._now]
        arrived, met, paused = (np.array([epoch[i] for epoch in epochs]) for i in range(3))
        return Counts(arrived, met, paused)
