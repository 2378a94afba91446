"""One rank in full, as lines of a pane."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

from oncall.console.world import RankCard, Table
from oncall.core.printable import clean, short
from oncall.report.words import frame_phrase
from oncall.tui.models.cells import cell_len, cut, padded

Part = Literal["heading", "label", "text", "muted"]
Line = tuple[tuple[Part, str], ...]

_MOST_OPERATIONS = 40


def card_lines(card: RankCard, width: int) -> tuple[Line, ...]:
    """The card's lines, cut to `width` columns: facts, stack, most recent operations."""
    return tuple(_cut(line, width) for line in _lines(card))


def _lines(card: RankCard) -> Iterator[Line]:
    yield (("heading", f"Rank {card.rank}"),)
    widest = max((cell_len(short(label)) for label, _ in card.facts), default=0)
    for label, value in card.facts:
        yield ("label", padded(short(label), widest) + "  "), ("text", clean(value))
    if card.stack:
        yield ()
        yield (("heading", "Where its program stood"),)
        for frame in card.stack:
            phrase, library = frame_phrase(frame)
            yield (("muted" if library else "text", f"  {phrase}"),)
    yield ()
    if not card.operations.rows:
        yield (("muted", "No operation of it was recorded."),)
        return
    yield (("heading", "Operations, newest first"),)
    for number, line in enumerate(aligned(card.operations, _MOST_OPERATIONS)):
        yield (("label" if not number else "text", line),)
    if (more := card.operations.total - min(len(card.operations.rows), _MOST_OPERATIONS)) > 0:
        yield (("muted", f"and {more:,} more"),)


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


def _cut(line: Line, width: int) -> Line:
    left, parts = width, []
    for part, text in line:
        text = cut(text, left)
        parts.append((part, text))
        left -= cell_len(text)
    return tuple(parts)
