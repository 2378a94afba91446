"""What a ping and its answers look like: packets of one size.

    PING ->    <- PONG     the round trip, and the target's turnaround as its program knows it
    ASK  ->    <- STAMPED  the turnaround as the target's kernel or NIC stamped it: known only
                           after the PONG has left
    FIND ->    <- FOUND    where the NIC that was reached takes RDMA pings

Each answer is as large as what it answers, so a forged sender gains nothing.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import IntEnum

from oncall.node.ping.stamps import CLOCKS, Clock

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
