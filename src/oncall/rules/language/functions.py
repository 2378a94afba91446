"""Which functions a fact may call, by DuckDB's own account of them.

A function may be called if the catalogue says of every form of it that it always gives the same
for the same arguments and does nothing else. So a replay is a replay: no clock, no random number,
no setting, no file. A macro may be called if all that it stands for may.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from oncall.rules.language.sql import VALUE_NAMES, FactSql, SqlFault, read_sql

if TYPE_CHECKING:
    import duckdb

# What the catalogue calls consistent though it is not, or what only DuckDB itself has a use for.
_MISLABELLED = {
    "age": "with one argument it reads the clock; subtract two timestamps",
    "current_localtime": "it reads the clock",
    "current_localtimestamp": "it reads the clock",
    "reservoir_quantile": "it draws at random; use quantile_cont",
    "version": "it differs between versions of DuckDB",
    "json_serialize_plan": "it differs between versions of DuckDB",
    "json_serialize_sql": "it differs between versions of DuckDB",
    "json_deserialize_sql": "it differs between versions of DuckDB",
    "index_key": "it reads the catalogue",
    "to_aggregate_state": "it builds the state of an aggregate from any bytes",
}
# Arithmetic on times with a zone follows the session's time zone, which the sandbox sets to UTC.
_CATALOGUE = """
    SELECT function_name, list(macro_definition),
           bool_and(function_type IN ('scalar', 'aggregate', 'window')
                    AND (stability = 'CONSISTENT' OR list_has_any(
                        parameter_types, ['TIMESTAMP WITH TIME ZONE', 'TIMESTAMPTZ_NS']))
                    AND NOT coalesce(has_side_effects, false)
                    AND function_name NOT LIKE '\\_\\_%' ESCAPE '\\'),
           bool_and(function_type = 'macro' AND schema_name = 'main')
    FROM duckdb_functions() WHERE internal AND function_type IN ('scalar', 'aggregate', 'window',
                                                                 'macro') GROUP BY function_name
"""


@dataclass(frozen=True)
class _Function:
    """A name in the catalogue: whether it always gives the same, or what it stands for."""

    consistent: bool
    stands_for: tuple[str, ...]


_catalogue: dict[str, _Function] = {}  # reading it takes as long as a dozen facts


def refused_calls(con: duckdb.DuckDBPyConnection, read: FactSql) -> Iterator[SqlFault]:
    """The calls in a fact of what it may not call."""
    if not _catalogue:
        for name, definitions, consistent, macro in con.execute(_CATALOGUE).fetchall():
            _catalogue[name.lower()] = _Function(consistent, tuple(definitions) if macro else ())
    for call in read.calls:
        why = _why_not(con, call.name)
        if why:
            message = f"a fact may not call `{call.name}`: {why}"
            yield SqlFault(message, call.offset, len(call.name))


def _why_not(con: duckdb.DuckDBPyConnection, name: str) -> str:
    """Why a function may not be called; empty if it may, or if DuckDB itself will not know it."""
    if name in _MISLABELLED:
        return _MISLABELLED[name]
    function = _catalogue.get(name)
    if function is None or function.consistent:
        return ""
    if function.stands_for and not VALUE_NAMES.fullmatch(name):
        inside = [read_sql(con, f"SELECT {definition}") for definition in function.stands_for]
        if not any(
            one.faults or one.reads or any(_why_not(con, call.name) for call in one.calls)
            for one in inside
        ):
            return ""
    return "its result depends on more than its arguments"
