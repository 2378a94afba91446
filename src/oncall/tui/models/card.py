"""One rank in full, as lines of a pane."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from oncall.core.printable import clean, short
from oncall.render.text.lines import Line, Span, cell_len, line, padded
from oncall.views.ranks.rank_card import RankCard
from oncall.views.snapshot import Table
from oncall.views.words import frame_phrase

_MOST_OPERATIONS = 40


def card_lines(card: RankCard, width: int) -> tuple[Line, ...]:
    """The card's lines, cut to `width` columns: facts, stack, most recent operations."""
    return tuple(one.cut(width) for one in _lines(card, width))


def _lines(card: RankCard, width: int) -> Iterator[Line]:
    yield line(f"Rank {card.rank}", "heading")
    widest = max((cell_len(short(label)) for label, _ in card.facts), default=0)
    for label, value in card.facts:
        yield Line((Span(padded(short(label), widest) + "  ", "label"), Span(clean(value))))
    if card.stack is not None:
        yield Line()
        yield line(f"Stack, {clean(card.stack.at)}", "heading")
        for frame in card.stack.frames:
            phrase, library = frame_phrase(clean(frame))
            yield line(f"  {fitting_frame(phrase, width - 2)}", "dim" if library else "text")
    yield from table_lines(
        card.operations, _MOST_OPERATIONS, "Operations, newest first", "No operations recorded."
    )


def table_lines(table: Table, most: int, title: str, none: str) -> Iterator[Line]:
    """A part of a card: the first rows of a table below its title, or that there are `none`."""
    yield Line()
    if not table.rows:
        yield line(none, "dim")
        return
    yield line(title, "heading")
    for number, text in enumerate(aligned(table, most)):
        yield line(text, "text" if number else "label")
    if (more := table.total - min(len(table.rows), most)) > 0:
        yield line(f"and {more:,} more", "dim")


def fitting_frame(phrase: str, columns: int) -> str:
    """A frame in so many columns: of its path the file and the line stay."""
    name, at, path = phrase.rpartition(" at ")
    if cell_len(phrase) <= columns or not at:
        return phrase
    while "/" in path.removeprefix("…/") and cell_len(f"{name}{at}{path}") > columns:
        path = "…/" + path.removeprefix("…/").partition("/")[2]
    return f"{name}{at}{path}"


def aligned(table: Table, most: int) -> list[str]:
    """The header and the first rows of a table, each column as wide as it needs; numbers right."""
    cells = [[_cell(value) for value in row] for row in table.rows[:most]]
    widths = [
        max(map(cell_len, (name, *(row[place] for row in cells))))
        for place, name in enumerate(table.columns)
    ]
    right = [
        bool(table.rows) and isinstance(table.rows[0][place], (int, float))
        for place in range(len(table.columns))
    ]
    return [
        "  ".join(
            padded(text, width, right=number)
            for text, width, number in zip(row, widths, right, strict=True)
        ).rstrip()
        for row in (list(table.columns), *cells)
    ]


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    return short(f"{value:,}" if isinstance(value, int) else str(value))
