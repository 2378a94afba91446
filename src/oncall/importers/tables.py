"""Tables in files (CSV, Parquet, JSON lines), read through DuckDB: bounded in rows, memory, time.

    with Database() as db:
        problem = db.load("loaded", path, CSV)       # a table `loaded`, and what was not read of it
        db.con.execute("SELECT ... FROM loaded")

The file is a recording that others made: names in it are no patterns and no SQL, and nothing but
the file itself is read.
"""

from __future__ import annotations

import glob
import os
import re
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import duckdb

from oncall.core.errors import Unreadable
from oncall.evidence.statements import connect
from oncall.importers.bounds import DEFAULT, Bounds, memory_bytes, size
from oncall.importers.files import Stream, head, is_packed, open_file

PARQUET = b"PAR1"
_PREFIX = re.compile(r"^(?:\w+ )+Error: ")
_DATABASE_FACTOR = 4  # bytes of a table in the database for each byte of text
_VALUE_BYTES = 64  # of a value as a Python object, and its place in an array


# How DuckDB reads text; `{path}` stands for the file. Not left to be guessed: a last line that is
# broken off would make one column of all.
CSV = (
    "read_csv({path}, delim = ',', header = true, null_padding = true, all_varchar = true, "
    f"max_line_size = {DEFAULT.line_bytes})"
)


def csv_columns(head: bytes) -> set[str]:
    """The names in the heading of a CSV file."""
    heading = head.split(b"\n", 1)[0].decode("utf-8", "replace")
    return {word.strip().strip('"').lstrip("\ufeff") for word in heading.split(",")}


def json_lines(columns: dict[str, str]) -> str:
    """Lines of JSON with these columns (name -> type); lines that do not fit give NULL."""
    shape = ", ".join(f"{name}: '{kind}'" for name, kind in columns.items())
    return (
        "read_json({path}, format = 'newline_delimited', ignore_errors = true, "
        f"compression = 'none', maximum_object_size = {DEFAULT.line_bytes}, "
        "columns = {{" + shape + "}})"
    )


class Database:
    """A database in memory to load recordings into. A context manager."""

    def __init__(self, bounds: Bounds = DEFAULT) -> None:
        self._bounds = bounds
        half = max(64, memory_bytes(bounds) >> 21)  # the other is for what is fetched from it
        self.con = connect(memory_limit=f"{half}MiB", temp_directory="")

    def __enter__(self) -> Database:
        return self

    def __exit__(self, *_: object) -> None:
        self.con.close()

    def load(
        self,
        table: str,
        path: Path,
        text: str = CSV,
        select: str = "SELECT * FROM {rows}",
        parameters: Sequence[Any] = (),
    ) -> str | None:
        """Put the rows of a Parquet file, or of one in the format `text`, into a new `table`, or
        at the end of one that there is; returns why there are not more, if so.

        `select` makes the table's columns of the file's `{rows}`. Raises Unreadable where nothing
        could be read.
        """
        try:
            if is_packed(path):
                with _unpacked(path, self._bounds) as (plain, problem):
                    return self._fill(table, text, plain, select, parameters) or problem
            if head(path, len(PARQUET)) == PARQUET:
                rows = self._parquet_rows(path)
                if rows > self._bounds.part_rows:
                    raise Unreadable(
                        f"{rows:,} rows, more than the {self._bounds.part_rows:,} that are read "
                        "of one file; record a shorter window"
                    )
                self._fill(table, "read_parquet({path})", path, select, parameters)
                return None
            return self._fill(table, text, path, select, parameters)
        except duckdb.Error as error:
            raise Unreadable(reason(error)) from error

    def parquet_columns(self, path: Path) -> list[str]:
        """The names of a Parquet file's columns, none if it is damaged."""
        try:
            with self.deadline(path):
                rows = self.con.execute(
                    "SELECT name FROM parquet_schema(?) LIMIT 10000", [_place(path)]
                ).fetchall()
        except (duckdb.Error, Unreadable):
            return []
        return [name for (name,) in rows]

    def _parquet_rows(self, path: Path) -> int:
        with self.deadline(path):
            ((rows,),) = self.con.execute(
                # The count for the whole file is never checked; those of row groups are read.
                "SELECT sum(rows) FROM (SELECT any_value(row_group_num_rows) AS rows "
                "FROM parquet_metadata(?) GROUP BY row_group_id)",
                [_place(path)],
            ).fetchall()
        return int(rows or 0)

    def _fill(
        self, table: str, reader: str, path: Path, select: str, parameters: Sequence[Any]
    ) -> str | None:
        most = self._bounds.part_rows
        rows = f"(SELECT * FROM {reader.format(path='?')} LIMIT {most})"
        query = select.replace("{rows}", rows)
        known = self.con.execute(
            "SELECT 1 FROM duckdb_tables() WHERE table_name = ?", [table]
        ).fetchall()
        into = f"INSERT INTO {table}" if known else f"CREATE TABLE {table} AS"
        with self.deadline(path):
            made = self.con.execute(f"{into} {query}", [*parameters, _place(path)]).fetchall()
        return f"no more than the first {most:,} rows are read" if made[0][0] >= most else None

    def columns(self, sql: str, parameters: Any = None) -> dict[str, Any]:
        """A query's columns as arrays. Raises Unreadable for more than fits in memory."""
        self.con.execute(f"CREATE OR REPLACE TEMP TABLE fetched AS {sql}", parameters)
        rows, values = self.con.execute(
            "SELECT count(*), count(*) * (SELECT count(*) FROM duckdb_columns() "
            "WHERE table_name = 'fetched') FROM fetched"
        ).fetchall()[0]
        if values * _VALUE_BYTES > memory_bytes(self._bounds):
            raise Unreadable(f"its {rows:,} rows are more than fit into memory here")
        return dict(self.con.execute("FROM fetched").fetchnumpy())

    @contextmanager
    def deadline(self, *paths: Path) -> Iterator[None]:
        """Interrupts what runs within when it has taken longer than the files explain."""
        file_bytes = 0
        for path in paths:
            with suppress(Unreadable), open_file(path) as file:
                file_bytes += os.fstat(file.fileno()).st_size
        # Parquet holds a hundred times its size; a query has all cores, and only a wall clock.
        seconds = 2 * self._bounds.grace_s + 50 * file_bytes / self._bounds.least_bytes_per_cpu_s
        fired = threading.Event()

        def interrupt() -> None:
            fired.set()
            self.con.interrupt()

        timer = threading.Timer(seconds, interrupt)
        timer.daemon = True
        timer.start()
        try:
            yield
        except duckdb.InterruptException as error:
            if not fired.is_set():
                raise
            raise Unreadable(f"reading it took longer than {seconds:.0f} s") from error
        finally:
            timer.cancel()


@contextmanager
def _unpacked(path: Path, bounds: Bounds) -> Iterator[tuple[Path, str | None]]:
    """A gzipped file, unpacked as far as the bounds go, and why not further."""
    with tempfile.TemporaryDirectory(prefix="oncall-") as folder, Stream(path, bounds) as stream:
        plain, problem = Path(folder, path.name.removesuffix(".gz") or "table"), None
        most = memory_bytes(bounds) // _DATABASE_FACTOR
        try:
            with plain.open("wb") as out:
                while data := stream.read(1 << 20):
                    out.write(data)
                    if out.tell() > most:
                        problem = f"only the first {size(out.tell())} of its text were read"
                        break
        except Unreadable as error:
            problem = str(error)
        with suppress(OSError):
            if plain.stat().st_size:
                yield plain, problem
                return
        raise Unreadable(problem or "empty file")


def reason(error: duckdb.Error | Unreadable) -> str:
    """What was wrong, as one line and without DuckDB's name for the kind of its error."""
    return _PREFIX.sub("", next(iter(str(error).strip().splitlines()), type(error).__name__))


def _place(path: Path) -> str:
    """The file's name as DuckDB takes it, which would read a pattern in it."""
    return glob.escape(str(path.absolute()))
