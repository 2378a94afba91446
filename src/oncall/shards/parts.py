"""Parquet that others wrote, into evidence tables: strict, bounded, each part on its own."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from oncall.evidence.schema import BY_NAME

if TYPE_CHECKING:
    import duckdb

MOST_ROWS = 5_000_000  # of one part; more is no evidence but an attack or a fault
_AT_ONCE = 64  # files of one query


@dataclass(frozen=True)
class ReceivedPart:
    """One part on disk: rows of `table` from `sender`, as many as it says."""

    sender: str
    table: str
    rows: int
    path: Path


@dataclass(frozen=True)
class BadPart:
    """A part that was left out, and why."""

    part: ReceivedPart
    problem: str


def load_parts(con: duckdb.DuckDBPyConnection, parts: Iterable[ReceivedPart]) -> list[BadPart]:
    """Add the rows of all parts to the evidence tables in `con`.

    Only columns of the schema are taken, each cast to its type; what lacks is NULL. A part that
    cannot be read, of whatever reason, is left out and returned; the others are in.
    """
    by_table: dict[str, list[ReceivedPart]] = defaultdict(list)
    for part in parts:
        # What a newer node tells beyond our schema is of no use here.
        if part.table in BY_NAME and part.rows:
            by_table[part.table].append(part)
    bad: list[BadPart] = []
    for table, found in by_table.items():
        for first in range(0, len(found), _AT_ONCE):
            bad += _load(con, table, found[first : first + _AT_ONCE])
    return bad


def _load(
    con: duckdb.DuckDBPyConnection, table: str, parts: Sequence[ReceivedPart]
) -> Iterator[BadPart]:
    """Load together what can be, and by halves what cannot."""
    import duckdb

    try:
        _insert(con, table, parts)
    except (duckdb.Error, ValueError) as error:
        if len(parts) == 1:
            yield BadPart(parts[0], _reason(error))
            return
        middle = len(parts) // 2
        yield from _load(con, table, parts[:middle])
        yield from _load(con, table, parts[middle:])


def _insert(con: duckdb.DuckDBPyConnection, table: str, parts: Sequence[ReceivedPart]) -> None:
    files = [str(part.path) for part in parts]
    told = sum(part.rows for part in parts)
    ((rows,),) = con.execute(
        "SELECT sum(num_rows)::BIGINT FROM parquet_file_metadata(?)", [files]
    ).fetchall()
    if rows != told or max(part.rows for part in parts) > MOST_ROWS:
        raise ValueError(f"{rows} rows of {table} where {told} were told")
    read = "read_parquet(?, union_by_name = true, hive_partitioning = false)"
    described = con.execute(f"DESCRIBE SELECT * FROM {read}", [files]).fetchall()
    present = {name for name, *_ in described}
    columns = BY_NAME[table].columns
    if not present & {column.name for column in columns}:
        raise ValueError(f"no column of {table}")
    select = ", ".join(
        f'"{c.name}"::{c.type}' if c.name in present else f"NULL::{c.type}" for c in columns
    )
    con.execute(f"INSERT INTO {table} SELECT {select} FROM {read}", [files])


def _reason(error: Exception) -> str:
    """One line of it, without the path of a file that is gone when somebody reads this."""
    return (str(error).splitlines() or [type(error).__name__])[0][:200]
