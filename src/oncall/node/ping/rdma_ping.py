"""RDMA UD pings: the whole way of a small message, hosts included (TFD 3.2).

    Lat_end-to-end = T_client + Lat_send + T_server + Lat_ack            TFD's equation (2)

Stamped by the programs at both ends. What the answering program itself takes, from seeing a ping
to posting its answer, is taken off: it is ours and no property of the host.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from oncall.core.units import NS_PER_S
from oncall.node.common.rate_limit import RateLimits
from oncall.node.ping.flights import Flights, Oddities
from oncall.node.ping.local_nics import LocalNic
from oncall.node.ping.ping import Ping, Target
from oncall.node.ping.ping_packet import Kind, RdmaAddress, decode
from oncall.node.ping.rdma_endpoint import Datagram, NoRdma, RdmaEndpoint
from oncall.node.ping.stamped_socket import Stamps

_PER_SECOND, _BURST = 1_000.0, 2_000.0


@dataclass
class _Flight:
    target: Target
    sent: Stamps
    deadline_ns: int


class RdmaPinger:
    """Sends RDMA pings from one NIC; a target's address is an RdmaAddress."""

    def __init__(self, nic: str, endpoint: RdmaEndpoint, timeout_ns: int = NS_PER_S) -> None:
        """The endpoint becomes the pinger's own."""
        self.oddities = Oddities()
        self._nic = nic
        self._endpoint = endpoint
        self._timeout_ns = timeout_ns
        self._flights: Flights[_Flight] = Flights(self.oddities)

    def fileno(self) -> int:
        return self._endpoint.fileno()

    def close(self) -> None:
        self._endpoint.close()

    def send(self, target: Target) -> None:
        """Begin a ping; one that cannot be sent is counted, and no loss."""
        packet = self._flights.packet(Kind.PING)
        try:
            sent = self._endpoint.send(packet.encoded(), target.address)
        except OSError:
            self.oddities.unsent += 1
            return
        self._flights.begin(_Flight(target, sent, sent.program_ns + self._timeout_ns))

    def ended(self) -> list[Ping]:
        """Take what has come, and give up what is past its time."""
        pings: list[Ping] = []
        for datagram in self._endpoint.receive():
            self._take(datagram, pings)
        for sequence, _ in self._flights.expired(time.monotonic_ns()):
            pings.append(self._ping(self._flights.end(sequence, Kind.PONG)))
        return pings

    def next_deadline_ns(self) -> int | None:
        return self._flights.next_deadline_ns()

    def _take(self, datagram: Datagram, pings: list[Ping]) -> None:
        packet = decode(datagram.data)
        flight = self._flights.of(packet)
        if packet is None or flight is None:
            return
        if packet.kind is not Kind.PONG or datagram.sender.gid != flight.target.address.gid:
            self.oddities.foreign += 1
            return
        self._flights.end(packet.sequence, None)
        target_ns = packet.sent_ns - packet.received_ns
        rtt_ns = datagram.stamps.program_ns - flight.sent.program_ns - target_ns
        if target_ns < 0 or rtt_ns <= 0:
            self.oddities.impossible += 1
            return
        ping = self._ping(flight)
        pings.append(replace(ping, rtt_ns=rtt_ns, target_ns=target_ns, clock="program"))

    def _ping(self, flight: _Flight) -> Ping:
        at_ns = flight.sent.program_ns + flight.sent.offset_ns
        return Ping(self._nic, flight.target, at_ns, kind="end_to_end")


class RdmaResponder:
    """Answers RDMA pings, one message for one."""

    def __init__(self, endpoint: RdmaEndpoint) -> None:
        self.limited = 0
        self._endpoint = endpoint
        self._limits = RateLimits(_PER_SECOND, _BURST)

    def fileno(self) -> int:
        return self._endpoint.fileno()

    def close(self) -> None:
        self._endpoint.close()

    def answer(self) -> None:
        for datagram in self._endpoint.receive():
            packet = decode(datagram.data)
            if packet is None or packet.kind is not Kind.PING:
                continue
            received_ns = datagram.stamps.program_ns
            if not self._limits.allows(datagram.sender.gid, received_ns):
                self.limited += 1
                continue
            with suppress(OSError):  # no way back: the pinger counts it lost
                now_ns = time.monotonic_ns()
                pong = replace(packet, kind=Kind.PONG, received_ns=received_ns, sent_ns=now_ns)
                self._endpoint.send(pong.encoded(), datagram.sender)


def respond_by_rdma(
    nics: Sequence[LocalNic], root: Path = Path("/")
) -> tuple[list[RdmaResponder], dict[str, RdmaAddress], str | None]:
    """Responders of all NICs that can have one, where they listen by NIC, and why one has none."""
    responders: list[RdmaResponder] = []
    there: dict[str, RdmaAddress] = {}
    without = None
    for nic in nics:
        try:
            endpoint = RdmaEndpoint(nic, root)
        except NoRdma as error:
            without = str(error)
        else:
            there[nic.nic] = endpoint.address
            responders.append(RdmaResponder(endpoint))
    return responders, there, without
