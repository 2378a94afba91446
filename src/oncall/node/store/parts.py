"""Parquet that others wrote, into evidence tables: strict, bounded, each part on its own."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from oncall.evidence import room
from oncall.evidence.schema import BY_NAME, Column

if TYPE_CHECKING:
    import duckdb

# Of all parts of one sender: a node is asked for 400,000 operations at most, and sends as many rows
# of its other tables; more is no evidence but an attack or a fault.
MOST_ROWS = 5_000_000
# Text in them, unpacked: a few bytes of Parquet can stand for gigabytes. Names and stacks of a
# node take a megabyte. It is measured only where there are many rows to repeat it.
MOST_TEXT_BYTES = 512 * 2**20
_FEW_ROWS = 50_000
_AT_ONCE = 64  # files of one query
_ROWS_AT_ONCE = 200_000  # of one query, but for a file with more: those of gateways are large


@dataclass(frozen=True)
class ReceivedPart:
    """One part on disk: rows of `table` from `sender`, as many as it says; a gateway sends those of
    several `nodes`."""

    sender: str
    table: str
    rows: int
    path: Path
    nodes: int = 1


@dataclass(frozen=True)
class BadPart:
    """A part that was left out, and why."""

    part: ReceivedPart
    problem: str


def load_parts(con: duckdb.DuckDBPyConnection, parts: Iterable[ReceivedPart]) -> list[BadPart]:
    """Add the rows of all parts to the evidence tables in `con`.

    Only columns of the schema are taken, each cast to its type; what lacks is NULL. A part that
    cannot be read, of whatever reason, is left out and returned; the others are in. So are all
    parts of a sender that sends more rows than a node has: half of them would look like missing
    data.
    """
    # What a newer node sends beyond our schema is of no use here.
    known = [part for part in parts if part.table in BY_NAME and part.rows]
    bad = _too_many(known)
    left_out = {id(one.part) for one in bad}
    by_table: dict[str, list[ReceivedPart]] = defaultdict(list)
    for part in known:
        if id(part) not in left_out:
            by_table[part.table].append(part)
    for table, found in by_table.items():
        for some in _portions(found):
            bad += _load(con, table, some)
    return bad


def _portions(parts: Sequence[ReceivedPart]) -> Iterator[Sequence[ReceivedPart]]:
    """The parts in groups for one query each: memory follows the rows that one inserts."""
    first = rows = 0
    for at, part in enumerate(parts):
        if at > first and (at - first >= _AT_ONCE or rows + part.rows > _ROWS_AT_ONCE):
            yield parts[first:at]
            first, rows = at, 0
        rows += part.rows
    if parts:
        yield parts[first:]


def _too_many(parts: Sequence[ReceivedPart]) -> list[BadPart]:
    """The parts of senders that send too much, alone or together: those with most go first."""
    rows: dict[str, int] = defaultdict(int)
    nodes: dict[str, int] = {}
    for part in parts:
        rows[part.sender] += part.rows
        nodes[part.sender] = part.nodes
    together = sum(rows.values())
    problems: dict[str, str] = {}
    for sender, count in sorted(rows.items(), key=lambda item: -item[1]):
        if count > (most := MOST_ROWS * nodes[sender]):
            problems[sender] = f"{count:,} rows, more than the {most:,} that a node may send"
        elif together > (most := room.most_rows()):
            problems[sender] = f"no room for its {count:,} rows: {most:,} of all nodes fit here"
        else:
            break
        together -= count
    return [BadPart(part, problems[part.sender]) for part in parts if part.sender in problems]


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
    announced = sum(part.rows for part in parts)
    # The count for the whole file is never checked; those of its row groups are what is read.
    ((rows,),) = con.execute(
        "SELECT sum(rows)::BIGINT FROM (SELECT any_value(row_group_num_rows) AS rows "
        "FROM parquet_metadata(?) GROUP BY file_name, row_group_id)",
        [files],
    ).fetchall()
    if rows != announced:
        raise ValueError(f"{rows} rows of {table}, {announced} were announced")
    read = "read_parquet(?, union_by_name = true, hive_partitioning = false)"
    described = con.execute(f"DESCRIBE SELECT * FROM {read}", [files]).fetchall()
    present = {name for name, *_ in described}
    columns = BY_NAME[table].columns
    if not present & {column.name for column in columns}:
        raise ValueError(f"no column of {table}")
    select = ", ".join(
        f'"{c.name}"::{c.type}' if c.name in present else f"NULL::{c.type}" for c in columns
    )
    if rows > _FEW_ROWS:
        _check_text(
            con, [c.name for c in columns if c.name in present and _is_text(c)], read, files
        )
    con.execute(f"INSERT INTO {table} SELECT {select} FROM {read}", [files])


def _is_text(column: Column) -> bool:
    return column.type.startswith("VARCHAR")


def _check_text(
    con: duckdb.DuckDBPyConnection, columns: Sequence[str], read: str, files: Sequence[str]
) -> None:
    total = " + ".join(f'coalesce(sum(strlen("{name}"::VARCHAR)), 0)' for name in columns) or "0"
    ((text_bytes,),) = con.execute(f"SELECT {total} FROM {read}", [files]).fetchall()
    if text_bytes > MOST_TEXT_BYTES:
        raise ValueError(f"{text_bytes >> 20} MiB of text in it")


def _reason(error: Exception) -> str:
    """One line of it, without the path of a file that is gone when somebody reads this."""
    return (str(error).splitlines() or [type(error).__name__])[0][:200]
