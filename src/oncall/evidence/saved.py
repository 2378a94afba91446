"""The file of a saved incident, `*.oncall`: written from a DuckDB, and copied or viewed in one.

A file may come from anywhere: its version and its number of rows are checked before it is read,
and none of its views is followed.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import duckdb

from oncall import __version__
from oncall.core import room
from oncall.core.errors import BadInput
from oncall.evidence.schema import BY_NAME, SCHEMA_VERSION, TABLES, Table
from oncall.evidence.statements import quoted, reason

ROW_GROUP = 122_880  # rows, as DuckDB stores them: fewer are copied as quickly as looked at


def write_saved(con: duckdb.DuckDBPyConnection, path: Path) -> None:
    """Write every evidence table of `con`, and the version of the schema, to a new file."""
    con.execute("RESET disabled_compression_methods")
    con.execute(f"ATTACH '{quoted(path)}' AS written")
    try:
        for table in TABLES:
            columns = ", ".join(f'"{column.name}"' for column in table.columns)
            con.execute(
                f"CREATE TABLE written.{table.name} AS SELECT {columns} FROM main.{table.name}"
            )
        con.execute(
            "CREATE TABLE written.meta AS SELECT ?::INTEGER AS schema_version, "
            "? AS oncall_version, version() AS duckdb_version",
            [SCHEMA_VERSION, __version__],
        )
    finally:
        con.execute("DETACH written")


def copy_saved(con: duckdb.DuckDBPyConnection, path: Path, *, in_place: bool = False) -> None:
    """Copy every evidence table of a saved incident; `in_place`: large ones are only viewed.
    Raises BadInput if it is none."""
    try:
        path.open("rb").close()
        con.execute(f"ATTACH '{quoted(path)}' AS saved (READ_ONLY)")
    except OSError as error:
        raise BadInput(str(path), error.strerror or str(error)) from error
    except duckdb.Error as error:
        raise BadInput(str(path), f"not an incident file: {reason(error)}") from error
    try:
        present = _saved_columns(con)
        _check_version(con, path, present)
        _check_rows(con, path, present)
        large = _large(con) if in_place else frozenset()
        for table in TABLES:
            if table.name in large:
                _view_table(con, table, present[table.name])
            elif table.name in present:
                _copy_table(con, table, present[table.name])
    except duckdb.Error as error:
        raise BadInput(str(path), f"damaged: {reason(error)}") from error
    finally:
        # Damage can end the whole connection, which is then closed.
        with suppress(duckdb.FatalException):
            if not in_place:
                con.execute("DETACH saved")


def _check_rows(con: duckdb.DuckDBPyConnection, path: Path, saved: dict[str, set[str]]) -> None:
    """A table of one value takes a few bytes, however many rows it has: they are counted first."""
    names = [table.name for table in TABLES if table.name in saved]
    counts = " + ".join(f"(SELECT count(*) FROM saved.{name})" for name in names) or "0"
    ((rows,),) = con.execute(f"SELECT {counts}").fetchall()
    most = room.most_rows()
    if rows > most:
        raise BadInput(str(path), f"holds {rows:,} rows; {most:,} can be opened here at most")


def _saved_columns(con: duckdb.DuckDBPyConnection) -> dict[str, set[str]]:
    """The columns of each saved table; views are left out, as they could read any file."""
    rows = con.execute(
        "SELECT table_name, column_name FROM duckdb_columns() SEMI JOIN duckdb_tables() "
        "USING (database_name, schema_name, table_name) "
        "WHERE database_name = 'saved' AND schema_name = 'main'"
    ).fetchall()
    present: dict[str, set[str]] = {}
    for table, column in rows:
        present.setdefault(table, set()).add(column)
    return present


def _check_version(con: duckdb.DuckDBPyConnection, path: Path, saved: dict[str, set[str]]) -> None:
    if "meta" not in saved and {"job", "comm", "seq", "rank"} <= saved.get("ops", set()):
        return  # written to the documented schema by another tool: read as the first version
    if "schema_version" not in saved.get("meta", set()):
        raise BadInput(str(path), "a DuckDB file, but not an oncall incident")
    writer = "oncall_version" if "oncall_version" in saved["meta"] else "'of another version'"
    rows = con.execute(f"SELECT schema_version, {writer} FROM saved.meta").fetchall()
    version = rows[0][0] if len(rows) == 1 else None
    if not isinstance(version, int):
        raise BadInput(str(path), "an incident without its version")
    if version > SCHEMA_VERSION:
        raise BadInput(
            str(path),
            f"written by oncall {rows[0][1]} with evidence schema {version}; this oncall reads up "
            f"to {SCHEMA_VERSION}: upgrade oncall",
        )


def _copy_table(con: duckdb.DuckDBPyConnection, table: Table, present: set[str]) -> None:
    select = ", ".join(
        f'"{c.name}"::{c.type}' if c.name in present else f"NULL::{c.type}" for c in table.columns
    )
    con.execute(f"INSERT INTO main.{table.name} SELECT {select} FROM saved.{table.name}")


def _large(con: duckdb.DuckDBPyConnection) -> frozenset[str]:
    """The evidence tables of a saved incident that are better left where they are."""
    rows = con.execute(
        "SELECT table_name FROM duckdb_tables() WHERE database_name = 'saved' "
        "AND schema_name = 'main' AND estimated_size >= ?",
        [ROW_GROUP],
    ).fetchall()
    return frozenset(name for (name,) in rows) & BY_NAME.keys()


def _view_table(con: duckdb.DuckDBPyConnection, table: Table, present: set[str]) -> None:
    select = ", ".join(
        (f'"{c.name}"::{c.type}' if c.name in present else f"NULL::{c.type}") + f' AS "{c.name}"'
        for c in table.columns
    )
    con.execute(f"DROP TABLE main.{table.name}")
    # What tells rows apart is part of every table, and of a view only if it says so.
    con.execute(f"CREATE VIEW main.{table.name} AS SELECT {select}, rowid FROM saved.{table.name}")
