"""UDP pings from one NIC of this node: those under way, and their outcome (TFD 3.2).

    Lat_network = (t4 - t1) - (t3 - t2)                                  TFD's equation (1)

t1 and t4 are taken here, t2 and t3 by the target. An answer that comes late, twice, from somebody
else or with a turnaround that cannot be is counted and never a measurement.
"""

from __future__ import annotations

import random
import select
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Literal, Protocol

from oncall.core.units import NS_PER_S
from oncall.node.ping.flights import Flights, Oddities
from oncall.node.ping.ping_packet import Kind, Packet, decode
from oncall.node.ping.stamped_socket import (
    Address,
    Clock,
    Left,
    Received,
    Span,
    StampedSocket,
    Stamps,
    coarser,
    round_trip,
)

PingKind = Literal["network", "end_to_end"]


@dataclass(frozen=True)
class Target:
    """Whom to ping. `nic` is the target's NIC where it is known already."""

    node: str
    address: Address
    nic: str | None = None


@dataclass(frozen=True)
class Ping:
    """The outcome of a ping, a row of `pings`: `rtt_ns` is None if it was lost."""

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
    """A ping under way. `number` is the socket's own of the PING."""

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
        self._flights: Flights[_Flight] = Flights(self.oddities)
        self._by_number: dict[int, int] = {}  # the socket's number of a PING -> its sequence
        self._nic_at: dict[Address, str] = {}  # what targets called their NICs when they answered

    def fileno(self) -> int:
        return self._socket.fileno()

    def close(self) -> None:
        self._socket.close()

    def send(self, target: Target) -> None:
        """Begin a ping. A ping that cannot be sent is counted; it is not a loss."""
        packet = self._flights.packet(Kind.PING)
        try:
            number, sent = self._socket.send(packet.encoded(), target.address)
        except OSError:
            self.oddities.unsent += 1
            return
        flight = _Flight(target, number, sent, sent.program_ns + self._timeout_ns)
        self._by_number[number] = self._flights.begin(flight)

    def ended(self) -> list[Ping]:
        """Take what has come, and give up what is past its time."""
        pings: list[Ping] = []
        while (received := self._socket.receive()) is not None:
            # What left before this came is stamped by now.
            self._take_reports()
            self._take(received, pings)
        self._take_reports()
        for sequence, flight in self._flights.expired(time.monotonic_ns()):
            self._end(sequence, Kind.PONG if flight.received is None else Kind.STAMPED, pings)
        return pings

    def next_deadline_ns(self) -> int | None:
        return self._flights.next_deadline_ns()

    # --------------------------------------------------------------------- its parts

    def _take(self, received: Received, pings: list[Ping]) -> None:
        packet = decode(received.data)
        flight = self._flights.of(packet)
        if packet is None or flight is None:
            return
        if received.sender[:2] != flight.target.address[:2]:
            self.oddities.foreign += 1
        elif packet.kind is Kind.PONG and flight.received is None:
            flight.received = received.stamps
            flight.turnaround = _turnaround(packet)
            flight.nic = packet.nic
            self._ask(packet.sequence, flight)
        elif packet.kind is Kind.STAMPED and flight.received is not None:
            flight.turnaround = _turnaround(packet)
            self._end(packet.sequence, None, pings)
        else:
            self.oddities.duplicate += 1

    def _ask(self, sequence: int, flight: _Flight) -> None:
        packet = self._flights.packet(Kind.ASK, sequence)
        # Where it cannot be sent, the turnaround is what the PONG said.
        with suppress(OSError):
            self._socket.send(packet.encoded(), flight.target.address)

    def _take_reports(self) -> None:
        """The stamps of what we sent, and what was refused on the way."""
        for report in self._socket.reports():
            if isinstance(report, Left):
                self._take_stamp(report)
            else:
                self._take_refusal(decode(report.data))

    def _take_stamp(self, left: Left) -> None:
        flight = self._flights.at(self._by_number.get(left.number, -1))
        if flight is not None:
            flight.sent = flight.sent.with_stamps(left.kernel_ns, left.nic_ns)

    def _take_refusal(self, packet: Packet | None) -> None:
        flight = self._flights.refused(packet)
        # A target that takes PINGs and refuses ASKs has just left; what it measured stands.
        if packet is not None and flight is not None and flight.received is None:
            self._forget(packet.sequence, Kind.PONG)
            self.oddities.refused[flight.target.node] += 1

    def _end(self, sequence: int, lacked: Kind | None, pings: list[Ping]) -> None:
        flight = self._forget(sequence, lacked)
        at_ns = flight.sent.program_ns + flight.sent.offset_ns
        target = self._named(flight)
        if flight.received is None or flight.turnaround is None:
            pings.append(Ping(self._nic, target, at_ns))
            return
        trip = round_trip(flight.sent, flight.received)
        rtt_ns = trip.ns - flight.turnaround.ns
        if flight.turnaround.ns < 0 or rtt_ns <= 0:
            self.oddities.impossible += 1
            return
        clock = coarser(trip.clock, flight.turnaround.clock)
        pings.append(Ping(self._nic, target, at_ns, rtt_ns, flight.turnaround.ns, clock))

    def _named(self, flight: _Flight) -> Target:
        """The target with its NIC's name: a lost ping goes with those that were answered."""
        target = flight.target
        if flight.nic:
            self._nic_at[target.address] = flight.nic
        return replace(target, nic=target.nic or self._nic_at.get(target.address))

    def _forget(self, sequence: int, lacked: Kind | None) -> _Flight:
        flight = self._flights.end(sequence, lacked)
        self._by_number.pop(flight.number, None)
        return flight


def _turnaround(packet: Packet) -> Span:
    return Span(packet.sent_ns - packet.received_ns, packet.clock)


# Many pings in a short time: a probe on demand, at a bounded rate, until all are over.

_MS = 1_000_000
_LOOK_UP_NS = 50 * _MS  # how often it is asked whether to stop

Shot = tuple[Pinging, Target]


def run_pings(
    shots: Sequence[Shot],
    count: int,
    per_second: float,
    is_over: Callable[[], bool] = lambda: False,
) -> list[Ping]:
    """Ping each target `count` times, in rounds of another order each, so that the nodes of a
    fleet do not all meet at one. A round before is not measured: it finds routes and fills caches.

    Stops early when `is_over`; returns what has ended by then.
    """
    chance = random.Random()
    plan = [
        (shot, number > 0)
        for number in range(count + 1)
        for shot in chance.sample(shots, len(shots))
    ]
    pingers = list({id(pinger): pinger for pinger, _ in shots}.values())
    poll = select.poll()
    for pinger in pingers:
        poll.register(pinger.fileno(), select.POLLIN)
    pings: list[Ping] = []
    measured_from_ns = 0
    next_ns = time.monotonic_ns()
    while not is_over():
        now_ns = time.monotonic_ns()
        if plan and now_ns >= next_ns:
            (pinger, target), is_measured = plan.pop(0)
            if is_measured and not measured_from_ns:
                measured_from_ns = time.time_ns()
            pinger.send(target)
            next_ns = max(next_ns + round(NS_PER_S / per_second), now_ns)
        under_way = [at for pinger in pingers if (at := pinger.next_deadline_ns()) is not None]
        if not plan and not under_way:
            break
        wake_ns = min([*under_way, now_ns + _LOOK_UP_NS, *([next_ns] if plan else [])])
        poll.poll(max(0, -(-(wake_ns - time.monotonic_ns()) // _MS)))
        for pinger in pingers:
            pings += pinger.ended()
    return [ping for ping in pings if measured_from_ns and ping.at_ns >= measured_from_ns]
