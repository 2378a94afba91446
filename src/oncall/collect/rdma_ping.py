"""RDMA UD pings: the whole way of a small message, hosts included (TFD 3.2).

    Lat_end-to-end = T_client + Lat_send + T_server + Lat_ack            TFD's equation (2)

Stamped by the programs at both ends. What the answering program itself takes, from seeing a ping
to posting its answer, is taken off: it is ours and no property of the host.
"""

from __future__ import annotations

import secrets
import time
from collections import OrderedDict
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from oncall.collect.local_nics import LocalNic
from oncall.collect.ping import Oddities, Ping, Target
from oncall.collect.ping_packet import Kind, Packet, decode
from oncall.collect.rate_limit import RateLimits
from oncall.collect.rdma_address import RdmaAddress
from oncall.collect.rdma_endpoint import Datagram, NoRdma, RdmaEndpoint
from oncall.collect.stamps import Stamps
from oncall.units import NS_PER_S

_PER_SECOND, _BURST = 1_000.0, 2_000.0
_MOST_ENDED = 4096


@dataclass(frozen=True)
class _Flight:
    target: Target
    sent: Stamps
    deadline_ns: int


class RdmaPinger:
    """Sends RDMA pings from one NIC; a target's address is an RdmaAddress."""

    def __init__(self, nic: str, endpoint: RdmaEndpoint, timeout_ns: int = NS_PER_S) -> None:
        self.oddities = Oddities()
        self._nic = nic
        self._endpoint = endpoint
        self._timeout_ns = timeout_ns
        self._token = secrets.randbits(64)
        self._sequence = 0
        self._flights: OrderedDict[int, _Flight] = OrderedDict()
        self._ended: OrderedDict[int, bool] = OrderedDict()  # sequence -> whether it was lost

    def fileno(self) -> int:
        return self._endpoint.fileno()

    def close(self) -> None:
        self._endpoint.close()

    def send(self, target: Target) -> None:
        """Begin a ping; one that cannot be sent is refused."""
        sequence = self._sequence
        packet = Packet(Kind.PING, self._token, sequence)
        try:
            sent = self._endpoint.send(packet.encoded(), target.address)
        except OSError:
            refused = self.oddities.refused
            refused[target.node] = refused.get(target.node, 0) + 1
            return
        self._sequence = (sequence + 1) % 2**32
        self._flights[sequence] = _Flight(target, sent, sent.program_ns + self._timeout_ns)

    def ended(self) -> list[Ping]:
        """Take what has come, and give up what is past its time."""
        pings: list[Ping] = []
        for datagram in self._endpoint.receive():
            self._take(datagram, pings)
        now_ns = time.monotonic_ns()
        while self._flights:
            sequence, flight = next(iter(self._flights.items()))
            if flight.deadline_ns > now_ns:
                break
            self._end(sequence, lost=True)
            pings.append(self._ping(flight))
        return pings

    def next_deadline_ns(self) -> int | None:
        return next((flight.deadline_ns for flight in self._flights.values()), None)

    def _take(self, datagram: Datagram, pings: list[Ping]) -> None:
        packet = decode(datagram.data)
        if packet is None or packet.kind is not Kind.PONG or packet.token != self._token:
            self.oddities.foreign += 1
            return
        flight = self._flights.get(packet.sequence)
        if flight is None:
            lost = self._ended.get(packet.sequence)
            if lost is None:
                self.oddities.foreign += 1
            elif lost:
                self.oddities.late += 1
            else:
                self.oddities.duplicate += 1
            return
        self._end(packet.sequence, lost=False)
        target_ns = packet.sent_ns - packet.received_ns
        rtt_ns = datagram.stamps.program_ns - flight.sent.program_ns - target_ns
        if target_ns < 0 or rtt_ns <= 0:
            self.oddities.impossible += 1
            return
        pings.append(
            replace(self._ping(flight), rtt_ns=rtt_ns, target_ns=target_ns, clock="program")
        )

    def _ping(self, flight: _Flight) -> Ping:
        at_ns = flight.sent.program_ns + flight.sent.offset_ns
        return Ping(self._nic, flight.target, at_ns, kind="end_to_end")

    def _end(self, sequence: int, *, lost: bool) -> None:
        del self._flights[sequence]
        self._ended[sequence] = lost
        if len(self._ended) > _MOST_ENDED:
            self._ended.popitem(last=False)


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
