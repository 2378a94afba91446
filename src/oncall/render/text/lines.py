"""What pictures of text have in common: lines that fit, and an axis of time below lanes."""

from __future__ import annotations

from collections.abc import Iterator

from oncall.core.units import format_duration


def wrapped(text: str, width: int, indent: int = 4) -> Iterator[str]:
    """A line that is too long, cut at a word; what follows is indented."""
    for before, first, last in wrap_places(text, width, indent):
        yield " " * before + text[first:last]


def wrap_places(text: str, width: int, indent: int) -> Iterator[tuple[int, int, int]]:
    """Where a line is cut: for each piece its indent, and its first and last place in `text`."""
    least = 2 * indent
    before, first, end = 0, 0, len(text)
    while before + end - first > width:
        left = first - before  # where a line with its indent would begin
        cut = text.rfind(" ", left + least, left + width + 1)
        cut = cut if cut > left + least else left + width
        yield before, first, first + len(text[first:cut].rstrip())
        end = len(text.rstrip())
        first = cut + len(text[cut:]) - len(text[cut:].lstrip())
        before = indent
    yield before, first, end


def time_axis(first_ns: float, last_ns: float, columns: int) -> str:
    """Durations at the left, in the middle and at the right, as far as they fit."""
    line = [" "] * columns
    for share in (0.0, 0.25, 0.5, 0.75, 1.0):
        since_ns = first_ns + (last_ns - first_ns) * share
        text = format_duration(since_ns) if since_ns >= 1 else "0"
        at = min(round(columns * share), columns - len(text))
        if not "".join(line[max(at - 1, 0) : at + len(text) + 1]).strip():
            line[at : at + len(text)] = list(text)
    return "".join(line).rstrip()
