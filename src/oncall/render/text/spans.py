"""Lines of text with styles named by what they mean; a terminal chooses the colours."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Literal

from oncall.render.text.cells import cell_len, cut
from oncall.render.text.lines import wrap_places

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


def ascii_units(lines: Iterable[Line]) -> list[Line]:
    """Units in ASCII alone."""
    return [
        Line(tuple(Span(span.text.replace("µs", "us"), span.style) for span in one.spans))
        for one in lines
    ]
