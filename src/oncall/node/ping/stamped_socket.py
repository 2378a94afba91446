"""A UDP socket with the times at which its packets really left and came: SO_TIMESTAMPING.

See the kernel's Documentation/networking/timestamping.rst. The NIC stamps if somebody has switched
that on (`hwstamp_ctl`); the kernel stamps in any case; neither needs a privilege.
"""

from __future__ import annotations

import errno
import socket
import struct
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias, get_args

# When a packet left and when it came, by up to three clocks, and the time between.
#
# The NIC's clock leaves out everything of the host, the kernel's (CLOCK_REALTIME) all that a
# program waits for its CPU, and the program's own is always there. A clock may be set between two
# stamps: the monotonic clock bears every difference out, or it is not used.

Clock = Literal["program", "kernel", "nic"]  # from the coarsest to the finest
CLOCKS: tuple[Clock, ...] = get_args(Clock)

_STEP_NS = 20_000  # more between two readings of both clocks is a clock that was set
_TRIES, _TOGETHER_NS = 3, 5_000
_SLEW = 1e-3  # twice what adjtimex(2) may slew a clock by


@dataclass(frozen=True)
class Stamps:
    """One packet passing; all in ns. `program_ns` is CLOCK_MONOTONIC, taken before the program
    sends or after it received; `offset_ns` is what CLOCK_REALTIME was ahead of it then."""

    program_ns: int
    offset_ns: int
    kernel_ns: int | None = None
    nic_ns: int | None = None

    @property
    def realtime_ns(self) -> int:
        return self.kernel_ns or self.program_ns + self.offset_ns

    def with_stamps(self, kernel_ns: int | None, nic_ns: int | None) -> Stamps:
        """The same packet with stamps that were reported later; the first of each kind counts."""
        return replace(self, kernel_ns=self.kernel_ns or kernel_ns, nic_ns=self.nic_ns or nic_ns)


@dataclass(frozen=True)
class Span:
    """A time, and who measured it."""

    ns: int
    clock: Clock


def stamp(kernel_ns: int | None = None, nic_ns: int | None = None) -> Stamps:
    """Now, with what is known of the packet besides."""
    for _ in range(_TRIES):
        program_ns, realtime_ns, after_ns = time.monotonic_ns(), time.time_ns(), time.monotonic_ns()
        # Interrupted between the two clocks, it would look as if one had been set.
        if after_ns - program_ns < _TOGETHER_NS:
            break
    return Stamps(program_ns, realtime_ns - (program_ns + after_ns) // 2, kernel_ns, nic_ns)


def round_trip(sent: Stamps, received: Stamps) -> Span:
    """From sending to receiving, by the finest clock that says no more than the program saw."""
    program_ns = received.program_ns - sent.program_ns
    nic_ns = _between(sent.nic_ns, received.nic_ns)
    if nic_ns is not None and 0 < nic_ns <= program_ns:
        return Span(nic_ns, "nic")
    kernel_ns = _between(sent.kernel_ns, received.kernel_ns)
    if kernel_ns is not None and 0 < kernel_ns <= program_ns and not _was_set(sent, received):
        return Span(kernel_ns, "kernel")
    return Span(program_ns, "program")


def turnaround(received: Stamps, sent: Stamps) -> Span:
    """From receiving to sending, by the finest clock that says no less than the program saw."""
    program_ns = sent.program_ns - received.program_ns
    nic_ns = _between(received.nic_ns, sent.nic_ns)
    if nic_ns is not None and nic_ns >= program_ns:
        return Span(nic_ns, "nic")
    kernel_ns = _between(received.kernel_ns, sent.kernel_ns)
    if kernel_ns is not None and kernel_ns >= program_ns and not _was_set(received, sent):
        return Span(kernel_ns, "kernel")
    return Span(program_ns, "program")


def coarser(one: Clock, other: Clock) -> Clock:
    """What a difference of two spans is worth."""
    return min(one, other, key=CLOCKS.index)


def _between(first_ns: int | None, last_ns: int | None) -> int | None:
    return None if first_ns is None or last_ns is None else last_ns - first_ns


def _was_set(first: Stamps, last: Stamps) -> bool:
    allowed_ns = _STEP_NS + _SLEW * (last.program_ns - first.program_ns)
    return abs(last.offset_ns - first.offset_ns) > allowed_ns


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
