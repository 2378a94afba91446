"""The events of a Chrome trace, one by one, however large it is.

Only a window of the text is in memory. Damage has a place: where text is torn reading ends; where
one event is no valid JSON (Kineto does not escape every name) it is skipped.
"""

from __future__ import annotations

import codecs
import json
import re
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

GZIP = b"\x1f\x8b"

_CHUNK_BYTES = 1 << 20
_MOST_HEAD_BYTES = 1 << 17
# An error this near the end of the window may only mean that the rest is not read yet.
_LONGEST_STRING = 1 << 16
_LARGEST_VALUE = 1 << 28
_GAP = re.compile(r"[\s,]*")
_NEXT_EVENT = re.compile(r'\{\s*"(?:ph|cat)"\s*:')


def first_bytes(head: bytes) -> bytes:
    """What the beginning of a gzipped file unpacks to; nothing if it is damaged."""
    try:
        return zlib.decompressobj(wbits=31).decompress(head, _MOST_HEAD_BYTES)
    except zlib.error:
        return b""


class _Unpacker:
    """A gzipped file as a stream that gives all it can before it complains of a torn end."""

    def __init__(self, packed: IO[bytes]) -> None:
        self._packed = packed
        self._member = zlib.decompressobj(wbits=31)
        self._rest = b""

    def read(self, size: int) -> bytes:
        """Up to `size` bytes, none at the end. Raises zlib.error or EOFError at damage."""
        while True:
            data = self._rest or self._packed.read(size // 8)
            if self._member.eof:
                if not data.startswith(GZIP):
                    return b""
                self._member = zlib.decompressobj(wbits=31)
            unpacked = self._member.decompress(data, size)
            self._rest = self._member.unconsumed_tail or self._member.unused_data
            if unpacked:
                return unpacked
            if not data:
                raise EOFError("it ends before its last block")


class _TornError(Exception):
    """The text ends, or makes no sense any more, at a place."""


class TraceStream:
    """Iterates over the events of one trace.

    Afterwards `header` and `trailer` hold what stands before and behind the events, and `problem`
    what could not be read: where, and after how many events. Numbers with a fraction come as text,
    as a float cannot hold microseconds since 1970 to the nanosecond. Raises OSError if the file
    cannot be opened.
    """

    def __init__(self, path: Path) -> None:
        self.header: dict[str, Any] = {}
        self.trailer: dict[str, Any] = {}
        self.problem: str | None = None
        self.events = 0
        self._path = path
        self._decoder = json.JSONDecoder(parse_float=str)
        self._utf8 = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._text = ""
        self._at = 0
        self._before = 0  # characters dropped before the window
        self._ended = False
        self._unpacking: str | None = None
        self._skipped: list[int] = []

    def __iter__(self) -> Iterator[dict[str, Any]]:
        with self._path.open("rb") as raw:
            packed = raw.read(2) == GZIP
            raw.seek(0)
            self._file = _Unpacker(raw) if packed else raw
            try:
                yield from self._document()
            except _TornError as error:
                self.problem = f"torn after {self.events:,} events: {error}"
        if self._unpacking:
            self.problem = f"torn after {self.events:,} events: {self._unpacking}"
        if self._skipped and self.problem is None:
            self.problem = (
                f"{len(self._skipped):,} events are not valid JSON and were skipped, the first at "
                f"character {self._skipped[0]:,}"
            )

    # ---------------------------------------------------------------- grammar

    def _document(self) -> Iterator[dict[str, Any]]:
        self._expect("{")
        beside = self.header
        while self._next() != "}":
            name = self._value()
            self._expect(":")
            if name == "traceEvents" and self._next() == "[":
                self._at += 1
                yield from self._array()
                beside = self.trailer
            else:
                beside[str(name)] = self._value()

    def _array(self) -> Iterator[dict[str, Any]]:
        while self._next() != "]":
            event = self._event()
            if isinstance(event, dict):
                self.events += 1
                yield event
        self._at += 1

    def _event(self) -> Any:
        """The next event; None for one that had to be skipped."""
        try:
            return self._value()
        except _TornError:
            place = self._before + self._at
            if not self._find_next_event():
                raise
            self._skipped.append(place)
            return None

    def _find_next_event(self) -> bool:
        at = self._at + 1
        while True:
            found = _NEXT_EVENT.search(self._text, at)
            if found:
                self._at = found.start()
                return True
            kept = min(64, len(self._text) - at)
            at = self._at = len(self._text) - kept
            if not self._more():
                return False
            at = self._at

    def _expect(self, character: str) -> None:
        if self._next() != character:
            raise _TornError(self._place(f"no {character!r}"))
        self._at += 1

    def _next(self) -> str:
        """The next character that is neither space nor comma; it stays the next one."""
        while True:
            gap = _GAP.match(self._text, self._at)
            self._at = gap.end() if gap else self._at
            if self._at < len(self._text):
                return self._text[self._at]
            if not self._more():
                raise _TornError(self._place("it ends"))

    def _value(self) -> Any:
        while True:
            self._next()
            try:
                value, end = self._decoder.raw_decode(self._text, self._at)
            except json.JSONDecodeError as error:
                near = len(self._text) - error.pos < _LONGEST_STRING
                small = len(self._text) - self._at < _LARGEST_VALUE
                if near and small and self._more():
                    continue
                raise _TornError(self._place(error.msg, error.pos)) from error
            except RecursionError as error:
                raise _TornError(self._place("nested too deeply")) from error
            if end == len(self._text) and self._more():  # a number may go on
                continue
            self._at = end
            return value

    # ------------------------------------------------------------------- text

    def _more(self) -> bool:
        """Read on; False at the end. What lies before the place reached is dropped."""
        if self._ended:
            return False
        try:
            chunk = self._file.read(_CHUNK_BYTES)
        except (EOFError, zlib.error, OSError) as error:
            self._unpacking = f"cannot be unpacked further: {error}"
            chunk = b""
        self._ended = not chunk
        self._before += self._at
        self._text = self._text[self._at :] + self._utf8.decode(chunk, final=not chunk)
        self._at = 0
        return bool(chunk)

    def _place(self, what: str, at: int | None = None) -> str:
        where = self._before + (self._at if at is None else at)
        return f"{what} at character {where:,}"
