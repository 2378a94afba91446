"""What a fact's SQL reads and whether it may run, from DuckDB's own parse of it.

A fact is one SELECT over evidence tables, relations, earlier facts and `started`. What may stand
in it is listed, all the way down: a part of SQL that is not on the list is refused, so one that a
later DuckDB adds is refused too. Which functions it may call, oncall.rules.language.functions says.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from oncall.rules.language.rulebook_file import STARTED
from oncall.rules.language.template import nearest

if TYPE_CHECKING:
    import duckdb

LONGEST_FACT = 10_000  # characters: five times the longest that ships, and parsed in a blink
DEEPEST_FACT = 50  # brackets within brackets: DuckDB's parser slows down, and ends, far above


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# What json_serialize_sql calls the nodes of a SELECT, and below them the classes of expressions.
_NODES = _words(
    """
    SELECT_NODE SET_OPERATION_NODE RECURSIVE_CTE_NODE BASE_TABLE EMPTY EXPRESSION_LIST JOIN
    SUBQUERY TABLE_FUNCTION ORDER_MODIFIER LIMIT_MODIFIER LIMIT_PERCENT_MODIFIER
    DISTINCT_MODIFIER ORDER_DEFAULT ASCENDING DESCENDING
    """
)
_EXPRESSIONS = _words(
    """
    BETWEEN CASE CAST COLLATE COLUMN_REF COMPARISON CONJUNCTION CONSTANT FUNCTION LAMBDA
    OPERATOR PARAMETER POSITIONAL_REFERENCE STAR SUBQUERY TYPE WINDOW
    """
)
# The parts that these have. Not among them: a sample of rows, which differs from run to run, and
# the version of a table.
_PARTS = _words(
    """
    type class alias query_location query_location_length node cte_map map key value
    materialized aliases key_targets query_node select_list from_table where_clause
    group_expressions group_sets aggregate_handling having qualify modifiers orders null_order
    expression limit offset distinct_on_targets setop_type setop_all children left right
    cte_name union_all table_name qualified_name path column_name_alias values subquery
    join_type ref_type condition using_columns is_implicit function with_ordinality
    column_names index identifier limit_type literal kind text input lower upper case_checks
    when_expr then_expr else_expr child type_expr type_name try_cast collation function_name
    schema catalog order_bys is_operator arguments name filter distinct lhs expr syntax_type
    subquery_type comparison_type partitions start end start_expr end_expr exclude_clause
    filter_expr ignore_nulls has_ignore_nulls arg_orders relation_name exclude_list
    qualified_exclude_list replace_list rename_list columns column table schema_name
    catalog_name
    """
)
_TABLE_FUNCTIONS = frozenset({"unnest", "range", "generate_series"})
# Functions whose second argument names an aggregate.
_AGGREGATING = frozenset(
    {"list_aggr", "list_aggregate", "array_aggr", "array_aggregate", "aggregate"}
)
# Written without brackets these are calls, where no column has the name.
VALUE_NAMES = re.compile(
    r"current_(catalog|database|date|role|schema|time|timestamp|user)|localtime(stamp)?"
    r"|(session_)?user"
)
_NUMBERS = ("INTEGER", "DECIMAL", "FLOAT", "DOUBLE", "NUMERIC")  # kinds of literals
ARITHMETIC = ("+", "-", "*", "/", "//", "%", "**", "^")
# What arithmetic may hold beside parameters: nothing, one, two, and factors between units.
UNITS = {
    -1,
    0,
    1,
    2,
    8,
    24,
    60,
    3600,
    *(10**n for n in range(1, 13)),
    *(2**n for n in (10, 20, 30)),
}
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
class Named:
    """A table that is read, outside of the statement's own CTEs, or a function that is called."""

    name: str
    offset: int


@dataclass(frozen=True)
class FactSql:
    """A fact's SELECT: the tables it reads, the `$names` it binds, what it may not do.

    `bare_numbers` are thresholds written into comparisons, with offsets; 0, 1 and 2 only
    distinguish none, one and several. `bare_factors` are those written into arithmetic, but for the
    factors between units.
    """

    sql: str
    reads: tuple[Named, ...]
    params: tuple[tuple[str, int], ...]
    ordered: bool
    faults: tuple[SqlFault, ...]
    calls: tuple[Named, ...] = ()
    bare_numbers: tuple[tuple[str, int], ...] = ()
    bare_factors: tuple[tuple[str, int], ...] = ()

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
    refused = _too_much(sql)
    if refused is not None:
        return FactSql(sql, (), (), False, (refused,))
    walk = _Walk(sql)
    try:
        found = con.execute(_PARSE, {"sql": sql}).fetchone()
        parsed = json.loads(found[0]) if found else {}
        if parsed.get("error"):
            return FactSql(sql, (), (), False, (_parse_fault(sql, parsed),))
        statements = parsed.get("statements", [])
        if len(statements) != 1:
            fault = SqlFault(f"a fact is exactly one SELECT, these are {len(statements)}")
            return FactSql(sql, (), (), False, (fault,))
        node = statements[0]["node"]
        walk.visit(node, frozenset(), 0)
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
        tuple(walk.calls),
        tuple(walk.bare_numbers),
        tuple(walk.bare_factors),
    )


def _too_much(sql: str) -> SqlFault | None:
    """Why a text must not reach DuckDB's parser, which has no limits of its own."""
    if len(sql) > LONGEST_FACT:
        message = f"{len(sql):,} characters; a fact has at most {LONGEST_FACT:,}"
        return SqlFault(message, LONGEST_FACT)
    strange = re.search(r"[^\t\n\r\x20-\ud7ff\ue000-\U0010ffff]", sql)
    if strange is not None:
        return SqlFault("a character that is not valid in SQL", strange.start())
    depth = 0
    for bracket in re.finditer(r"[(\[{}\])]", sql):
        depth += 1 if bracket[0] in "([{" else -1
        if depth > DEEPEST_FACT:
            message = f"brackets nested more than {DEEPEST_FACT} deep"
            return SqlFault(message, bracket.start())
    return None


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
        self.reads: list[Named] = []
        self.calls: list[Named] = []
        self.params: list[tuple[str, int]] = []
        self.faults: list[SqlFault] = []
        self.bare_numbers: list[tuple[str, int]] = []
        self.bare_factors: list[tuple[str, int]] = []

    def visit(self, node: Any, scope: frozenset[str], at: int) -> None:
        """Look at a node and all below it; `at` is the byte at which the nearest one above is."""
        if isinstance(node, list):
            for item in node:
                self.visit(item, scope, at)
        elif isinstance(node, dict):
            at = _location(node, at)
            if not self._allows(node, at):
                return
            if "cte_map" in node:
                scope = self._ctes(node["cte_map"].get("map", []), scope, at)
            self._look(node, scope, at)
            for key, value in node.items():
                if key != "cte_map" and isinstance(value, (dict, list)):
                    self.visit(value, scope, at)

    def _ctes(self, ctes: list[Any], scope: frozenset[str], at: int) -> frozenset[str]:
        for cte in ctes:
            name, body = cte["key"].lower(), cte["value"]["query_node"]
            inside = scope | {name} if body.get("type") == "RECURSIVE_CTE_NODE" else scope
            self.visit(cte["value"], inside, at)
            scope |= {name}
        return scope

    def _allows(self, node: dict[str, Any], at: int) -> bool:
        """Whether a node's kind and its parts are all on the lists."""
        kind, known = node.get("class"), _EXPRESSIONS
        if kind is None:
            kind, known = node.get("type"), _NODES
        strange = [] if kind is None or kind in known else [str(kind)]
        strange += sorted(node.keys() - _PARTS)
        path = node.get("qualified_name", {}).get("path", [])
        if strange:
            self._refuse(f"a fact is one SELECT and may not use {_in_words(strange[0])}", at)
        elif len(path) > 1:
            name = ".".join(path)
            self._refuse(f"`{name}`: a fact uses plain names, without a schema", at, len(name))
        return not strange

    def _look(self, node: dict[str, Any], scope: frozenset[str], at: int) -> None:
        kind = node.get("type")
        if kind == "BASE_TABLE":
            name = node["table_name"].strip('"').lower()
            if name not in scope:
                self.reads.append(Named(name, character(self.sql, at)))
        elif kind == "TABLE_FUNCTION":
            name = node["function"].get("function_name", "").lower()
            if name not in _TABLE_FUNCTIONS:
                self._refuse(f"a fact may not read from `{name}`", at, len(name))
        elif kind == "COLUMN_REF":
            name = node["column_names"][-1].lower()
            if len(node["column_names"]) == 1 and VALUE_NAMES.fullmatch(name):
                message = f"a fact may not use `{name}`: it computes from evidence alone"
                self._refuse(message, at, len(name))
        elif kind == "VALUE_PARAMETER":
            self.params.append((str(node.get("identifier", "?")), character(self.sql, at)))
        elif "function_name" in node:
            self._call(node, at)
        if node.get("class") in ("COMPARISON", "BETWEEN"):
            for side in ("left", "right", "lower", "upper"):
                self._number(node.get(side), at)

    def _call(self, node: dict[str, Any], at: int) -> None:
        name = node["function_name"].lower()
        self.calls.append(Named(name, character(self.sql, at)))
        if name in ARITHMETIC:
            for argument in node.get("arguments", []):
                self._factor(argument.get("expression"), at)
        if name not in _AGGREGATING:
            return
        # The name of an aggregate, as text: one that is computed could be any.
        arguments = [each.get("expression", {}) for each in node.get("arguments", [])[1:2]]
        literal = arguments[0].get("literal", {}) if arguments else {}
        if literal.get("kind") == "STRING":
            self.calls.append(Named(str(literal.get("text")).lower(), character(self.sql, at)))
        else:
            self._refuse(f"the aggregate of `{name}` must be named by a text", at, len(name))

    def _number(self, node: dict[str, Any] | None, at: int) -> None:
        literal = (node or {}).get("literal") or {}
        if node and literal.get("kind") in _NUMBERS:
            text = str(literal.get("text"))
            if text not in ("0", "1", "2"):
                self.bare_numbers.append((text, character(self.sql, _location(node, at))))

    def _factor(self, node: dict[str, Any] | None, at: int) -> None:
        literal = (node or {}).get("literal") or {}
        if node and literal.get("kind") in _NUMBERS and float(literal["text"]) not in UNITS:
            place = character(self.sql, _location(node, at))
            self.bare_factors.append((str(literal["text"]), place))

    def _refuse(self, message: str, at: int, length: int = 1) -> None:
        self.faults.append(SqlFault(message, character(self.sql, at), length))


def _location(node: dict[str, Any], otherwise: int) -> int:
    """The byte at which a node is written."""
    location = node.get("query_location", _NO_LOCATION)
    return int(location) if location < _NO_LOCATION else otherwise


def _in_words(kind: str) -> str:
    """`DELETE_QUERY_NODE` as DELETE, `at_clause` as AT."""
    return re.sub(r"(_QUERY)?_(NODE|REF|CLAUSE)$", "", kind.upper()).replace("_", " ")
