"""What a ping and its answers look like: packets of one size.

    PING ->    <- PONG     the round trip, and the target's turnaround as its program knows it
    ASK  ->    <- STAMPED  the turnaround as the target's kernel or NIC stamped it: known only
                           after the PONG has left
    FIND ->    <- FOUND    where the NIC that was reached takes RDMA pings

Each answer is as large as what it answers, so a forged sender gains nothing.
"""

from __future__ import annotations

import secrets
import socket
import struct
import time
from dataclasses import dataclass
from enum import IntEnum

from oncall.node.ping.stamped_socket import CLOCKS, Address, Clock

PACKET_BYTES = 64
DEFAULT_PORT = 7766

# magic, version, kind, clock, token, sequence, QPN, received, sent (or GID), NIC
_LAYOUT = struct.Struct("!4sBBBxQII16s24s")
_STAMPS = struct.Struct("!qq")
_MAGIC = b"ocpg"
_VERSION = 1


class Kind(IntEnum):
    """Which of them."""

    PING = 1
    PONG = 2
    ASK = 3
    STAMPED = 4
    FIND = 5
    FOUND = 6


@dataclass(frozen=True)
class Packet:
    """`token` distinguishes one pinger's packets from another's; `received_ns` and `sent_ns` are
    the target's, and only their difference counts, by `clock`. `nic` is what the target calls the
    NIC that the ping came in by; "" where it does not know. A FOUND tells GID and queue pair of
    that NIC instead of times; queue pair 0 is none."""

    kind: Kind
    token: int
    sequence: int
    received_ns: int = 0
    sent_ns: int = 0
    clock: Clock = "program"
    nic: str = ""
    gid: bytes = b""
    qpn: int = 0

    def encoded(self) -> bytes:
        """The packet's PACKET_BYTES bytes."""
        times = _STAMPS.pack(self.received_ns, self.sent_ns)
        return _LAYOUT.pack(
            _MAGIC,
            _VERSION,
            self.kind,
            CLOCKS.index(self.clock),
            self.token,
            self.sequence,
            self.qpn,
            self.gid if self.kind is Kind.FOUND else times,
            self.nic.encode("ascii", "ignore")[:24],
        )


def decode(data: bytes) -> Packet | None:
    """The packet in a datagram; None for anything that is none."""
    if len(data) != PACKET_BYTES:
        return None
    magic, version, kind, clock, token, sequence, qpn, times, nic = _LAYOUT.unpack(data)
    known = kind in Kind.__members__.values() and clock < len(CLOCKS)
    if magic != _MAGIC or version != _VERSION or not known:
        return None
    name = nic.rstrip(b"\0").decode("ascii", "replace")
    if not name.isprintable():
        return None
    if kind == Kind.FOUND:
        return Packet(Kind.FOUND, token, sequence, nic=name, gid=times, qpn=qpn)
    received_ns, sent_ns = _STAMPS.unpack(times)
    return Packet(Kind(kind), token, sequence, received_ns, sent_ns, CLOCKS[clock], name)


# Where a NIC takes RDMA datagrams: asked by UDP of who responds there, without RDMA of its own.

_TRIES = 3


@dataclass(frozen=True)
class RdmaAddress:
    """A GID (16 bytes) and the number of a UD queue pair, 0 where there is none."""

    gid: bytes
    qpn: int


def find(
    address: Address, here: str = "", timeout_s: float = 1.0
) -> tuple[str, RdmaAddress] | None:
    """The NIC behind a responder's UDP address and where it takes RDMA pings, asked from the local
    address `here`; None if it takes none or does not answer."""
    family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
    asked = Packet(Kind.FIND, secrets.randbits(64), 0)
    with socket.socket(family, socket.SOCK_DGRAM) as asking:
        try:
            asking.bind((here, 0))
            asking.connect(address)
            for _ in range(_TRIES):
                asking.send(asked.encoded())
                found = _answer(asking, asked, timeout_s / _TRIES)
                if found is not None:
                    return (found.nic, RdmaAddress(found.gid, found.qpn)) if found.qpn else None
        except OSError:
            return None  # nobody is there
    return None


def _answer(asking: socket.socket, asked: Packet, timeout_s: float) -> Packet | None:
    deadline = time.monotonic() + timeout_s
    while (left_s := deadline - time.monotonic()) > 0:
        asking.settimeout(left_s)
        try:
            packet = decode(asking.recv(2048))
        except TimeoutError:
            return None
        if packet and packet.kind is Kind.FOUND and packet.token == asked.token:
            return packet
    return None
