"""One slot as it is played: who arrives when, how long the transfer takes, who leaves when.

Infinity is "never": a rank that never arrives makes the last arrival infinite, so the operation
never ends and nobody in it ever becomes free. That is all there is to a hang spreading.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from oncall_lab.arrays import Floats, Ints
from oncall_lab.training.cluster import Family
from oncall_lab.training.schedule import Slot


@dataclass(frozen=True)
class Stall:
    """A member that hangs inside the operation, after this share of its primitives."""

    group: int
    column: int
    share: float


@dataclass(frozen=True)
class Mismatch:
    """A member that called something else than its group."""

    group: int
    column: int
    op: str
    size_bytes: int


@dataclass(frozen=True)
class Strain:
    """A member through whose link the transfer took so many times longer."""

    group: int
    column: int
    factor: float


@dataclass
class Meeting:
    """All groups of a family in one operation. Times are ns since the job began, (G, n) or (G,).

    `seq` holds the operation's number by lane and column, `serial` counts meetings.
    """

    slot: Slot
    serial: int
    seq: Ints
    free_ns: Floats
    compute_ns: Floats
    transfer_ns: Floats
    tail_ns: Floats
    stretch: Floats
    arrival_ns: Floats = field(init=False)
    last_ns: Floats = field(init=False)
    end_ns: Floats = field(init=False)
    stalls: list[Stall] = field(default_factory=list)
    mismatches: list[Mismatch] = field(default_factory=list)
    strains: list[Strain] = field(default_factory=list)

    @property
    def family(self) -> Family:
        return self.slot.family

    def arrive(self) -> None:
        """Everybody computes, then enters."""
        self.arrival_ns = self.free_ns + self.compute_ns
        self.last_ns = self.arrival_ns.max(axis=1)

    def transfer(self) -> None:
        """Data moves when the last member is there; all leave together but for a tail of µs."""
        moved = self.last_ns + self.transfer_ns * self.stretch
        self.end_ns = moved[:, np.newaxis] + self.tail_ns

    def hang(self, group: int) -> None:
        """Nobody leaves this group."""
        self.end_ns[group] = np.inf
