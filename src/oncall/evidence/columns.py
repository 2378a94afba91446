"""Columns of numpy arrays, words or plain Python values, put into DuckDB as one INSERT."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import duckdb

from oncall.evidence.schema import Column
from oncall.evidence.statements import execute

# Loaded by the functions that need it: a gateway joins files, never inserts, and starts faster.
if TYPE_CHECKING:
    import numpy as np


@dataclass(frozen=True)
class Words:
    """Strings, or lists, by dictionary: `codes` int32 (n,) into `vocabulary`; code -1 is NULL."""

    codes: np.ndarray[Any, np.dtype[np.int32]]
    vocabulary: Sequence[Any]


ColumnData: TypeAlias = Any  # np.ndarray | np.ma.MaskedArray | Words | Sequence | scalar | None
_DTYPES = {"UBIGINT": "uint64", "DOUBLE": "float64", "BOOLEAN": "bool"}
# So few rows go in as parameters, in less than half the time: DuckDB is shown no arrays.
_FEW_ROWS = 64


def create_table_sql(name: str, columns: Iterable[Column], *, unless_there: bool = False) -> str:
    """The CREATE TABLE statement of a table or relation."""
    body = ", ".join(f'"{column.name}" {column.type}' for column in columns)
    return f'CREATE TABLE {"IF NOT EXISTS " if unless_there else ""}"{name}" ({body})'


def no_rows_sql(columns: Iterable[Column]) -> str:
    """A SELECT of these columns that has no row."""
    nothing = ", ".join(f'NULL::{each.type} AS "{each.name}"' for each in columns)
    return f"SELECT {nothing} WHERE false"


def insert(
    con: duckdb.DuckDBPyConnection,
    table: str,
    declared: Sequence[Column],
    columns: Mapping[str, ColumnData],
) -> int:
    """Add rows to `table` by one INSERT ... SELECT; returns how many.

    Strings go through their dictionary; a scalar is for every row; `declared` columns not given
    are NULL. Raises ValueError for a column not declared and for lengths that
    differ.
    """
    import numpy as np

    unknown = set(columns) - {column.name for column in declared}
    if unknown:
        raise ValueError(f"{table} has no column {', '.join(sorted(unknown))}")
    length = _length(columns)
    if length == 0:
        return 0
    given = [column for column in declared if columns.get(column.name) is not None]
    given = given or list(declared[:1])  # a row of NULLs alone
    names = ", ".join(f'"{column.name}"' for column in given)
    into = f'INSERT INTO "{table}" ({names}) SELECT '
    parameters: list[Any] = []
    if length <= _FEW_ROWS:
        few = [_read_few(column, columns.get(column.name), parameters) for column in given]
        _execute(con, f"{into}{', '.join(few)}", parameters)
        return length
    arrays: dict[str, np.ndarray[Any, Any]] = {"_row": np.arange(length)}
    select = [_read(column, columns.get(column.name), arrays, parameters) for column in given]
    con.register("_arrays", arrays)
    try:
        _execute(con, f"{into}{', '.join(select)} FROM _arrays", parameters)
    finally:
        # In a transaction that failed nothing can be taken back, and its rollback takes this too.
        with suppress(duckdb.TransactionException):
            con.unregister("_arrays")
    return length


def _execute(con: duckdb.DuckDBPyConnection, sql: str, parameters: Sequence[Any]) -> None:
    """The insertion; what UTF-8 cannot hold (lone surrogates of a file's JSON) becomes `?`."""
    try:
        execute(con, sql, parameters)
    except duckdb.InvalidInputException:
        kept = storable(parameters)
        if kept == parameters:
            raise
        execute(con, sql, kept)


def storable(value: Any) -> Any:
    """The text, or texts, with `?` for what UTF-8 cannot hold."""
    if isinstance(value, str):
        return value.encode(errors="replace").decode()
    return list(map(storable, value)) if isinstance(value, (list, tuple)) else value


def _length(columns: Mapping[str, ColumnData]) -> int:
    """The number of rows: what all arrays agree on, else one row of scalars."""
    sizes = {name: _size(value) for name, value in columns.items()}
    lengths = {size for size in sizes.values() if size is not None}
    if len(lengths) > 1:
        shown = ", ".join(f"{name} {size}" for name, size in sizes.items() if size is not None)
        raise ValueError(f"columns of different lengths: {shown}")
    return lengths.pop() if lengths else int(bool(columns))


def _size(value: ColumnData) -> int | None:
    import numpy as np

    if isinstance(value, Words):
        return len(value.codes)
    if isinstance(value, (np.ndarray, list, tuple)):
        return len(value)
    return None


def _read(
    column: Column,
    value: ColumnData,
    arrays: dict[str, np.ndarray[Any, Any]],
    parameters: list[Any],
) -> str:
    """How one column is read: puts its data into `arrays` or `parameters`, returns SQL."""
    import numpy as np

    name = column.name
    value = _one_for_all(value)
    if value is None:
        return "NULL"
    if isinstance(value, np.ndarray) and value.dtype.kind in "UO":
        value = value.tolist()  # masked elements become None
    if isinstance(value, (list, tuple)):
        if column.type.endswith("[]"):
            parameters.append([None if item is None else list(item) for item in value])
            return f"list_extract(?::{column.type}[], _row + 1)"
        value = _from_sequence(column, value)
    if isinstance(value, Words):
        # DuckDB lists count from 1; code -1 becomes index 0, which is NULL.
        arrays[name] = np.asarray(value.codes, dtype=np.int32) + 1
        parameters.append(list(value.vocabulary))
        each = column.type if column.type.endswith("[]") else "VARCHAR"
        return f'list_extract(?::{each}[], "{name}")::{column.type}'
    if isinstance(value, np.ma.MaskedArray):
        arrays[name] = np.ascontiguousarray(np.ma.getdata(value))
        arrays[f"{name}__null"] = np.ma.getmaskarray(value)
        return f'CASE WHEN "{name}__null" THEN NULL ELSE "{name}" END::{column.type}'
    if isinstance(value, np.ndarray):
        arrays[name] = np.ascontiguousarray(value)
        return f'"{name}"::{column.type}'
    parameters.append(value.item() if isinstance(value, np.generic) else value)
    return f"?::{column.type}"


def _one_for_all(value: ColumnData) -> ColumnData:
    """The same column as plainly as can be, as DuckDB then has less to do: the word that all rows
    have, None where all are NULL, and an array without its mask where none is."""
    import numpy as np

    if isinstance(value, Words) and (value.codes == value.codes[0]).all():
        code = int(value.codes[0])
        word = value.vocabulary[code] if code >= 0 else None
        return word if isinstance(word, str) else value if code >= 0 else None
    if isinstance(value, np.ma.MaskedArray):
        mask = np.ma.getmaskarray(value)
        return None if mask.all() else value if mask.any() else np.ma.getdata(value)
    return value


def _read_few(column: Column, value: ColumnData, parameters: list[Any]) -> str:
    """The same of a few rows, all of them put into `parameters`."""
    import numpy as np

    if value is None:
        return "NULL"
    if _size(value) is None:
        parameters.append(value.item() if isinstance(value, np.generic) else value)
        return f"?::{column.type}"
    if isinstance(value, Words):
        words = [*value.vocabulary, None]  # code -1 is the last
        value = [words[code] for code in value.codes.tolist()]
    elif column.type == "VARCHAR":
        value = [None if item is None else str(item) for item in _as_list(value)]
    elif column.type.endswith("[]"):
        value = [None if item is None else list(item) for item in value]
    else:
        value = _as_list(value if isinstance(value, np.ndarray) else _from_sequence(column, value))
    parameters.append(value)
    return f"unnest(?::{column.type}[])"


def _as_list(values: ColumnData) -> list[Any]:
    """Plain Python values; masked elements become None."""
    import numpy as np

    return values.tolist() if isinstance(values, np.ndarray) else list(values)


def as_words(values: Iterable[Any]) -> Words:
    """Values as strings by dictionary; None is NULL."""
    import numpy as np

    vocabulary: dict[str, int] = {}
    codes = [
        -1 if value is None else vocabulary.setdefault(str(value), len(vocabulary))
        for value in values
    ]
    return Words(np.array(codes, dtype=np.int32), list(vocabulary))


def _from_sequence(column: Column, values: Sequence[Any]) -> ColumnData:
    """A Python sequence as Words (strings) or a masked array (everything else)."""
    import numpy as np

    if column.type == "VARCHAR":
        return as_words(values)
    data = [0 if value is None else value for value in values]
    mask = [value is None for value in values]
    return np.ma.MaskedArray(np.array(data, dtype=_DTYPES.get(column.type, "int64")), mask=mask)
