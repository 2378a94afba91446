"""Netlink messages, put together and taken apart by hand (linux/netlink.h). Pure.

    message   = length u32 | kind u16 | flags u16 | sequence u32 | port u32 | payload
    attribute = length u16 | kind u16 | payload, filled up to 4 bytes

Numbers are in the machine's order; lengths include the heads.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

from oncall.core.errors import BadInput

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
