"""A UDP socket with the times at which its packets really left and came: SO_TIMESTAMPING.

See the kernel's Documentation/networking/timestamping.rst. The NIC stamps if somebody has switched
that on (`hwstamp_ctl`); the kernel stamps in any case; neither needs a privilege.
"""

from __future__ import annotations

import errno
import socket
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

from oncall.node.ping.stamps import Stamps, stamp

Address: TypeAlias = Any  # as the socket module has it: a tuple that begins with host and port

# <linux/net_tstamp.h>, <linux/errqueue.h>
_SO_TIMESTAMPING = 37
_TX_HARDWARE, _TX_SOFTWARE, _RX_HARDWARE, _RX_SOFTWARE = 1, 2, 4, 8
_SOFTWARE, _RAW_HARDWARE = 1 << 4, 1 << 6
_OPT_ID, _OPT_TSONLY, _OPT_TX_SWHW = 1 << 7, 1 << 11, 1 << 14
_FLAGS = (
    *(_TX_HARDWARE, _TX_SOFTWARE, _RX_HARDWARE, _RX_SOFTWARE),
    *(_SOFTWARE, _RAW_HARDWARE, _OPT_ID, _OPT_TSONLY, _OPT_TX_SWHW),
)
_IP_RECVERR, _IPV6_RECVERR = 11, 25
_IP_PKTINFO = 8
_ORIGIN_LOCAL, _ORIGIN_STAMP = 1, 4
_EXTENDED_ERROR = struct.Struct("=IBBBBII")
_STAMPS = struct.Struct("=6q")  # kernel's, an obsolete one, NIC's: seconds and ns each
_PKTINFO = struct.Struct("=i4s4s")
_ROOM = 512  # for ancillary data
_MOST_BYTES = 2048


@dataclass(frozen=True)
class Received:
    """A datagram. `here` is what to answer it by: the interface's number and the local address
    that it came to; `interface` is 0 where the kernel does not say."""

    data: bytes
    sender: Address
    stamps: Stamps
    interface: int = 0
    here: list[tuple[int, int, bytes]] | None = None


@dataclass(frozen=True)
class Left:
    """A stamp of a datagram that `send` gave this number."""

    number: int
    kernel_ns: int | None
    nic_ns: int | None


@dataclass(frozen=True)
class Refused:
    """Something on the way, or the target itself, refused a datagram (ICMP)."""

    data: bytes
    problem: str


class StampedSocket:
    """Never blocks: poll `fileno()`, and after each wake-up read until there is no more."""

    def __init__(self, address: str = "", port: int = 0) -> None:
        """Bind to an address and port; "" and 0: any. Raises OSError."""
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        self._socket = socket.socket(family, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
        try:
            self._socket.setblocking(False)
            v6 = family == socket.AF_INET6
            if v6:
                self._socket.setsockopt(socket.IPPROTO_IPV6, _IPV6_RECVERR, 1)
                self._socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_RECVPKTINFO, 1)
            else:
                self._socket.setsockopt(socket.IPPROTO_IP, _IP_RECVERR, 1)
                self._socket.setsockopt(socket.IPPROTO_IP, _IP_PKTINFO, 1)
            self._socket.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPING, sum(_FLAGS))
            self._socket.bind((address, port))
            self._port: int = self._socket.getsockname()[1]
        except OSError:
            self._socket.close()
            raise
        self._sends = 0

    @property
    def port(self) -> int:
        return self._port

    def fileno(self) -> int:
        return self._socket.fileno()

    def close(self) -> None:
        self._socket.close()

    def send(
        self, data: bytes, to: Address, by: list[tuple[int, int, bytes]] | None = None
    ) -> tuple[int, Stamps]:
        """Send; returns the number that `Left` will bear, and the program's stamp.

        Raises OSError, BlockingIOError where there is no room to send."""
        self._forget_error()
        before = stamp()
        self._socket.sendmsg([data], by or (), 0, to)
        number = self._sends
        self._sends = (number + 1) % 2**32
        return number, before

    def receive(self) -> Received | None:
        """The next datagram that came; None if there is no more."""
        while True:
            try:
                data, ancillary, _, sender = self._socket.recvmsg(_MOST_BYTES, _ROOM)
            except BlockingIOError:
                return None
            except OSError:
                continue  # what is in the error queue shows here too, once
            kernel_ns, nic_ns = _stamps(ancillary)
            interface, here = _way_back(ancillary)
            return Received(data, sender, stamp(kernel_ns, nic_ns), interface, here)

    def reports(self) -> Iterator[Left | Refused]:
        """What the kernel reported of datagrams that were sent, in its order.

        Stacked interfaces (a veth in a bridge) stamp a datagram each: the first is ours."""
        while True:
            try:
                data, ancillary, _, _ = self._socket.recvmsg(
                    _MOST_BYTES, _ROOM, socket.MSG_ERRQUEUE
                )
            except OSError:
                return
            for level, kind, content in ancillary:
                if (level, kind) not in _ERRORS or len(content) < _EXTENDED_ERROR.size:
                    continue
                number, origin, _, _, _, _, extra = _EXTENDED_ERROR.unpack_from(content)
                if origin == _ORIGIN_STAMP:
                    yield Left(extra, *_stamps(ancillary))
                elif origin != _ORIGIN_LOCAL:
                    yield Refused(data, errno.errorcode.get(number, str(number)))

    def _forget_error(self) -> None:
        # What another datagram met must not fail this one; it is in the error queue all the same.
        self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)


_ERRORS = ((socket.IPPROTO_IP, _IP_RECVERR), (socket.IPPROTO_IPV6, _IPV6_RECVERR))


def _stamps(ancillary: list[tuple[int, int, bytes]]) -> tuple[int | None, int | None]:
    """The kernel's and the NIC's stamp, ns; None where there is none."""
    for level, kind, content in ancillary:
        if (level, kind) == (socket.SOL_SOCKET, _SO_TIMESTAMPING):
            seconds = _STAMPS.unpack_from(content)
            kernel_ns = seconds[0] * 10**9 + seconds[1]
            nic_ns = seconds[4] * 10**9 + seconds[5]
            return kernel_ns or None, nic_ns or None
    return None, None


def _way_back(
    ancillary: list[tuple[int, int, bytes]],
) -> tuple[int, list[tuple[int, int, bytes]] | None]:
    """The interface's number, and the control message that makes an answer leave from the address
    that was asked: of several, the kernel would choose by its routes."""
    for level, kind, content in ancillary:
        if (level, kind) == (socket.IPPROTO_IP, _IP_PKTINFO):
            interface, local, _ = _PKTINFO.unpack_from(content)
            return interface, [(level, kind, _PKTINFO.pack(0, local, bytes(4)))]
        if (level, kind) == (socket.IPPROTO_IPV6, socket.IPV6_PKTINFO):
            (interface,) = struct.unpack_from("=i", content, 16)
            return interface, [(level, kind, content)]
    return 0, None
