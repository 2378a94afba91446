"""Where a NIC takes RDMA datagrams: asked by UDP of who responds there, without RDMA of its own."""

from __future__ import annotations

import secrets
import socket
import time
from dataclasses import dataclass

from oncall.node.ping.ping_packet import Kind, Packet, decode
from oncall.node.ping.stamped_socket import Address

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
