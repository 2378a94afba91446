"""Pings under way: which answer belongs to which ping, and which answers are late, duplicate or
unexpected.
"""

from __future__ import annotations

import secrets
from collections import Counter, OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

from oncall.node.ping.ping_packet import Kind, Packet

_MOST_ENDED = 4096  # pings whose late or second answers are distinguished from strangers'


class Flight(Protocol):
    """A ping under way; it is given up at `deadline_ns`, CLOCK_MONOTONIC."""

    deadline_ns: int


F = TypeVar("F", bound=Flight)


# Each kind of oddity, for a person.
_SAID = {
    "late": "ping answers arrived after the timeout: not measured",
    "duplicate": "duplicate ping answers: only the first counts",
    "foreign": "packets came to the pinger that answer none of its pings",
    "impossible": "ping answers with impossible times: not measured",
    "unsent": "pings could not be sent: no route, or the device is gone",
}


@dataclass
class Oddities:
    """Answers and targets that gave no measurement, since the pinger began."""

    late: int = 0
    duplicate: int = 0
    foreign: int = 0
    impossible: int = 0
    unsent: int = 0
    refused: Counter[str] = field(default_factory=Counter)  # by node, where nothing takes pings

    def add(self, other: Oddities) -> None:
        """Count what another pinger met, too."""
        for kind in _SAID:
            setattr(self, kind, getattr(self, kind) + getattr(other, kind))
        self.refused.update(dict(other.refused))  # which another thread may add to

    def since(self, before: Oddities) -> Oddities:
        """What has been counted beyond `before`."""
        counts = {kind: getattr(self, kind) - getattr(before, kind) for kind in _SAID}
        return Oddities(**counts, refused=self.refused - before.refused)

    def sentences(self) -> tuple[str, ...]:
        """Each kind that there was."""
        counts = [(getattr(self, kind), what) for kind, what in _SAID.items()]
        refused = (
            f"nothing answers pings on {node}: {count} refused"
            for node, count in sorted(self.refused.items())
        )
        return (*(f"{count} {what}" for count, what in counts if count), *refused)


class Flights(Generic[F]):
    """Flights by sequence number, all with the same time limit, so the oldest expires first."""

    def __init__(self, oddities: Oddities) -> None:
        self._oddities = oddities
        self._token = secrets.randbits(64)
        self._next = 0
        self._flights: OrderedDict[int, F] = OrderedDict()
        self._ended: OrderedDict[int, Kind | None] = OrderedDict()  # sequence -> what it lacked

    def packet(self, kind: Kind, sequence: int | None = None) -> Packet:
        """A packet to send: of the flight that `begin` comes to, or of a known one."""
        return Packet(kind, self._token, self._next if sequence is None else sequence)

    def begin(self, flight: F) -> int:
        """The ping has left; returns its sequence number."""
        sequence = self._next
        self._next = (sequence + 1) % 2**32
        self._flights[sequence] = flight
        return sequence

    def of(self, packet: Packet | None) -> F | None:
        """The flight that a packet answers. One that answers none is counted as what it is."""
        if packet is None or packet.token != self._token:
            self._oddities.foreign += 1
            return None
        flight = self._flights.get(packet.sequence)
        if flight is None:
            self._count(packet)
        return flight

    def refused(self, packet: Packet | None) -> F | None:
        """The flight that a refused packet of ours belongs to, if it is under way."""
        ours = packet is not None and packet.token == self._token
        return self._flights.get(packet.sequence) if ours and packet is not None else None

    def at(self, sequence: int) -> F | None:
        return self._flights.get(sequence)

    def end(self, sequence: int, lacked: Kind | None) -> F:
        """It is over: it lacked its answer (PONG), the second half of it (STAMPED), or nothing."""
        flight = self._flights.pop(sequence)
        self._ended[sequence] = lacked
        if len(self._ended) > _MOST_ENDED:
            self._ended.popitem(last=False)
        return flight

    def expired(self, now_ns: int) -> Iterator[tuple[int, F]]:
        """Flights past their time; each must be ended before the next is asked for."""
        while self._flights:
            sequence, flight = next(iter(self._flights.items()))
            if flight.deadline_ns > now_ns:
                return
            yield sequence, flight

    def next_deadline_ns(self) -> int | None:
        return next((flight.deadline_ns for flight in self._flights.values()), None)

    def _count(self, packet: Packet) -> None:
        if packet.sequence not in self._ended:
            self._oddities.foreign += 1
            return
        lacked = self._ended[packet.sequence]
        if packet.kind is lacked:
            self._oddities.late += 1
        elif lacked is not Kind.PONG:
            self._oddities.duplicate += 1
