"""Text that a terminal or a viewer cut at a fixed width, through words: its lines are joined."""

from __future__ import annotations

import re

_NARROWEST, _WIDEST = 60, 250  # columns; wider lines are as their program wrote them
_FULL_LINES = 3  # of the same, greatest width: by chance two have it
_START = 4  # characters by which lines of one form are alike, a number counting as one
_NUMBER = re.compile(r"\d+")


def width(text: bytes) -> int | None:
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
