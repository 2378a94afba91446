"""Relations: everything that is computed from evidence tables.

A relation declares its name, what it reads, its columns and the paper it comes from. SQL
relations return a SELECT; numpy relations return columns. Either is materialised once, on first
need, as a table reachable by its plain name. oncall.evidence.registry finds them.

    @relation("busy", reads=["ops"], columns=[("rank", "INTEGER", "", "...")], source="CCL-D 4.1")
    def busy() -> str:
        '''Ranks that have an operation in flight.'''
        return "SELECT DISTINCT rank FROM ops WHERE ended_ns IS NULL"

Columns that pass through may be named alone, `"job comm rank"`: each is as the first of what the
relation reads declares it.

A number that decides something is a parameter: `params={"long": Param("5 min", "why")}` is `$long`
in the SELECT and the keyword argument `long` of a function, in its base unit (ns, bytes, ratio).
`params={"long": "busy.long"}` is the parameter of another relation. Functions that need many carry
them in one frozen dataclass, whose fields `decides(...)` declares and `params_of` lists:

    @dataclass(frozen=True)
    class Thresholds:
        long_ns: int = decides("5 min", "longer than a checkpoint")

    @relation("busy", ..., params=params_of(Thresholds))
    def busy(con: duckdb.DuckDBPyConnection, **params: Any) -> Mapping[str, Any]:
        thresholds = Thresholds(**params)
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from inspect import CO_VARKEYWORDS
from typing import Any, Literal

from oncall.core.units import Quantity, parse_quantity
from oncall.evidence.table import Column

Where = Literal["node", "console"]
Computed = Mapping[str, Any] | Iterable[Mapping[str, Any]]
Compute = Callable[..., Computed]
USED = re.compile(r"\$([a-z_][a-z0-9_]*)")  # a parameter in a SELECT
# What a SELECT reads, and the names of its steps.
_SAID = re.compile(r"--[^\n]*|'[^']*'")
_READ = re.compile(r"(?<!DISTINCT )\b(?:FROM|JOIN)\s+([a-z_]\w*)\b(?!\s*[.(])")
_STEP = re.compile(r"\b([a-z_]\w*)(?:\([^()]*\))?\s+AS\s+(?:(?:NOT\s+)?MATERIALIZED\s+)?\(")


@dataclass(frozen=True)
class Param:
    """A number that decides something, with its unit as rulebooks write it (`5 min`, `20 %`), and
    why it is this one. A site may replace it."""

    written: str | int | float
    why: str

    @cached_property
    def quantity(self) -> Quantity:
        return parse_quantity(self.written)


def decides(written: str | int | float, why: str) -> Any:
    """A field of a dataclass of thresholds: a Param, and by default its value."""
    param = Param(written, why)
    return field(default=param.quantity.value, metadata={"param": param})


def params_of(thresholds: type, of: str | None = None) -> dict[str, Param | str]:
    """The parameters that a dataclass of thresholds declares; `of` names that relation's."""
    declared = {one.name: one.metadata["param"] for one in fields(thresholds)}
    return {name: f"{of}.{name}" if of else param for name, param in declared.items()}


@dataclass(frozen=True)
class Relation:
    """A named computation over evidence. Exactly one of `sql` and `compute` is set.

    `reads` are tables and relations without which it is MissingEvidence ("a|b": either will
    do); `optional` ones may be empty: of a SELECT, what else it names. Without rows in an input
    of `empty_without` ("a|b": in either) it is known to be empty and not computed. `at` says where
    it runs: beside the shards as well, or in the console alone. A `view` is a cheap rewriting of
    rows that is stored only where they are few.
    `params` are its own parameters, or the names of other relations'.
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
    params: Mapping[str, Param | str] = field(default_factory=dict)

    @property
    def params_used(self) -> frozenset[str]:
        """The parameters that the SELECT or the function takes."""
        if self.sql is not None:
            return frozenset(USED.findall(self.sql))
        code = getattr(self.compute, "__code__", None)
        if code is None or code.co_flags & CO_VARKEYWORDS:
            return frozenset(self.params)
        first = code.co_argcount
        return frozenset(code.co_varnames[first : first + code.co_kwonlyargcount])

    def by_column(self, rows: Sequence[Sequence[Any]]) -> dict[str, list[Any]]:
        """Rows of values in the order of its columns, as columns."""
        return {one.name: [row[at] for row in rows] for at, one in enumerate(self.columns)}

    @property
    def inputs(self) -> tuple[str, ...]:
        """Every table and relation it may read."""
        return tuple(name for read in (*self.reads, *self.optional) for name in read.split("|"))


def relation(
    name: str,
    *,
    reads: Sequence[str],
    columns: Sequence[Sequence[str]],
    source: str,
    optional: Sequence[str] = (),
    empty_without: Sequence[str] = (),
    at: Where = "console",
    view: bool = False,
    params: Mapping[str, Param | str] | None = None,
) -> Callable[[Callable[..., Any]], Relation]:
    """Declare a relation: the decorated function takes nothing and returns SQL, or takes a
    connection, and parameters by keyword, and returns columns (name -> array, masked array or
    list), or yields many rows in parts, each of which is stored before the next is computed."""

    def declare(function: Callable[..., Any]) -> Relation:
        takes_nothing = function.__code__.co_argcount == 0
        sql = function() if takes_nothing else None
        needed = {name for read in reads for name in read.split("|")}
        named = (name for name in _named_in(sql or "") if name not in needed)
        return Relation(
            name=name,
            module=function.__module__,
            columns=tuple(_declared(columns)),
            reads=tuple(reads),
            optional=tuple(dict.fromkeys((*optional, *named))),
            empty_without=tuple(empty_without),
            at=at,
            source=source,
            doc=(function.__doc__ or "").strip(),
            view=view,
            sql=sql,
            compute=None if takes_nothing else function,
            params=params or {},
        )

    return declare


def _declared(columns: Sequence[Sequence[str]]) -> Iterator[Column]:
    """One without a type passes through; the registry knows of what."""
    for one in columns:
        if isinstance(one, str):
            yield from (Column(name, "", "", "") for name in one.split())
        else:
            yield Column(*one)


def _named_in(sql: str) -> Iterator[str]:
    """What stands after FROM or JOIN in a SELECT, its own steps left out."""
    said = _SAID.sub("''", sql)
    steps = set(_STEP.findall(said))
    yield from (name for name in _READ.findall(said) if name not in steps)
