"""Text in the columns of a terminal, where a Chinese or Japanese character takes two: lines that
fit, with styles named by what they mean (a terminal chooses the colours), and an axis of time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Literal

from rich.cells import cell_len, set_cell_size

from oncall.core.printable import harmless
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


__all__ = ["cell_len", "cut", "padded"]


def cut(text: str, columns: int) -> str:
    """`text` harmless on a line, ended by `…` if it needs more than `columns`."""
    text = harmless(text).replace("\n", " ")
    if cell_len(text) <= columns:
        return text
    return set_cell_size(text, max(columns - 1, 0)).rstrip() + "…" if columns > 0 else ""


def padded(text: str, columns: int, right: bool = False) -> str:
    """`text` with spaces up to `columns`, before it if it stands at the right."""
    spaces = " " * max(columns - cell_len(text), 0)
    return spaces + text if right else text + spaces


Style = Literal["text", "heading", "label", "dim", "fault", "way", "member"]
"""`fault`: what a picture is about; `way`: between it and its victim; `member`: a flow of the
collective; `label`: what stands before a value; `dim`: what is read last."""


@dataclass(frozen=True)
class Span:
    """Text of one style."""

    text: str
    style: Style = "text"


@dataclass(frozen=True)
class Line:
    """Spans from left to right."""

    spans: tuple[Span, ...] = ()

    def __str__(self) -> str:
        return "".join(span.text for span in self.spans)

    def first(self, characters: int) -> Line:
        """Its first characters."""
        left, spans = characters, []
        for span in self.spans:
            spans.append(Span(span.text[: max(left, 0)], span.style))
            left -= len(span.text)
        return Line(tuple(spans))

    def cut(self, width: int) -> Line:
        """The line in at most `width` columns."""
        left, spans = width, []
        for span in self.spans:
            text = cut(span.text, left)
            spans.append(Span(text, span.style))
            left -= cell_len(text)
        return Line(tuple(spans))


def line(text: str, style: Style = "text") -> Line:
    """A line of one style."""
    return Line((Span(text, style),))


def joined(parts: Sequence[Line], between: str) -> Line:
    """Lines one after another, `between` them a text."""
    spans: list[Span] = []
    for part in parts:
        spans += [Span(between), *part.spans] if spans else part.spans
    return Line(tuple(spans))


def wrapped_line(one: Line, width: int, indent: int = 4) -> list[Line]:
    """`lines.wrapped` of a line with styles."""
    styles = [span.style for span in one.spans for _ in span.text]
    text = str(one)
    return [
        Line((Span(" " * before), *line_of(text[first:last], styles[first:last]).spans))
        if before
        else line_of(text[first:last], styles[first:last])
        for before, first, last in wrap_places(text, width, indent)
    ]


def line_of(text: str, styles: Sequence[Style]) -> Line:
    """A line of which each character has a style."""
    spans, at = [], 0
    for style, group in groupby(styles):
        end = at + len(list(group))
        spans.append(Span(text[at:end], style))
        at = end
    return Line(tuple(spans))


def plain_lines(lines: Iterable[Line]) -> list[str]:
    """The text alone."""
    return [str(one) for one in lines]
