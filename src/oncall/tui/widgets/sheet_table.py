"""Tables and cards to read: units spelled out, what all rows share said once; and rows of evidence
in a table that keeps the reader's row when they come anew."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, ClassVar

from rich.text import Text
from textual.binding import Binding, BindingType

from oncall.core.nodeset import fold_ranks
from oncall.core.printable import clean, short
from oncall.core.units import NS_PER_S, format_bytes, format_duration, format_rate
from oncall.render.text.lines import Line, Span, cell_len, line, padded
from oncall.tui.drawing.literal import LiteralTable
from oncall.views.ranks.rank_card import RankCard
from oncall.views.snapshot import Table
from oncall.views.words import frame_phrase


class SheetTable(LiteralTable):
    """A `Sheet`; at most some hundred rows. `h` and `l` move sideways, as in a list."""

    DEFAULT_CSS = """
    SheetTable { height: auto; max-height: 100%; background: $background; scrollbar-size: 1 1; }
    SheetTable:focus { background-tint: transparent; }
    SheetTable > .datatable--header { background: $background; color: $muted; text-style: none; }
    SheetTable > .datatable--cursor {
        background: $background; color: $foreground; text-style: none;
    }
    SheetTable:focus > .datatable--cursor { background: $band; text-style: bold; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("j", "cursor_down", "Down", show=False),
        Binding("k", "cursor_up", "Up", show=False),
        Binding("l", "scroll_right", "Right", show=False),
        Binding("h", "scroll_left", "Left", show=False),
        Binding("g", "scroll_top", "First", show=False),
        Binding("G", "scroll_bottom", "Last", show=False),
    ]

    def __init__(self, id: str | None = None) -> None:  # noqa: A002
        super().__init__(id=id, cursor_type="row", cell_padding=1)
        self._sheet: Sheet | None = None

    def show(self, sheet: Sheet) -> None:
        """Show these rows; the cursor stays at its row, the view where it was."""
        if sheet == self._sheet:
            return
        same = self._sheet is not None and self._sheet.columns == sheet.columns
        row, offset = (self.cursor_row, self.scroll_offset) if same else (0, (0, 0))
        self._sheet = sheet
        widths = [
            max(cell_len(cell) for cell in (column.title, *(row[index] for row in sheet.rows)))
            for index, column in enumerate(sheet.columns)
        ]
        titles, *rows = (
            list(map(_cell, sheet.columns, cells, widths))
            for cells in (tuple(column.title for column in sheet.columns), *sheet.rows)
        )
        self.fill(titles, {str(number): cells for number, cells in enumerate(rows)})
        if sheet.rows:
            self.move_cursor(row=min(row, len(sheet.rows) - 1), animate=False)
            self.scroll_to(*offset, animate=False)

    def row_text(self) -> str:
        """The row under the cursor, with tabs."""
        if self._sheet is None or not self._sheet.rows:
            return ""
        return "\t".join(self._sheet.rows[self.cursor_row])


def _cell(column: Column, text: str, width: int) -> Text:
    return Text(padded(text, width, right=True) if column.number else text, no_wrap=True)


UNKNOWN = "·"
_YEAR_2001_NS = 10**18
_MOST_CHARACTERS = 60
_MOST_ACROSS = 6  # columns of a row that stands alone
_RATE, _BYTES, _NS = "_bytes_per_s", "bytes", "_ns"


@dataclass(frozen=True)
class Column:
    """A column that differs between rows; numbers stand at the right."""

    title: str
    number: bool


@dataclass(frozen=True)
class Sheet:
    """A table as it is shown. `shared`: `job llama-70b, seq 14`, true of every row."""

    columns: tuple[Column, ...]
    rows: tuple[tuple[str, ...], ...]
    shared: str = ""
    counted: str = ""  # 15 rows; 200 of 4,095 rows shown

    def lines(self) -> str:
        """As text with tabs, for the clipboard."""
        header = "\t".join(column.title for column in self.columns)
        return "\n".join([header, *("\t".join(row) for row in self.rows)])


def sheet(table: Table) -> Sheet:
    """A table of evidence or of a fact, made readable."""
    table = _once(table)
    values = [[row[i] for row in table.rows] for i in range(len(table.columns))]
    texts = [
        [cell(name, value) for value in column]
        for name, column in zip(table.columns, values, strict=True)
    ]
    if len(table.rows) == 1 and len(table.columns) > _MOST_ACROSS:
        return _card(table.columns, [column[0] for column in texts], table.total)
    alike = [len(table.rows) > 1 and len(set(column)) == 1 for column in texts]
    if all(alike):  # at least something is to be seen of each row
        alike = [False] * len(alike)
    shared = [
        f"{name} {column[0]}"
        for name, column, same in zip(table.columns, texts, alike, strict=True)
        if same and column[0] != UNKNOWN
    ]
    kept = [index for index, same in enumerate(alike) if not same]
    return Sheet(
        columns=tuple(Column(_title(table.columns[i]), _numeric(values[i])) for i in kept),
        rows=tuple(tuple(texts[i][row] for i in kept) for row in range(len(table.rows))),
        shared=", ".join(shared),
        counted=_counted(len(table.rows), table.total),
    )


def _once(table: Table) -> Table:
    """Without columns that a join has brought a second time: `at_ns_1` beside an equal `at_ns`."""
    at = {name: place for place, name in enumerate(table.columns)}
    kept = []
    for name, place in at.items():
        first = at.get(name.rpartition("_")[0]) if name[-1:].isdigit() else None
        if first is None or any(row[place] != row[first] for row in table.rows):
            kept.append(place)
    rows = tuple(tuple(row[place] for place in kept) for row in table.rows)
    return Table(tuple(table.columns[place] for place in kept), rows, table.total)


def _card(names: Sequence[str], texts: Sequence[str], total: int) -> Sheet:
    """A row that is alone and broad: a line a column, what is unknown last."""
    known = [
        (_title(name), said) for name, said in zip(names, texts, strict=True) if said != UNKNOWN
    ]
    unknown = [_title(name) for name, said in zip(names, texts, strict=True) if said == UNKNOWN]
    rows = [*known, ("unknown", ", ".join(unknown))] if unknown else known
    columns = (Column("column", False), Column("value", False))
    return Sheet(columns, tuple(rows), counted=_counted(1, total))


def cell(name: str, value: Any) -> str:
    """A value as people write it, by the unit that its column's name ends in."""
    if value is None:
        return UNKNOWN
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | float):
        return _number(name, value)
    if isinstance(value, list | tuple):
        if value and all(isinstance(one, int) and not isinstance(one, bool) for one in value):
            return _short(fold_ranks(value))
        return _short(", ".join(cell("", one) for one in value))
    return _short(clean(str(value)))


def _number(name: str, value: int | float) -> str:
    if value != value:
        return UNKNOWN
    if name.endswith(_NS):
        return _instant(int(value)) if value >= _YEAR_2001_NS else format_duration(value)
    if name.endswith((_RATE, "bytes_per_second")):
        return format_rate(value)
    if name.endswith(_BYTES):
        return format_bytes(value)
    if name == "comm" or name.endswith("_comm"):
        return f"{int(value):#x}"
    return str(value) if isinstance(value, int) else f"{value:.4g}"


def _instant(at_ns: int) -> str:
    """To the millisecond: rows of one story lie close together."""
    moment = datetime.fromtimestamp(at_ns // NS_PER_S, UTC)
    return f"{moment:%H:%M:%S}.{at_ns % NS_PER_S // 10**6:03d}"


def _title(name: str) -> str:
    """Without the unit, which every cell spells."""
    return name.removesuffix(_NS) if name.endswith(_NS) else name


def _numeric(values: list[Any]) -> bool:
    known = [value for value in values if value is not None]
    return bool(known) and all(isinstance(v, int | float) and v is not True for v in known)


def _short(text: str) -> str:
    return text if len(text) <= _MOST_CHARACTERS else text[: _MOST_CHARACTERS - 1] + "…"


def _counted(shown: int, total: int) -> str:
    if not total:
        return "no rows: the query found nothing"
    rows = "row" if total == 1 else "rows"
    return f"{shown:,} of {total:,} {rows} shown" if shown < total else f"{total:,} {rows}"


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
    cells = [[_written(value) for value in row] for row in table.rows[:most]]
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


def _written(value: Any) -> str:
    if value is None:
        return "-"
    return short(f"{value:,}" if isinstance(value, int) else str(value))
