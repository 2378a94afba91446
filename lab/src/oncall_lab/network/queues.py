"""Bytes as a fluid through the egress queues of a network, quantum by quantum of time.

A *leg* is a flow at one egress port of its way. In a quantum a port serves what stands in its queue
and what arrives, at most its rate's worth; flows that share it leave in proportion to what they
have there, as packets of a first-in-first-out queue interleave. What leaves arrives at the next
port in the next quantum. A port that is paused serves nothing.

Priority flow control (IEEE 802.1Qbb): a switch counts what stands in its queues by the link that it
came by. Above `xoff_bytes` it pauses that link's sender, below `xon_bytes` it lets it go on; what
is under way then still finds room, so nothing is dropped.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from oncall_lab.arrays import Bools, Floats, Ints
from oncall_lab.network.routing import Path


@dataclass(frozen=True)
class Legs:
    """The legs of all flows, those of a flow side by side.

    `flow`, `port` (n,); `came_by` (n,) the port passed before (of a first leg: its own port, which
    is no switch's); `first`, `last` (flows,) the ends of each flow's row of legs.
    """

    flow: Ints
    port: Ints
    came_by: Ints
    first: Ints
    last: Ints

    def __len__(self) -> int:
        return len(self.flow)


def legs_of(paths: Sequence[Path]) -> Legs:
    """The legs of flows that take these ways."""
    lengths = np.array([len(path) for path in paths], np.int64)
    port = np.array([port for path in paths for port in path], np.int64)
    first = np.r_[0, np.cumsum(lengths)[:-1]].astype(np.int64)
    came_by = np.roll(port, 1)
    came_by[first] = port[first]
    return Legs(
        np.repeat(np.arange(len(paths)), lengths), port, came_by, first, first + lengths - 1
    )


class Queues:
    """What stands where, and which ports are paused. Bytes; one call of `advance` is a quantum."""

    def __init__(
        self, legs: Legs, service_bytes: Floats, xoff_bytes: float, xon_bytes: float
    ) -> None:
        """`service_bytes` (ports,): what each port can serve in a quantum."""
        self.legs, self.ports = legs, len(service_bytes)
        self.service_bytes = service_bytes
        self.xoff_bytes, self.xon_bytes = xoff_bytes, xon_bytes
        self.queued = np.zeros(len(legs))
        self.arriving = np.zeros(len(legs))
        self.served = np.zeros(len(legs))
        self.paused = np.zeros(self.ports, np.bool_)
        self._inner = np.ones(len(legs))
        self._inner[legs.first] = 0.0

    def depth(self) -> Floats:
        """(ports,) bytes that stand in each egress queue."""
        return _sum(self.legs.port, self.queued, self.ports)

    def held(self) -> Floats:
        """(ports,) bytes that came by each port and stand in the device it leads to."""
        return _sum(self.legs.came_by, self.queued * self._inner, self.ports)

    def advance(self, offered: Floats, forced: Bools) -> tuple[Floats, Floats]:
        """Serve one quantum. `offered` (flows,): what each sender would send now; `forced`
        (ports,): made to pause by a device that has no reason to.

        Returns (flows,) bytes that were sent and bytes that left their last port.
        """
        legs = self.legs
        waiting = self.queued + self.arriving
        waiting[legs.first] = offered
        total = _sum(legs.port, waiting, self.ports)
        share = np.minimum(1.0, self.service_bytes / np.maximum(total, 1e-9))
        share[self.paused] = 0.0
        served = waiting * share[legs.port]
        self.queued = (waiting - served) * self._inner
        self.arriving[1:] = served[:-1]
        self.arriving[legs.first] = 0.0
        self.served = served
        held = self.held()
        self.paused = (held > self.xoff_bytes) | (self.paused & (held > self.xon_bytes)) | forced
        return served[legs.first], served[legs.last]


def _sum(place: Ints, amount: Floats, size: int) -> Floats:
    """What lies at each of `size` places in all."""
    return np.bincount(place, amount, size).astype(float, copy=False)
