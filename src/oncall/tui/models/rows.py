"""Rows of evidence as cells to read: units spelled out, what all rows share said once. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from oncall.core.nodeset import fold_ranks
from oncall.core.printable import clean
from oncall.core.units import NS_PER_S, format_bytes, format_duration, format_rate
from oncall.views.snapshot import Table

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
