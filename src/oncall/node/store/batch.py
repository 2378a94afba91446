"""Rows on their way into a store: columns of one table, many small batches joined into one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from oncall.evidence.columns import ColumnData, Words
from oncall.evidence.schema import BY_NAME, Column

_DTYPES = {"UBIGINT": np.uint64, "DOUBLE": np.float64, "BOOLEAN": np.bool_}
_Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Batch:
    """`rows` rows of one evidence table; a scalar column holds for every row.

    Columns are as `oncall.evidence.columns.insert` takes them.
    """

    table: str
    rows: int
    columns: Mapping[str, ColumnData]

    @cached_property
    def bytes(self) -> int:
        """What it holds in memory, about."""
        return sum(_bytes(value) for value in self.columns.values())


def one_row(table: str, **columns: ColumnData) -> Batch:
    """A batch of a single row of plain values."""
    return Batch(table, 1, columns)


def of_rows(table: str, names: Sequence[str], rows: Sequence[Sequence[Any]]) -> Batch:
    """A batch of plain Python rows, for tables that grow by a few rows a second."""
    values = zip(*rows, strict=True) if rows else ([] for _ in names)
    return Batch(table, len(rows), dict(zip(names, map(list, values), strict=True)))


def joined(batches: Iterable[Batch]) -> list[Batch]:
    """The same rows in one batch a table, in the order they came.

    An insert costs a few milliseconds however small it is; joined, a second's rows of all
    processes on a node cost one.
    """
    by_table: dict[str, list[Batch]] = {}
    for batch in batches:
        if batch.rows:
            by_table.setdefault(batch.table, []).append(batch)
    return [_join(table, several) for table, several in by_table.items()]


def _join(table: str, batches: Sequence[Batch]) -> Batch:
    if len(batches) == 1:
        return batches[0]
    given = {name for batch in batches for name in batch.columns}
    columns = {
        column.name: _join_column(column, batches)
        for column in BY_NAME[table].columns
        if column.name in given
    }
    return Batch(table, sum(batch.rows for batch in batches), columns)


def _join_column(column: Column, batches: Sequence[Batch]) -> ColumnData:
    values = [(batch.columns.get(column.name), batch.rows) for batch in batches]
    if all(value is None for value, _ in values):
        return None
    if column.type == "VARCHAR":
        return _join_words(values)
    if column.type.endswith("[]") or not any(isinstance(v, np.ndarray) for v, _ in values):
        return [item for value, rows in values for item in _each(value, rows)]
    dtype = _DTYPES.get(column.type, np.int64)
    arrays = [_array(value, rows, dtype) for value, rows in values]
    data = np.concatenate([np.ma.getdata(array) for array in arrays])
    masks = [np.ma.getmaskarray(array) for array in arrays]
    if not any(mask.any() for mask in masks):
        return data
    return np.ma.MaskedArray(data, mask=np.concatenate(masks))


def _join_words(values: Sequence[tuple[ColumnData, int]]) -> Words:
    """Strings of several dictionaries by one."""
    vocabulary: dict[str, int] = {}
    codes: list[_Array] = []
    for value, rows in values:
        words = value if isinstance(value, Words) else _words(value, rows)
        # One more for code -1, which numpy reads as the last.
        renumbered = [vocabulary.setdefault(word, len(vocabulary)) for word in words.vocabulary]
        codes.append(np.array([*renumbered, -1], dtype=np.int32)[words.codes])
    return Words(np.concatenate(codes), list(vocabulary))


def _words(value: ColumnData, rows: int) -> Words:
    if value is None or isinstance(value, str):
        return Words(
            np.full(rows, -1 if value is None else 0, dtype=np.int32),
            [] if value is None else [value],
        )
    vocabulary: dict[str, int] = {}
    codes = [-1 if v is None else vocabulary.setdefault(v, len(vocabulary)) for v in value]
    return Words(np.array(codes, dtype=np.int32), list(vocabulary))


def _array(value: ColumnData, rows: int, dtype: type[np.generic]) -> _Array:
    """One column's numbers as (rows,), masked where they are NULL."""
    if value is None:
        return np.ma.MaskedArray(np.zeros(rows, dtype), mask=True)
    if isinstance(value, np.ndarray):
        return value.astype(dtype, copy=False)
    if isinstance(value, (list, tuple)):
        mask = [item is None for item in value]
        return np.ma.MaskedArray(np.array([item or 0 for item in value], dtype), mask=mask)
    return np.full(rows, value, dtype)


def _each(value: ColumnData, rows: int) -> list[Any]:
    return list(value) if isinstance(value, (list, tuple)) else [value] * rows


def _bytes(value: ColumnData) -> int:
    if isinstance(value, Words):
        return int(value.codes.nbytes)
    if isinstance(value, np.ma.MaskedArray):
        return int(value.nbytes + np.ma.getmaskarray(value).nbytes)
    if isinstance(value, np.ndarray):
        return int(value.nbytes)
    return 64 * len(value) if isinstance(value, (list, tuple)) else 64
