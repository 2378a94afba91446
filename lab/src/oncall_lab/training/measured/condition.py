"""The condition of every device over time: what faults and ordinary events make of it.

A quantity has a base value; a change multiplies, adds to or replaces it on some devices for a
while. Training and counters read the same changes, so that all evidence of a fault agrees.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum

import numpy as np

from oncall_lab.arrays import Floats, Ints

FOREVER_NS = 1e18


class Combine(Enum):
    """How changes of one quantity act together."""

    TIMES = "times"
    PLUS = "plus"
    SET = "set"


@dataclass(frozen=True)
class Quantity:
    """Something of every device (one a rank) or of every node."""

    name: str
    base: float
    combine: Combine
    of_nodes: bool = False


@dataclass(frozen=True)
class Change:
    """`quantity` of the devices or nodes `where` changes by `value` from `begin_ns` to `end_ns`."""

    quantity: Quantity
    where: Ints
    value: float
    begin_ns: float
    end_ns: float = FOREVER_NS


@dataclass(frozen=True)
class Event:
    """Something a host says: a row of `host_events`; `at_ns` is true time since the begin."""

    node: int
    at_ns: float
    source: str
    code: str
    device: str | None
    text: str


@dataclass(frozen=True)
class Reset:
    """A NIC's counters begin at zero again."""

    device: int
    at_ns: float


@dataclass(frozen=True)
class StepDelay:
    """Ranks begin every training step late by about `delay_ns`; `once`: the first one only."""

    ranks: tuple[int, ...]
    begin_ns: float
    end_ns: float
    delay_ns: float
    spread: float = 0.0  # of the logarithm
    once: bool = False


@dataclass
class Condition:
    """All changes, events, resets and delays of a run."""

    devices: int
    nodes: int
    changes: list[Change] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    resets: list[Reset] = field(default_factory=list)
    delays: list[StepDelay] = field(default_factory=list)

    def of(self, quantity: Quantity) -> list[Change]:
        return [change for change in self.changes if change.quantity is quantity]

    def at(self, quantity: Quantity, times_ns: Floats) -> Floats:
        """The quantity at instants: (devices or nodes, times)."""
        value = self._base(quantity, len(times_ns))
        for change in self.of(quantity):
            here = slice(*np.searchsorted(times_ns, (change.begin_ns, change.end_ns)))
            part = value[change.where, here]
            value[change.where, here] = _combined(quantity, part, change.value, 1.0)
        return value

    def mean(self, quantity: Quantity, edges_ns: Floats) -> Floats:
        """The quantity's mean between neighbouring instants: (devices or nodes, edges - 1)."""
        value = self._base(quantity, len(edges_ns) - 1)
        window = np.diff(edges_ns)
        for change in self.of(quantity):
            begin = np.maximum(edges_ns[:-1], change.begin_ns)
            overlap = np.clip(np.minimum(edges_ns[1:], change.end_ns) - begin, 0.0, None)
            acts = np.flatnonzero(overlap)
            where = np.ix_(change.where, acts)
            share = overlap[acts] / window[acts]
            value[where] = _combined(quantity, value[where], change.value, share)
        return value

    def series(self, quantity: Quantity, index: int) -> tuple[Floats, Floats]:
        """One device's value over time: instants (k,) from zero on, and values from each on."""
        mine = [c for c in self.of(quantity) if index in c.where]
        moments = sorted({0.0, *(m for c in mine for m in (c.begin_ns, c.end_ns) if m > 0)})
        value = np.full(len(moments), quantity.base)
        at = np.array(moments)
        for change in mine:
            acts = (at >= change.begin_ns) & (at < change.end_ns)
            value[acts] = _combined(quantity, value[acts], change.value, 1.0)
        return at, value

    def _base(self, quantity: Quantity, length: int) -> Floats:
        size = self.nodes if quantity.of_nodes else self.devices
        return np.full((size, length), quantity.base)


def _combined(quantity: Quantity, before: Floats, value: float, share: Floats | float) -> Floats:
    """What a change makes of a value that it acts on for a share of the time."""
    if quantity.combine is Combine.TIMES:
        return before * (1 + (value - 1) * share)
    if quantity.combine is Combine.PLUS:
        return before + value * share
    return before + (value - before) * share


def touched(changes: Sequence[Change]) -> Ints:
    """Every device or node that any of the changes is about."""
    if not changes:
        return np.empty(0, dtype=np.int64)
    return np.unique(np.concatenate([change.where for change in changes]))
