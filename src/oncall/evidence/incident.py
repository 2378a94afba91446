"""An incident: one DuckDB holding the evidence of a job, in memory or saved as `*.oncall`."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, TypeAlias

import duckdb
import numpy as np

from oncall import __version__
from oncall.errors import BadInput, MissingEvidence, UsageError
from oncall.evidence.relations import REGISTRY
from oncall.evidence.schema import BY_NAME, SCHEMA_VERSION, TABLES, Column, Table


@dataclass(frozen=True)
class Words:
    """Strings by dictionary: `codes` int32 (n,) into `vocabulary`; code -1 is NULL."""

    codes: np.ndarray[Any, np.dtype[np.int32]]
    vocabulary: Sequence[str]


ColumnData: TypeAlias = Any  # np.ndarray | np.ma.MaskedArray | Words | Sequence | scalar | None


def create_table_sql(name: str, columns: Iterable[Column]) -> str:
    """The CREATE TABLE statement of a table or relation."""
    body = ", ".join(f'"{column.name}" {column.type}' for column in columns)
    return f'CREATE TABLE "{name}" ({body})'


class Incident:
    """The evidence of one job. Tables of the schema always exist; relations appear on `require`."""

    def __init__(self, con: duckdb.DuckDBPyConnection) -> None:
        self.con = con
        self._ready: set[str] = set()
        self._empty: dict[str, bool] = {}

    # ---------------------------------------------------------------- life

    @classmethod
    def empty(cls) -> Incident:
        """A new incident in memory, every table present and empty."""
        con = duckdb.connect(
            ":memory:",
            config={
                "autoinstall_known_extensions": "false",
                "autoload_known_extensions": "false",
            },
        )
        # A misspelt table must be an error, never a Python variable that happens to have its name.
        con.execute("SET python_enable_replacements = false; SET preserve_insertion_order = false")
        con.execute(";".join(create_table_sql(table.name, table.columns) for table in TABLES))
        return cls(con)

    @classmethod
    def open(cls, path: Path) -> Incident:
        """A saved incident, copied into memory so that the file is never held or changed.

        Older schema versions are read (columns they lack are NULL). Raises BadInput if the file
        is no incident, is damaged, or was written by a newer schema.
        """
        incident = cls.empty()
        if not path.is_file():
            raise BadInput(str(path), "no such file")
        try:
            incident.con.execute(f"ATTACH '{_quoted(path)}' AS saved (READ_ONLY)")
        except duckdb.Error as error:
            raise BadInput(str(path), f"not an incident file: {_first_line(error)}") from error
        try:
            _check_version(incident.con, path)
            present = _saved_columns(incident.con)
            for table in TABLES:
                if table.name in present:
                    _copy_table(incident.con, table, present[table.name])
        except duckdb.Error as error:
            raise BadInput(str(path), f"damaged: {_first_line(error)}") from error
        finally:
            incident.con.execute("DETACH saved")
        return incident

    def save(self, path: Path) -> None:
        """Write all evidence to `path` at once: a temporary file beside it, then a rename.

        Call before rules run, as they close the sandbox on this connection. Raises UsageError
        if the place cannot be written; nothing half-written is left.
        """
        handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent or Path())
        os.close(handle)
        part = Path(name)
        part.unlink()
        try:
            self.con.execute(f"ATTACH '{_quoted(part)}' AS saved")
            try:
                for table in TABLES:
                    self.con.execute(
                        f"CREATE TABLE saved.{table.name} AS SELECT * FROM main.{table.name}"
                    )
                self.con.execute(
                    "CREATE TABLE saved.meta AS SELECT ?::INTEGER AS schema_version, "
                    "? AS oncall_version, version() AS duckdb_version",
                    [SCHEMA_VERSION, __version__],
                )
            finally:
                self.con.execute("DETACH saved")
            part.replace(path)
        except (duckdb.Error, OSError) as error:
            raise UsageError(f"cannot save {path}: {_first_line(error)}") from error
        finally:
            for leftover in (part, part.with_name(part.name + ".wal")):
                with suppress(OSError):
                    leftover.unlink()

    def close(self) -> None:
        self.con.close()

    def __enter__(self) -> Incident:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    # ------------------------------------------------------------ evidence

    def append(self, table: str, columns: Mapping[str, ColumnData]) -> int:
        """Add rows to an evidence table and return how many.

        Each value is an array, a masked array (mask means NULL), Words, a sequence (None means
        NULL) or a scalar for every row; columns not given are NULL. All lengths must agree.
        """
        _insert(self.con, table, BY_NAME[table].columns, columns)
        self._empty.pop(table, None)
        return _length(columns)

    def rows(self, table: str) -> int:
        """Number of rows in a table or a relation that is ready."""
        found = self.con.execute(f'SELECT count(*) FROM "{table}"').fetchone()
        return int(found[0]) if found else 0

    # ----------------------------------------------------------- relations

    def missing(self, name: str) -> tuple[str, ...]:
        """Base tables that `name` (a table or relation) cannot do without and that are empty."""
        if name in BY_NAME:
            if name not in self._empty:
                self._empty[name] = self.rows(name) == 0
            return (name,) if self._empty[name] else ()
        gone: dict[str, None] = {}
        for read in REGISTRY[name].reads:
            choices = [self.missing(choice) for choice in read.split("|")]
            if all(choices):
                gone[" or ".join(dict.fromkeys(table for choice in choices for table in choice))] = None
        return tuple(gone)

    def require(self, names: Iterable[str]) -> None:
        """Make relations ready, with all they read; each is computed once.

        Raises MissingEvidence if a needed table is empty.
        """
        for name in names:
            gone = self.missing(name)
            if gone:
                raise MissingEvidence(name, gone)
            if name not in BY_NAME and name not in self._ready:
                self._compute(name)

    def _compute(self, name: str) -> None:
        entry = REGISTRY[name]
        for read in entry.inputs:
            if read in BY_NAME or read in self._ready:
                continue
            if self.missing(read):
                # An optional input without evidence is an empty relation, not a failure.
                self.con.execute(create_table_sql(read, REGISTRY[read].columns))
                self._ready.add(read)
            else:
                self._compute(read)
        if entry.sql is not None:
            select = ", ".join(f'"{c.name}"::{c.type} AS "{c.name}"' for c in entry.columns)
            what = "VIEW" if entry.view else "TABLE"
            self.con.execute(f'CREATE {what} "{name}" AS SELECT {select} FROM ({entry.sql})')
        elif entry.compute is not None:
            columns = entry.compute(self.con)
            self.con.execute(create_table_sql(name, entry.columns))
            _insert(self.con, name, entry.columns, columns)
        self._ready.add(name)


# ------------------------------------------------------------------- details


def _quoted(path: Path) -> str:
    return str(path).replace("'", "''")


def _first_line(error: BaseException) -> str:
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__


def _check_version(con: duckdb.DuckDBPyConnection, path: Path) -> None:
    try:
        row = con.execute("SELECT schema_version, oncall_version FROM saved.meta").fetchone()
    except duckdb.CatalogException as error:
        raise BadInput(str(path), "a DuckDB file, but not an oncall incident") from error
    if row is None:
        raise BadInput(str(path), "an incident without its version")
    if row[0] > SCHEMA_VERSION:
        raise BadInput(
            str(path),
            f"written by oncall {row[1]} with evidence schema {row[0]}; this oncall reads up to "
            f"{SCHEMA_VERSION}: upgrade oncall",
        )


def _saved_columns(con: duckdb.DuckDBPyConnection) -> dict[str, set[str]]:
    rows = con.execute(
        "SELECT table_name, column_name FROM duckdb_columns() WHERE database_name = 'saved'"
    ).fetchall()
    present: dict[str, set[str]] = {}
    for table, column in rows:
        present.setdefault(table, set()).add(column)
    return present


def _copy_table(con: duckdb.DuckDBPyConnection, table: Table, present: set[str]) -> None:
    select = ", ".join(
        f'"{c.name}"::{c.type}' if c.name in present else f"NULL::{c.type}" for c in table.columns
    )
    con.execute(f"INSERT INTO main.{table.name} SELECT {select} FROM saved.{table.name}")


def _length(columns: Mapping[str, ColumnData]) -> int:
    lengths = {_size(value) for value in columns.values()} - {None}
    if len(lengths) > 1:
        raise ValueError(f"columns of different lengths: {sorted(n for n in lengths if n)}")
    return next((n for n in lengths if n is not None), 1)


def _size(value: ColumnData) -> int | None:
    if isinstance(value, Words):
        return len(value.codes)
    if isinstance(value, (np.ndarray, list, tuple)):
        return len(value)
    return None


def _insert(
    con: duckdb.DuckDBPyConnection,
    table: str,
    declared: Sequence[Column],
    columns: Mapping[str, ColumnData],
) -> None:
    """INSERT ... SELECT from numpy arrays; strings go through their dictionary."""
    unknown = set(columns) - {column.name for column in declared}
    if unknown:
        raise ValueError(f"{table} has no column {', '.join(sorted(unknown))}")
    length = _length(columns)
    if length == 0 or not columns:
        return
    arrays: dict[str, np.ndarray[Any, Any]] = {"_row": np.arange(length)}
    select: list[str] = []
    parameters: list[Any] = []
    for column in declared:
        if column.name in columns and columns[column.name] is not None:
            select.append(_expression(column, columns[column.name], arrays, parameters))
        else:
            select.append("NULL")
    con.register("_arrays", arrays)
    try:
        con.execute(f'INSERT INTO "{table}" SELECT {", ".join(select)} FROM _arrays', parameters)
    finally:
        con.unregister("_arrays")


def _expression(
    column: Column,
    value: ColumnData,
    arrays: dict[str, np.ndarray[Any, Any]],
    parameters: list[Any],
) -> str:
    """How one column is read: puts its data into `arrays` or `parameters`, returns SQL."""
    name = column.name
    if isinstance(value, (list, tuple)):
        if column.type.endswith("[]"):
            parameters.append([list(item) if item is not None else None for item in value])
            return f"list_extract(?::{column.type}[], _row + 1)"
        value = _from_sequence(column, value)
    if isinstance(value, Words):
        # DuckDB lists count from 1; code -1 becomes index 0, which is NULL.
        arrays[name] = np.asarray(value.codes, dtype=np.int64) + 1
        parameters.append(list(value.vocabulary))
        return f'list_extract(?::VARCHAR[], "{name}")::{column.type}'
    if isinstance(value, np.ma.MaskedArray):
        mask = np.ma.getmaskarray(value)
        arrays[name] = np.ascontiguousarray(value.filled(_filler(value.dtype)))
        arrays[f"{name}__null"] = mask
        return f'CASE WHEN "{name}__null" THEN NULL ELSE "{name}" END::{column.type}'
    if isinstance(value, np.ndarray):
        if value.dtype.kind in "USO":
            words, codes = np.unique(value.astype(str), return_inverse=True)
            coded = Words(codes.astype(np.int32), words.tolist())
            return _expression(column, coded, arrays, parameters)
        arrays[name] = np.ascontiguousarray(value)
        return f'"{name}"::{column.type}'
    parameters.append(value)
    return f"?::{column.type}"


def _filler(dtype: np.dtype[Any]) -> Any:
    return False if dtype.kind == "b" else 0


def _from_sequence(column: Column, values: Sequence[Any]) -> ColumnData:
    """A Python sequence as Words (strings) or a masked array (everything else)."""
    if column.type == "VARCHAR":
        vocabulary: dict[str, int] = {}
        codes = [
            -1 if value is None else vocabulary.setdefault(str(value), len(vocabulary))
            for value in values
        ]
        return Words(np.array(codes, dtype=np.int32), list(vocabulary))
    dtypes = {"UBIGINT": np.uint64, "DOUBLE": np.float64, "BOOLEAN": np.bool_}
    dtype = np.dtype(dtypes.get(column.type, np.int64))
    mask = [value is None for value in values]
    data = [_filler(dtype) if value is None else value for value in values]
    return np.ma.MaskedArray(np.array(data, dtype=dtype), mask=mask)
