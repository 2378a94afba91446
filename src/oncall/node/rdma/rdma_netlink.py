"""Queue pairs as the kernel keeps them, asked for by netlink: what `rdma resource` shows.

Commands and attributes: rdma/rdma_netlink.h, Linux 4.17 and newer.
"""

from __future__ import annotations

import errno
import os
import socket
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count

from oncall.core.errors import BadInput

# Netlink messages, put together and taken apart by hand (linux/netlink.h). Pure.
#
#     message   = length u32 | kind u16 | flags u16 | sequence u32 | port u32 | payload
#     attribute = length u16 | kind u16 | payload, filled up to 4 bytes
#
# Numbers are in the machine's order; lengths include the heads.


REQUEST, DUMP = 0x1, 0x300  # flags
ERROR, DONE = 2, 3  # kinds of every family

_MESSAGE = struct.Struct("=IHHII")
_ATTRIBUTE = struct.Struct("=HH")
_NUMBERS = {1: struct.Struct("=B"), 2: struct.Struct("=H"), 4: struct.Struct("=I")}
_ERROR_NUMBER = struct.Struct("=i")
_KIND_MASK = 0x3FFF  # without the marks of nested and of big-endian attributes


@dataclass(frozen=True)
class Message:
    """One message; `payload` is what follows its head."""

    kind: int
    flags: int
    sequence: int
    payload: bytes

    @property
    def error(self) -> int:
        """The errno that a message of kind ERROR or DONE ends a request with; 0: it went well."""
        if self.kind not in (ERROR, DONE) or len(self.payload) < _ERROR_NUMBER.size:
            return 0
        (number,) = _ERROR_NUMBER.unpack_from(self.payload)
        return max(0, -int(number))

    @property
    def attributes(self) -> Iterator[Attribute]:
        """A payload that is attributes. Raises BadInput where it is damaged."""
        return attributes(self.payload)


@dataclass(frozen=True)
class Attribute:
    """One attribute, whose payload is a number, a text or attributes: its kind says which."""

    kind: int
    payload: bytes

    @property
    def number(self) -> int:
        """A payload of 1, 2 or 4 bytes. Raises BadInput if it is of another size."""
        if len(self.payload) not in _NUMBERS:
            raise _damaged(f"attribute {self.kind} is a number of {len(self.payload)} bytes")
        return int(_NUMBERS[len(self.payload)].unpack(self.payload)[0])

    @property
    def text(self) -> str:
        """A payload that is text ended by NUL."""
        return self.payload.split(b"\0", 1)[0].decode("utf-8", "replace")

    @property
    def attributes(self) -> Iterator[Attribute]:
        """A payload that is attributes. Raises BadInput where it is damaged."""
        return attributes(self.payload)


def message(kind: int, flags: int, sequence: int, payload: bytes = b"") -> bytes:
    """A message to the kernel."""
    return _MESSAGE.pack(_MESSAGE.size + len(payload), kind, flags, sequence, 0) + payload


def attribute(kind: int, payload: bytes) -> bytes:
    """An attribute, filled up."""
    head = _ATTRIBUTE.pack(_ATTRIBUTE.size + len(payload), kind)
    return head + payload + bytes(-len(payload) % 4)


def messages(content: bytes) -> Iterator[Message]:
    """The messages of one datagram. Raises BadInput where it is damaged."""
    start = 0
    while start < len(content):
        if len(content) - start < _MESSAGE.size:
            raise _damaged(f"{len(content) - start} bytes are not a message")
        size, kind, flags, sequence, _ = _MESSAGE.unpack_from(content, start)
        if not _MESSAGE.size <= size <= len(content) - start:
            raise _damaged(f"a message of {size} bytes in {len(content) - start}")
        yield Message(kind, flags, sequence, content[start + _MESSAGE.size : start + size])
        start += _filled_up(size)


def attributes(content: bytes) -> Iterator[Attribute]:
    """The attributes in a payload. Raises BadInput where it is damaged."""
    start = 0
    while len(content) - start >= _ATTRIBUTE.size:
        size, kind = _ATTRIBUTE.unpack_from(content, start)
        if not _ATTRIBUTE.size <= size <= len(content) - start:
            raise _damaged(f"an attribute of {size} bytes in {len(content) - start}")
        yield Attribute(kind & _KIND_MASK, content[start + _ATTRIBUTE.size : start + size])
        start += _filled_up(size)


def _filled_up(size: int) -> int:
    return size + -size % 4


def _damaged(problem: str) -> BadInput:
    return BadInput("netlink", f"damaged: {problem}")


_NETLINK_RDMA = 20
_CLIENT = 5 << 10  # RDMA_NL_NLDEV
_GET_DEVICES, _GET_QUEUE_PAIRS = 1, 10
_DEVICE_INDEX, _DEVICE_NAME = 1, 2
_QUEUE_PAIRS, _QUEUE_PAIR = 19, 20
_NUMBER, _PEER_NUMBER, _TYPE, _STATE, _PID = 21, 22, 26, 27, 28
_READ = frozenset((_NUMBER, _PEER_NUMBER, _TYPE, _STATE, _PID))

TYPES = {1: "gsi", 2: "rc", 3: "uc", 4: "ud", 9: "xrc_initiator", 10: "xrc_target"}
STATES = ("reset", "init", "rtr", "rts", "sqd", "sqe", "err")
_DATAGRAM_BYTES = 1 << 18
_PATIENCE_S = 2.0
_MOST_DATAGRAMS = 10_000


@dataclass(frozen=True)
class QueuePair:
    """A queue pair of a device. `pid`, as this process counts, is None for those of the kernel;
    `peer_number` for those without a connection."""

    device: str
    number: int
    peer_number: int | None
    type: str | None
    state: str | None
    pid: int | None


class NoRdma(Exception):
    """The kernel has no RDMA, or does not list its queue pairs; the text says which."""


def queue_pairs() -> list[QueuePair]:
    """All queue pairs that are to be seen from here. Raises NoRdma; OSError or BadInput if the
    kernel answers otherwise than it promises."""
    try:
        sock = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETLINK_RDMA)
    except OSError as error:
        raise NoRdma("this kernel has no RDMA (module ib_core)") from error
    with sock:
        sock.settimeout(_PATIENCE_S)
        return queue_pairs_by(sock)


def queue_pairs_by(sock: socket.socket) -> list[QueuePair]:
    """What the kernel answers through a socket. Raises as `queue_pairs` does."""
    sequence = count(1)
    found: list[QueuePair] = []
    for index in device_indices(_ask(sock, next(sequence), _GET_DEVICES)):
        which = attribute(_DEVICE_INDEX, struct.pack("=I", index))
        try:
            found += queue_pairs_in(_ask(sock, next(sequence), _GET_QUEUE_PAIRS, which))
        except NoRdma:
            # A device that has just gone is refused as an unknown question is.
            if index in device_indices(_ask(sock, next(sequence), _GET_DEVICES)):
                raise
    return found


def device_indices(replies: list[Message]) -> list[int]:
    """The numbers of the devices in answers to `get devices`. Raises BadInput if damaged."""
    return [each.number for one in replies for each in one.attributes if each.kind == _DEVICE_INDEX]


def queue_pairs_in(replies: list[Message]) -> list[QueuePair]:
    """The queue pairs in answers to `get queue pairs`. Raises BadInput where they are damaged."""
    return [pair for one in replies for pair in _of_device(one)]


def _of_device(replies: Message) -> Iterator[QueuePair]:
    device = ""
    for each in replies.attributes:
        if each.kind == _DEVICE_NAME:
            device = each.text
        elif each.kind == _QUEUE_PAIRS:
            for entry in each.attributes:
                values = {part.kind: part.number for part in entry.attributes if part.kind in _READ}
                if entry.kind == _QUEUE_PAIR and _NUMBER in values:
                    yield _queue_pair(device, values)


def _queue_pair(device: str, values: dict[int, int]) -> QueuePair:
    state = values.get(_STATE)
    return QueuePair(
        device,
        values[_NUMBER],
        values.get(_PEER_NUMBER),
        TYPES.get(values.get(_TYPE, -1)),
        STATES[state] if state is not None and state < len(STATES) else None,
        values.get(_PID),
    )


def _ask(sock: socket.socket, sequence: int, command: int, payload: bytes = b"") -> list[Message]:
    """All that the kernel answers."""
    sock.send(message(_CLIENT + command, REQUEST | DUMP, sequence, payload))
    replies: list[Message] = []
    for _ in range(_MOST_DATAGRAMS):
        for one in messages(sock.recv(_DATAGRAM_BYTES)):
            if one.sequence != sequence:
                continue  # of a question before
            if one.error in (errno.EINVAL, errno.EOPNOTSUPP):
                raise NoRdma("this kernel does not list queue pairs: needs Linux 4.17 or newer")
            if one.error:
                raise OSError(one.error, os.strerror(one.error))
            if one.kind in (DONE, ERROR):
                return replies
            replies.append(one)
    raise BadInput("rdma netlink", "the kernel's answer has no end")
