"""UDP pings from one NIC of this node: what is under way, and what came of it (TFD 3.2).

    Lat_network = (t4 - t1) - (t3 - t2)                                  TFD's equation (1)

t1 and t4 are taken here, t2 and t3 by the target. An answer that comes late, twice, from somebody
else or with a turnaround that cannot be is counted and never a measurement.
"""

from __future__ import annotations

import secrets
import time
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Literal, Protocol

from oncall.collect.ping_packet import Kind, Packet, decode
from oncall.collect.stamped_socket import Address, Left, Received, Refused, StampedSocket
from oncall.collect.stamps import Clock, Span, Stamps, coarser, round_trip
from oncall.units import NS_PER_S

PingKind = Literal["network", "end_to_end"]

_MOST_ENDED = 4096  # pings whose late or second answers are told from strangers'


@dataclass(frozen=True)
class Target:
    """Whom to ping. `nic` is the target's NIC where it is known already."""

    node: str
    address: Address
    nic: str | None = None


@dataclass(frozen=True)
class Ping:
    """What came of a ping, a row of `pings`: `rtt_ns` is None if it was lost."""

    nic: str | None
    target: Target
    at_ns: int
    rtt_ns: int | None = None
    target_ns: int | None = None
    clock: Clock | None = None
    kind: PingKind = "network"

    @property
    def lost(self) -> bool:
        return self.rtt_ns is None


@dataclass
class Oddities:
    """Answers and targets that gave no measurement, since the pinger began."""

    late: int = 0
    duplicate: int = 0
    foreign: int = 0
    impossible: int = 0
    refused: dict[str, int] = field(default_factory=dict)  # by node

    def add(self, other: Oddities) -> None:
        """Count what another pinger met, too."""
        self.late += other.late
        self.duplicate += other.duplicate
        self.foreign += other.foreign
        self.impossible += other.impossible
        for node, count in other.refused.items():
            self.refused[node] = self.refused.get(node, 0) + count

    def sentences(self) -> tuple[str, ...]:
        """Each kind that there was, for a person."""
        counts = (
            (self.late, "answers to pings came after the time limit: not measured"),
            (self.duplicate, "answers to pings came twice: the first counts"),
            (self.foreign, "packets came to the pinger that answer none of its pings"),
            (self.impossible, "answers to pings told times that cannot be: not measured"),
        )
        refused = (
            f"nothing answers pings on {node}: {count} refused"
            for node, count in sorted(self.refused.items())
        )
        return (*(f"{count} {what}" for count, what in counts if count), *refused)


class Pinging(Protocol):
    """What sends pings of one kind from one NIC. Never blocks."""

    oddities: Oddities

    def fileno(self) -> int:
        """Readable when `ended` has something to do."""

    def send(self, target: Target) -> None:
        """Begin a ping."""

    def ended(self) -> list[Ping]:
        """Pings that are over since the last call."""

    def next_deadline_ns(self) -> int | None:
        """When to call `ended` at the latest, CLOCK_MONOTONIC; None: nothing is under way."""

    def close(self) -> None: ...


@dataclass
class _Flight:
    """A ping under way."""

    target: Target
    number: int
    sent: Stamps
    deadline_ns: int
    received: Stamps | None = None
    turnaround: Span | None = None
    nic: str = ""


class Pinger:
    """Sends pings from one NIC, many at a time, and makes measurements of their answers."""

    def __init__(self, nic: str | None, stamped: StampedSocket, timeout_ns: int = NS_PER_S) -> None:
        """`nic` is how the rows name the NIC that the socket is bound to. The socket becomes the
        pinger's own."""
        self.oddities = Oddities()
        self._nic = nic
        self._socket = stamped
        self._timeout_ns = timeout_ns
        self._token = secrets.randbits(64)
        self._sequence = 0
        self._flights: OrderedDict[int, _Flight] = OrderedDict()  # by sequence, so by deadline
        self._by_number: dict[int, int] = {}  # the socket's number of a PING -> its sequence
        self._ended: OrderedDict[int, Kind | None] = OrderedDict()  # sequence -> what it lacked

    def fileno(self) -> int:
        return self._socket.fileno()

    def close(self) -> None:
        self._socket.close()

    def send(self, target: Target) -> None:
        """Begin a ping; one that cannot be sent is refused."""
        sequence = self._sequence
        packet = Packet(Kind.PING, self._token, sequence)
        try:
            number, sent = self._socket.send(packet.encoded(), target.address)
        except OSError:
            self._refuse(target)
            return
        self._sequence = (sequence + 1) % 2**32
        deadline_ns = sent.program_ns + self._timeout_ns
        self._flights[sequence] = _Flight(target, number, sent, deadline_ns)
        self._by_number[number] = sequence

    def ended(self) -> list[Ping]:
        """Take what has come, and give up what is past its time."""
        pings: list[Ping] = []
        while (received := self._socket.receive()) is not None:
            self._take(received, pings)
        self._take_told()
        self._expire(pings)
        return pings

    def next_deadline_ns(self) -> int | None:
        return next((flight.deadline_ns for flight in self._flights.values()), None)

    # --------------------------------------------------------------------- its parts

    def _take(self, received: Received, pings: list[Ping]) -> None:
        packet = decode(received.data)
        if packet is None or packet.token != self._token:
            self.oddities.foreign += 1
            return
        flight = self._flights.get(packet.sequence)
        if flight is None:
            self._count_after_end(packet)
        elif received.sender[:2] != flight.target.address[:2]:
            self.oddities.foreign += 1
        elif packet.kind is Kind.PONG and flight.received is None:
            flight.received = received.stamps
            flight.turnaround = _turnaround(packet)
            flight.nic = packet.nic
            self._ask(packet.sequence, flight)
        elif packet.kind is Kind.TOLD and flight.received is not None:
            flight.turnaround = _turnaround(packet)
            self._end(packet.sequence, flight, None, pings)
        else:
            self.oddities.duplicate += 1

    def _count_after_end(self, packet: Packet) -> None:
        """A ping that is over lacked its PONG (lost), its TOLD or nothing."""
        if packet.sequence not in self._ended:
            self.oddities.foreign += 1
            return
        lacked = self._ended[packet.sequence]
        if packet.kind is lacked:
            self.oddities.late += 1
        elif lacked is not Kind.PONG:
            self.oddities.duplicate += 1

    def _ask(self, sequence: int, flight: _Flight) -> None:
        packet = Packet(Kind.ASK, self._token, sequence)
        try:
            self._socket.send(packet.encoded(), flight.target.address)
        except OSError:
            return  # then the turnaround is what the PONG said

    def _take_told(self) -> None:
        """The stamps of what we sent, and what was refused on the way."""
        for told in self._socket.told():
            if isinstance(told, Left):
                self._take_stamp(told)
            else:
                self._take_refusal(told)

    def _take_stamp(self, left: Left) -> None:
        flight = self._flights.get(self._by_number.get(left.number, -1))
        if flight is not None:
            flight.sent = flight.sent.with_stamps(left.kernel_ns, left.nic_ns)

    def _take_refusal(self, refused: Refused) -> None:
        packet = decode(refused.data)
        flight = packet and packet.token == self._token and self._flights.get(packet.sequence)
        # A target that takes PINGs and refuses ASKs has just left; what it measured stands.
        if packet and flight and flight.received is None:
            self._forget(packet.sequence, Kind.PONG)
            self._refuse(flight.target)

    def _refuse(self, target: Target) -> None:
        refused = self.oddities.refused
        refused[target.node] = refused.get(target.node, 0) + 1

    def _expire(self, pings: list[Ping]) -> None:
        now_ns = time.monotonic_ns()
        while self._flights:
            sequence, flight = next(iter(self._flights.items()))
            if flight.deadline_ns > now_ns:
                return
            lacked = Kind.PONG if flight.received is None else Kind.TOLD
            self._end(sequence, flight, lacked, pings)

    def _end(self, sequence: int, flight: _Flight, lacked: Kind | None, pings: list[Ping]) -> None:
        # The stamp of a PING may be told only now.
        self._take_told()
        self._forget(sequence, lacked)
        at_ns = flight.sent.program_ns + flight.sent.offset_ns
        if flight.received is None or flight.turnaround is None:
            pings.append(Ping(self._nic, flight.target, at_ns))
            return
        trip = round_trip(flight.sent, flight.received)
        rtt_ns = trip.ns - flight.turnaround.ns
        if flight.turnaround.ns < 0 or rtt_ns <= 0:
            self.oddities.impossible += 1
            return
        target = flight.target
        if target.nic is None and flight.nic:
            target = Target(target.node, target.address, flight.nic)
        clock = coarser(trip.clock, flight.turnaround.clock)
        pings.append(Ping(self._nic, target, at_ns, rtt_ns, flight.turnaround.ns, clock))

    def _forget(self, sequence: int, lacked: Kind | None) -> None:
        flight = self._flights.pop(sequence)
        self._by_number.pop(flight.number, None)
        self._ended[sequence] = lacked
        if len(self._ended) > _MOST_ENDED:
            self._ended.popitem(last=False)


def _turnaround(packet: Packet) -> Span:
    return Span(packet.sent_ns - packet.received_ns, packet.clock)
