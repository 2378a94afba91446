"""Answers UDP pings: one packet for each packet, of the same size, at a limited rate per client."""

from __future__ import annotations

import select
import socket
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Protocol

from oncall.node.common.rate_limit import RateLimit, RateLimits
from oncall.node.common.source import say_bug
from oncall.node.ping.ping_packet import Kind, Packet, RdmaAddress, decode
from oncall.node.ping.stamped_socket import (
    Address,
    Left,
    Received,
    StampedSocket,
    Stamps,
    turnaround,
)

_PER_SECOND, _BURST = 1_000.0, 2_000.0  # packets of one sender
_ALL_PER_SECOND, _ALL_BURST = 20_000.0, 20_000.0  # of all of them: forged senders are many
_MOST_REMEMBERED = 4096  # answers whose stamps may still be asked for


@dataclass
class _Answered:
    """A PONG that has left."""

    received: Stamps
    sent: Stamps


class Responder:
    """Answers whatever comes to its socket. `limited` counts what was left unanswered."""

    def __init__(
        self,
        stamped: StampedSocket,
        nic_of: Callable[[int], str] = lambda _interface: "",
        rdma: Mapping[str, RdmaAddress] | None = None,
    ) -> None:
        """`nic_of` names the NIC of an interface's number; `rdma` is where each NIC takes RDMA
        pings. The socket becomes its own."""
        self.limited = 0
        self._socket = stamped
        self._nic_of = nic_of
        self._rdma = rdma or {}
        self._limits = RateLimits(_PER_SECOND, _BURST)
        self._limit = RateLimit(_ALL_PER_SECOND, _ALL_BURST)
        self._answered: OrderedDict[tuple[Address, int, int], _Answered] = OrderedDict()
        self._by_number: OrderedDict[int, _Answered] = OrderedDict()

    @property
    def port(self) -> int:
        return self._socket.port

    def fileno(self) -> int:
        return self._socket.fileno()

    def close(self) -> None:
        self._socket.close()

    def answer(self) -> None:
        """Answer all that has come."""
        while (received := self._socket.receive()) is not None:
            packet = decode(received.data)
            if packet is None or packet.kind not in (Kind.PING, Kind.ASK, Kind.FIND):
                continue
            now_ns = received.stamps.program_ns
            if not self._limits.allows(received.sender[0], now_ns) or not self._limit.allows(
                now_ns
            ):
                self.limited += 1
            elif packet.kind is Kind.PING:
                self._pong(packet, received)
            elif packet.kind is Kind.ASK:
                self._tell(packet, received)
            else:
                self._found(packet, received)
        self._take_stamps()

    def _pong(self, ping: Packet, received: Received) -> None:
        before = received.stamps
        pong = replace(
            ping,
            kind=Kind.PONG,
            received_ns=before.realtime_ns,
            sent_ns=time.monotonic_ns() + before.offset_ns,
            clock="program",
            nic=self._nic_of(received.interface),
        )
        with suppress(OSError):  # no way back, or no room: the pinger counts it lost
            number, sent = self._socket.send(pong.encoded(), received.sender, received.here)
            answered = _Answered(before, sent)
            self._answered[received.sender, ping.token, ping.sequence] = answered
            self._by_number[number] = answered
            for remembered in (self._answered, self._by_number):
                if len(remembered) > _MOST_REMEMBERED:
                    remembered.popitem(last=False)

    def _tell(self, ask: Packet, received: Received) -> None:
        self._take_stamps()
        answered = self._answered.pop((received.sender, ask.token, ask.sequence), None)
        if answered is None:
            return
        span = turnaround(answered.received, answered.sent)
        began_ns = answered.received.realtime_ns
        reply = replace(
            ask,
            kind=Kind.STAMPED,
            received_ns=began_ns,
            sent_ns=began_ns + span.ns,
            clock=span.clock,
            nic=self._nic_of(received.interface),
        )
        with suppress(OSError):
            self._socket.send(reply.encoded(), received.sender, received.here)

    def _found(self, find: Packet, received: Received) -> None:
        nic = self._nic_of(received.interface)
        there = self._rdma.get(nic, RdmaAddress(bytes(16), 0))
        found = replace(find, kind=Kind.FOUND, nic=nic, gid=there.gid, qpn=there.qpn)
        with suppress(OSError):
            self._socket.send(found.encoded(), received.sender, received.here)

    def _take_stamps(self) -> None:
        for left in self._socket.reports():
            if isinstance(left, Left) and (answered := self._by_number.get(left.number)):
                answered.sent = answered.sent.with_stamps(left.kernel_ns, left.nic_ns)


class Answering(Protocol):
    """What answers pings of one kind."""

    def fileno(self) -> int:
        """Readable when there is something to answer."""

    def answer(self) -> None: ...

    def close(self) -> None: ...


class Responding:
    """A responder in a thread of its own, until it is closed."""

    def __init__(self, responder: Answering) -> None:
        """The responder becomes its own."""
        self.problem: str | None = None  # why it answers no more
        self.cpu_ns = 0  # that its thread has used
        self._responder = responder
        self._wake, self._woken = socket.socketpair()
        self._thread = threading.Thread(target=self._run, name="responder", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._wake.close()
        self._thread.join()
        self._responder.close()
        self._woken.close()

    def _run(self) -> None:
        poll = select.poll()
        poll.register(self._responder.fileno(), select.POLLIN)
        poll.register(self._woken.fileno(), select.POLLIN)
        try:
            while all(number != self._woken.fileno() for number, _ in poll.poll()):
                self._responder.answer()
                self.cpu_ns = time.thread_time_ns()
        except Exception as error:  # a thread that ends unnoticed would look like lost pings
            self.problem = f"pings are no longer answered: {say_bug(error)}"
