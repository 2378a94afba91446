"""Reads a log block by block and gives the lines that hold a word of any recogniser."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from oncall.core.errors import Unreadable
from oncall.importers.bounds import DEFAULT, Bounds, Meter
from oncall.importers.files import Stream, uncoloured
from oncall.importers.logs.clock import STAMP
from oncall.importers.logs.needles import Needles

# Text that a terminal or a viewer cut at a fixed width, through words: its lines are joined.


_NARROWEST, _WIDEST = 60, 250  # columns; wider lines are as their program wrote them
_FULL_LINES = 3  # of the same, greatest width: by chance two have it
_START = 4  # characters by which lines of one form are alike, a number counting as one
_NUMBER = re.compile(r"\d+")


def cut_width(text: bytes) -> int | None:
    """The width at which the text is cut, or None: no line is longer, several are as long, and what
    follows these does not begin as other lines do."""
    lines = text.decode("utf-8", "replace").splitlines()
    widest = max(map(len, lines), default=0)
    if not _NARROWEST <= widest <= _WIDEST:
        return None
    full = [len(line) == widest for line in lines]
    below = [line for line, cut in zip(lines[1:], full, strict=False) if cut and line]
    if sum(full) < _FULL_LINES or not below:
        return None
    starts = {_start(line) for line, cut in zip(lines[1:], full, strict=False) if not cut}
    starts.add(_start(lines[0]))
    alike = sum(_start(line) in starts for line in below)
    return widest if 5 * alike <= len(below) else None


def _start(line: str) -> str:
    """How a line begins, whichever rank or host its prefix names, padded or not."""
    return _NUMBER.sub("0", line.lstrip())[:_START]


def joined(text: bytes, columns: int) -> tuple[bytes, list[int]]:
    """The text with its cut lines joined, and where in it breaks were taken out, in order."""
    parts: list[bytes] = []
    cuts: list[int] = []
    at = 0
    for line in text.splitlines(keepends=True):
        bare = line.rstrip(b"\r\n")
        if len(bare.decode("utf-8", "replace")) == columns:
            line = bare
            cuts.append(at + len(bare))
        parts.append(line)
        at += len(line)
    return b"".join(parts), cuts


_BLOCK_BYTES = 4 << 20
_AHEAD_BYTES = 16 << 10  # what is kept of a block, so that lines see those below them
_BEGINNING = 1 << 20  # bytes of a log in which each process has said something
_MOST_LINE_BYTES = DEFAULT.text_line_bytes
_STAMP_BYTES = 64 << 10  # at either end of a block, searched for a stamp
_END_BYTES = 16 << 10  # of what follows the last progress: where a process says why it ends
_BREAK = re.compile(rb"[\r\n]")
# What torchrun puts before the lines of a process when it writes all into one log (`--tee`): its
# role, which is `default` unless given, and its local rank.
_LOCAL_RANK = re.compile(rb"^\[default(\d{1,3})\]:", re.MULTILINE)


@dataclass(frozen=True)
class Candidate:
    """A line that holds words: its number, its text, and the bits of who wants it."""

    number: int
    text: str
    bits: int
    above: Callable[[int], list[str]]
    below: Callable[[int], list[str]]


@dataclass
class Log:
    """A log file being read. `problem` says why it was not read to its end.

    `stamps` are the first and last dated stamp since `restart_stamps` was called last: how long a
    job went on writing after its last step. `first_stamp` is the first of all. `end` is the end of
    what follows the line for which `went_on` was called last. `local_ranks` are the processes that
    write in the beginning, where all of them do, if torchrun says whose line is whose.
    """

    path: Path
    needles: Needles
    bounds: Bounds = DEFAULT
    problem: str | None = None
    lines: int = 0
    has_text: bool = False
    stamps: list[str] = field(default_factory=list)
    first_stamp: str | None = None
    end: bytes = b""
    local_ranks: set[int] = field(default_factory=set)
    _since: int | None = None
    _progress: int | None = None
    _cuts: list[int] = field(default_factory=list)

    def restart_stamps(self) -> None:
        """Forget the stamps before the line that is being read."""
        self.stamps.clear()
        self._since = self._at

    def went_on(self) -> None:
        """The line that is being read shows that the job outlived what stands above it."""
        self.end = b""
        self._progress = self._past

    @property
    def first_of_end(self) -> int:
        """The number of the first line of `end`."""
        return self.lines + 1 + len(self._cuts) - self.end.count(b"\n")

    def of_part(self, part: bytes) -> Iterator[Candidate]:
        """The lines that hold words in a part of a log."""
        return self._block(part, True, Meter())

    def candidates(self) -> Iterator[Candidate]:
        """The lines that hold words, in order. A damaged or torn file gives what came before, and
        so does one whose lines take longer than a file may: each is looked at before it is given.
        """
        try:
            with Stream(self.path, self.bounds) as stream:
                rest = yield from self._blocks(stream)
                yield from self._block(rest, True, stream.meter)
        except Unreadable as error:
            self.problem = str(error)

    def _blocks(self, stream: Stream) -> Generator[Candidate, None, bytes]:
        """The candidates of all blocks; returns what is left of the last one."""
        rest = b""
        try:
            while data := stream.read(_BLOCK_BYTES):
                self.has_text = True
                if rest or len(data) == _BLOCK_BYTES:
                    rest = yield from self._block(uncoloured(rest + data), False, stream.meter)
                else:
                    rest = self._unwrapped(uncoloured(data))
        except Unreadable as error:
            self.problem = str(error)
        return rest

    def _unwrapped(self, text: bytes) -> bytes:
        """A whole log that fits in a block; only such are pasted from a terminal that cut lines."""
        columns = cut_width(text)
        if columns is not None:
            text, self._cuts = joined(text, columns)
        return text

    def _block(self, block: bytes, last: bool, meter: Meter) -> Generator[Candidate, None, bytes]:
        """The candidates of a block; returns what is left for the next one."""
        end = len(block)
        if not last:
            end = block.rfind(b"\n", 0, max(0, end - _AHEAD_BYTES)) + 1
            if not end:  # one line larger than a block: its beginning is read, cut
                end = max(0, len(block) - _AHEAD_BYTES)
        self._at, self._past, self._since, self._progress = 0, 0, None, None
        if not self.lines:
            self.local_ranks = {int(found) for found in _LOCAL_RANK.findall(block[:_BEGINNING])}
            first = STAMP.search(block[:_STAMP_BYTES])
            self.first_stamp = first[1].decode() if first else None
        counted = 0
        for start, stop, bits in self._lines(block[:end] if not last else block):
            self.lines += block.count(b"\n", counted, start)
            counted, self._at, self._past = start, start, stop
            meter.check_time()
            yield Candidate(
                self.lines + 1 + bisect_right(self._cuts, start),
                block[start:stop].decode("utf-8", "replace"),
                bits,
                lambda count, at=start: _above(block, at, count),  # type: ignore[misc]
                lambda count, at=stop: _below(block, at, count),  # type: ignore[misc]
            )
        self.lines += block.count(b"\n", counted, end)
        self._note_stamps(block[self._since or 0 : end])
        self.end = (self.end + block[self._progress or 0 : end])[-_END_BYTES:]
        return block[end:]

    def _lines(self, block: bytes) -> Iterator[tuple[int, int, int]]:
        """Start, end and bits of each line with words. A carriage return ends a line, too."""
        start = stop = -1
        bits = 0
        for place, wanted in self.needles.find(block):
            if place < stop:
                bits |= wanted
                continue
            if stop >= 0:
                yield start, stop, bits
            start, stop, bits = *_line_at(block, place), wanted
        if stop >= 0:
            yield start, stop, bits

    def _note_stamps(self, part: bytes) -> None:
        if not self.stamps and (first := STAMP.search(part[:_STAMP_BYTES])):
            self.stamps.append(first[1].decode())
        if self.stamps and (found := STAMP.findall(part[-_STAMP_BYTES:])):
            self.stamps[1:] = [found[-1].decode()]


def _line_at(block: bytes, place: int) -> tuple[int, int]:
    """The line around a place: from the last break before it to the next one, both bounded."""
    low = max(0, place - _MOST_LINE_BYTES)
    start = max(block.rfind(b"\n", low, place), block.rfind(b"\r", low, place)) + 1
    found = _BREAK.search(block, place, place + _MOST_LINE_BYTES)
    return max(start, low), found.start() if found else min(len(block), place + _MOST_LINE_BYTES)


def _above(block: bytes, at: int, count: int) -> list[str]:
    part = block[max(0, at - _MOST_LINE_BYTES) : at]
    return [line.decode("utf-8", "replace") for line in part.splitlines()[: -count - 1 : -1]]


def _below(block: bytes, at: int, count: int) -> list[str]:
    part = block[at : at + _AHEAD_BYTES].lstrip(b"\r\n").split(b"\n", count)
    return [line.decode("utf-8", "replace").rstrip("\r") for line in part[:count]]
