"""What a fact's SQL reads and whether it may run, from DuckDB's own parse of it.

A fact is one SELECT over evidence tables, relations, earlier facts and `started`. It computes
from evidence alone: no file, setting, catalogue or clock, so that a replay says the same.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from oncall.rules.rulebook import STARTED
from oncall.rules.template import nearest

if TYPE_CHECKING:
    import duckdb

TABLE_FUNCTIONS = frozenset({"unnest", "range", "generate_series"})

_NOT_FROM_EVIDENCE = re.compile(
    r"current_\w+|get_current_\w+|localtime\w*|now|today|transaction_timestamp|txid_current"
    r"|user|session_user|version|getenv|getvariable|random|setseed|\w*uuid(v\d)?|nextval|currval"
    r"|setval|sleep_ms|pg_\w+|has_\w+_privilege|in_search_path|write_log|stats|vector_type"
    r"|parse_duckdb_log_message|json_execute_serialized_sql|json_serialize_\w+"
    r"|json_deserialize_sql|format_pg_type|map_to_pg_oid"
)
_NO_LOCATION = 2**63
_PARSE = (
    "SELECT json_serialize_sql($sql, skip_null := true, skip_empty := true, skip_default := true)"
)


@dataclass(frozen=True)
class SqlFault:
    """Something wrong in a SELECT, at a 0-based character offset."""

    message: str
    offset: int = 0
    length: int = 1


@dataclass(frozen=True)
class TableRead:
    """A table named in a FROM, outside of the statement's own CTEs."""

    name: str
    offset: int


@dataclass(frozen=True)
class FactSql:
    """A fact's SELECT: the tables it reads, the `$names` it binds, what it may not do.

    `node` is its syntax tree. `bare_numbers` are thresholds written into comparisons, with
    offsets; 0, 1 and 2 only tell none, one and several apart.
    """

    sql: str
    reads: tuple[TableRead, ...]
    params: tuple[tuple[str, int], ...]
    ordered: bool
    faults: tuple[SqlFault, ...]
    bare_numbers: tuple[tuple[str, int], ...] = ()
    node: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)

    @property
    def tables(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(read.name for read in self.reads))

    @property
    def param_names(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(name for name, _ in self.params))

    def unknown_tables(self, known: Collection[str]) -> Iterator[SqlFault]:
        """Tables that are none of `known`."""
        for read in self.reads:
            if read.name not in known:
                message = f"no table, relation or earlier fact `{read.name}`"
                yield SqlFault(message + nearest(read.name, known), read.offset, len(read.name))

    def started_too_early(self) -> Iterator[SqlFault]:
        """Reads of the started cases, for a fact that start_when needs."""
        for read in self.reads:
            if read.name == STARTED:
                message = f"`{STARTED}` is not known yet: start_when needs this fact"
                yield SqlFault(message, read.offset, len(STARTED))

    def unknown_params(self, known: Collection[str]) -> Iterator[SqlFault]:
        """`$names` that are none of `known`."""
        for name, offset in self.params:
            if name not in known:
                message = f"unknown parameter `${name}`{nearest(name, known)}"
                yield SqlFault(message, offset, len(name) + 1)


_read: dict[str, FactSql] = {}  # parsing costs as much as running, and a text means what it means


def read_sql(con: duckdb.DuckDBPyConnection, sql: str) -> FactSql:
    """Parse `sql` without binding or running it; each text once in a process."""
    if sql not in _read:
        _read[sql] = _parsed(con, sql)
    return _read[sql]


def _parsed(con: duckdb.DuckDBPyConnection, sql: str) -> FactSql:
    found = con.execute(_PARSE, {"sql": sql}).fetchone()
    parsed = json.loads(found[0]) if found else {}
    if parsed.get("error"):
        return FactSql(sql, (), (), False, (_parse_fault(sql, parsed),))
    statements = parsed.get("statements", [])
    if len(statements) != 1:
        fault = SqlFault(f"a fact is exactly one SELECT, these are {len(statements)}")
        return FactSql(sql, (), (), False, (fault,))
    walk = _Walk(sql)
    node = statements[0]["node"]
    try:
        walk.visit(node, frozenset())
    except RecursionError:
        return FactSql(sql, (), (), False, (SqlFault("the SELECT is nested too deeply"),))
    modifiers = node.get("modifiers", [])
    ordered = any(modifier["type"] == "ORDER_MODIFIER" for modifier in modifiers)
    return FactSql(
        sql,
        tuple(walk.reads),
        tuple(walk.params),
        ordered,
        tuple(walk.faults),
        tuple(walk.bare_numbers),
        node,
    )


def character(sql: str, byte: int) -> int:
    """DuckDB counts bytes; editors count characters."""
    return len(sql.encode()[:byte].decode(errors="ignore"))


def _parse_fault(sql: str, parsed: dict[str, Any]) -> SqlFault:
    if parsed.get("error_type") != "parser":
        return SqlFault("a fact is one SELECT: no other statement, and no PIVOT")
    location = json.loads(parsed.get("location", "[0,1]"))
    message = str(parsed.get("error_message", "cannot be parsed"))
    return SqlFault(message, character(sql, location[0]), location[1])


class _Walk:
    """One pass over DuckDB's syntax tree, keeping which CTE names are in scope."""

    def __init__(self, sql: str) -> None:
        self.sql = sql
        self.reads: list[TableRead] = []
        self.params: list[tuple[str, int]] = []
        self.faults: list[SqlFault] = []
        self.bare_numbers: list[tuple[str, int]] = []

    def visit(self, node: Any, scope: frozenset[str]) -> None:
        if isinstance(node, list):
            for item in node:
                self.visit(item, scope)
        elif isinstance(node, dict):
            if "cte_map" in node:
                scope = self._ctes(node["cte_map"].get("map", []), scope)
            self._look(node, scope)
            for key, value in node.items():
                if key != "cte_map" and isinstance(value, (dict, list)):
                    self.visit(value, scope)

    def _ctes(self, ctes: list[Any], scope: frozenset[str]) -> frozenset[str]:
        for cte in ctes:
            name, body = cte["key"].lower(), cte["value"]["query_node"]
            recursive = body.get("type") == "RECURSIVE_CTE_NODE"
            self.visit(body, scope | {name} if recursive else scope)
            scope |= {name}
        return scope

    def _look(self, node: dict[str, Any], scope: frozenset[str]) -> None:
        kind = node.get("type")
        if kind == "BASE_TABLE":
            self._table(node, scope)
        elif kind == "SHOW_REF":
            self._refuse("a fact reads evidence, not catalogues", node, 8)
        elif kind == "TABLE_FUNCTION":
            name = node["function"].get("function_name", "").lower()
            if name not in TABLE_FUNCTIONS:
                self._refuse(f"a fact may not call `{name}`", node, len(name))
        elif kind == "FUNCTION":
            name = node.get("function_name", "").lower()
            if _NOT_FROM_EVIDENCE.fullmatch(name):
                message = f"a fact may not call `{name}`: it computes from evidence alone"
                self._refuse(message, node, len(name))
        elif kind == "COLUMN_REF":
            name = node["column_names"][-1].lower()
            if len(node["column_names"]) == 1 and re.fullmatch(
                r"current_(date|time\w*|user|role|schema|catalog)|localtime\w*|session_user", name
            ):
                message = f"a fact may not use `{name}`: it computes from evidence alone"
                self._refuse(message, node, len(name))
        elif kind == "VALUE_PARAMETER":
            self.params.append((str(node.get("identifier", "?")), self._offset(node)))
        if node.get("class") in ("COMPARISON", "BETWEEN"):
            for side in ("left", "right", "lower", "upper"):
                self._number(node.get(side))

    def _number(self, node: dict[str, Any] | None) -> None:
        literal = (node or {}).get("literal") or {}
        if node and literal.get("kind") in ("INTEGER", "DECIMAL", "FLOAT", "DOUBLE", "NUMERIC"):
            text = str(literal.get("text"))
            if text not in ("0", "1", "2"):
                self.bare_numbers.append((text, self._offset(node)))

    def _table(self, node: dict[str, Any], scope: frozenset[str]) -> None:
        name = node["table_name"].strip('"').lower()
        if node.get("schema_name") or node.get("catalog_name"):
            self._refuse("a fact names tables plainly, without schema or database", node, len(name))
        elif name not in scope:
            self.reads.append(TableRead(name, self._offset(node)))

    def _offset(self, node: dict[str, Any]) -> int:
        location = node.get("query_location", _NO_LOCATION)
        return character(self.sql, location) if location < _NO_LOCATION else 0

    def _refuse(self, message: str, node: dict[str, Any], length: int) -> None:
        self.faults.append(SqlFault(message, self._offset(node), length))
