"""Relations: everything that is computed from evidence tables.

A relation declares its name, what it reads, its columns and the paper it comes from. SQL
relations return a SELECT; numpy relations return columns. Either is materialised once, on first
need, as a table reachable by its plain name. oncall.evidence.registry finds them.

    @relation("busy", reads=["ops"], columns=[("rank", "INTEGER", "", "...")], source="CCL-D 4.1")
    def busy() -> str:
        '''Ranks that have an operation in flight.'''
        return "SELECT DISTINCT rank FROM ops WHERE ended_ns IS NULL"
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from oncall.evidence.table import Column

if TYPE_CHECKING:
    import duckdb

Where = Literal["node", "console"]
Compute = Callable[["duckdb.DuckDBPyConnection"], Mapping[str, Any]]


@dataclass(frozen=True)
class Relation:
    """A named computation over evidence. Exactly one of `sql` and `compute` is set.

    `reads` are tables and relations without which it is MissingEvidence ("a|b": either will
    do); `optional` ones may be empty. Without rows in an input of `empty_without` ("a|b": in
    either) it is known to be empty and not computed. `at` says where it runs: beside the shards
    or in the console. A `view` is a cheap rewriting of rows that is not stored.
    """

    name: str
    module: str
    columns: tuple[Column, ...]
    reads: tuple[str, ...]
    optional: tuple[str, ...]
    at: Where
    source: str
    doc: str
    empty_without: tuple[str, ...] = ()
    view: bool = False
    sql: str | None = None
    compute: Compute | None = None

    @property
    def inputs(self) -> tuple[str, ...]:
        """Every table and relation it may read."""
        return tuple(name for read in (*self.reads, *self.optional) for name in read.split("|"))


def relation(
    name: str,
    *,
    reads: Sequence[str],
    columns: Sequence[tuple[str, str, str, str]],
    source: str,
    optional: Sequence[str] = (),
    empty_without: Sequence[str] = (),
    at: Where = "console",
    view: bool = False,
) -> Callable[[Callable[..., Any]], Relation]:
    """Declare a relation: the decorated function takes nothing and returns SQL, or takes a
    connection and returns columns (name -> array, masked array or list)."""

    def declare(function: Callable[..., Any]) -> Relation:
        takes_nothing = function.__code__.co_argcount == 0
        return Relation(
            name=name,
            module=function.__module__,
            columns=tuple(Column(*column) for column in columns),
            reads=tuple(reads),
            optional=tuple(optional),
            empty_without=tuple(empty_without),
            at=at,
            source=source,
            doc=(function.__doc__ or "").strip(),
            view=view,
            sql=function() if takes_nothing else None,
            compute=None if takes_nothing else function,
        )

    return declare
