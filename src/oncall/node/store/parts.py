"""Parquet that others wrote, into evidence tables: strict, bounded, each part on its own."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from oncall.core import room
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
_FILES_AT_ONCE = 64  # of one query
PARQUET = "FORMAT parquet, COMPRESSION zstd, PARQUET_VERSION v2"
# Of one part, and of one query. After so many DuckDB is asked to pack them: columns that nobody
# fills, most of them, else take as much memory as the others; and packing after fewer takes longer
# than loading (docs/performance.md).
ROWS_IN_A_PART = 500_000


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
    unpacked = 0

    def insert(table: str, some: Sequence[ReceivedPart]) -> None:
        nonlocal unpacked
        present, read = _checked(con, table, some)
        columns = ", ".join(
            _cast(column) if column.name in present else f"NULL::{column.type}"
            for column in BY_NAME[table].columns
        )
        con.execute(f"INSERT INTO {table} SELECT {columns} FROM {read}", [_files(some)])
        unpacked += sum(part.rows for part in some)
        if unpacked >= ROWS_IN_A_PART:
            con.execute("CHECKPOINT")
            unpacked = 0

    return _take(parts, insert, _FILES_AT_ONCE)


def join_parts(
    con: duckdb.DuckDBPyConnection, parts: Sequence[ReceivedPart], folder: Path
) -> tuple[list[ReceivedPart], list[BadPart]]:
    """The same rows in as few parts as can be, files in `folder`, and what was left out. `con`
    holds none of them."""
    from oncall.evidence.statements import quoted

    joined: list[ReceivedPart] = []

    def join(table: str, some: Sequence[ReceivedPart]) -> None:
        present, read = _checked(con, table, some)
        columns = ", ".join(
            f'{_cast(column)} AS "{column.name}"'
            for column in BY_NAME[table].columns
            if column.name in present
        )
        path = folder / f"joined{len(joined)}.parquet"
        ((rows,),) = con.execute(
            f"COPY (SELECT {columns} FROM {read}) TO '{quoted(path)}' ({PARQUET})", [_files(some)]
        ).fetchall()
        joined.append(ReceivedPart(some[0].sender, table, rows, path, len(some)))

    return joined, _take(parts, join, len(parts))


def _take(
    parts: Iterable[ReceivedPart],
    take: Callable[[str, Sequence[ReceivedPart]], None],
    files_at_once: int,
) -> list[BadPart]:
    """Have `take` take the parts of a table, many at once; what is bad is left out and returned."""
    # What a newer node sends beyond our schema is of no use here.
    known = [part for part in parts if part.table in BY_NAME and part.rows]
    bad = _too_many(known)
    left_out = {id(one.part) for one in bad}
    by_table: dict[str, list[ReceivedPart]] = defaultdict(list)
    for part in known:
        if id(part) not in left_out:
            by_table[part.table].append(part)
    for table, found in by_table.items():
        for some in _portions(found, files_at_once):
            bad += _take_or_halve(table, some, take)
    return bad


def _portions(
    parts: Sequence[ReceivedPart], files_at_once: int
) -> Iterator[Sequence[ReceivedPart]]:
    """The parts in groups for one query each."""
    first = rows = 0
    for at, part in enumerate(parts):
        if at > first and (rows + part.rows > ROWS_IN_A_PART or at - first >= files_at_once):
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


def _take_or_halve(
    table: str,
    parts: Sequence[ReceivedPart],
    take: Callable[[str, Sequence[ReceivedPart]], None],
) -> Iterator[BadPart]:
    """Take together what can be, and by halves what cannot."""
    import duckdb

    try:
        take(table, parts)
    except (duckdb.Error, ValueError) as error:
        if len(parts) == 1:
            yield BadPart(parts[0], _reason(error))
            return
        middle = len(parts) // 2
        yield from _take_or_halve(table, parts[:middle], take)
        yield from _take_or_halve(table, parts[middle:], take)


def _checked(
    con: duckdb.DuckDBPyConnection, table: str, parts: Sequence[ReceivedPart]
) -> tuple[set[str], str]:
    """The columns that are there, and what to read them from, a parameter being the files. Raises
    ValueError for parts that are not what they say."""
    files = _files(parts)
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
    columns = {column.name: column for column in BY_NAME[table].columns}
    present = columns.keys() & {name for name, *_ in described}
    if not present:
        raise ValueError(f"no column of {table}")
    if rows > _FEW_ROWS:
        _check_text(con, [name for name in present if _is_text(columns[name])], read, files)
    return present, read


def _files(parts: Sequence[ReceivedPart]) -> list[str]:
    return [str(part.path) for part in parts]


def _cast(column: Column) -> str:
    return f'"{column.name}"::{column.type}'


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
