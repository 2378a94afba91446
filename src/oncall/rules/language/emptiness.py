"""Which SELECTs are empty because something they read is: known from the syntax tree alone.

Most nights most facts are empty, and planning such a query costs as much as planning any other.
Where the answer is no row for certain, the query need not run. In doubt the answer is "not known".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

Node = Mapping[str, Any]
IsEmpty = Callable[[str], bool]

_OF_ONE_ROW = frozenset(
    (
        "abs",
        "concat",
        "concat_ws",
        "greatest",
        "least",
        "lower",
        "nullif",
        "printf",
        "round",
        "upper",
    )
)


def proven_empty(node: Node, is_empty: IsEmpty) -> bool:
    """Whether the query can return no row, given which tables have none.

    `node` is a query as json_serialize_sql writes it. `is_empty` is asked only about tables
    whose emptiness would decide, in the order in which they are joined.
    """
    return _query(node, is_empty, {})


def _query(node: Node, is_empty: IsEmpty, ctes: Mapping[str, Node]) -> bool:
    for cte in node.get("cte_map", {}).get("map", []):
        ctes = {**ctes, cte["key"].lower(): {**cte["value"]["query_node"], "scope": ctes}}
    match node.get("type"):
        case "SELECT_NODE":
            return _keeps_nothing(node) and _source(node.get("from_table", {}), is_empty, ctes)
        case "RECURSIVE_CTE_NODE":
            return _query(node["left"], is_empty, ctes)
        case "SET_OPERATION_NODE":
            branches = (_query(child, is_empty, ctes) for child in node.get("children", [{}]))
            if node.get("setop_type") == "UNION":
                return all(branches)
            return node.get("setop_type") in ("EXCEPT", "INTERSECT") and next(branches)
    return False


def _source(node: Node, is_empty: IsEmpty, ctes: Mapping[str, Node]) -> bool:
    """Whether a FROM gives no row."""
    match node.get("type"):
        case "BASE_TABLE":
            name = node["table_name"].strip('"').lower()
            if name in ctes:
                return _query(ctes[name], is_empty, ctes[name]["scope"])
            return is_empty(name)
        case "SUBQUERY":
            return _query(node["subquery"]["node"], is_empty, ctes)
        case "JOIN" if node.get("ref_type") in ("REGULAR", "CROSS"):
            sides = {
                "INNER": ("left", "right"),
                "SEMI": ("left", "right"),
                "LEFT": ("left",),
                "ANTI": ("left",),
                "RIGHT": ("right",),
            }.get(node.get("join_type", ""), ())
            return any(_source(node[side], is_empty, ctes) for side in sides)
    return False


def _keeps_nothing(node: Node) -> bool:
    """Whether a SELECT turns no row into no row; one that aggregates them all gives one."""
    if "group_sets" in node:
        return all(node["group_sets"])
    chosen = node.get("select_list", [])
    if node.get("aggregate_handling") == "FORCE_AGGREGATES":  # GROUP BY ALL: by the plain columns
        return any(column.get("class") == "COLUMN_REF" for column in chosen)
    return not any(_may_aggregate(node.get(part)) for part in ("select_list", "having", "qualify"))


def _may_aggregate(expression: Any) -> bool:
    """Whether an expression calls a function that is not known to work on single rows."""
    if isinstance(expression, list):
        return any(map(_may_aggregate, expression))
    if not isinstance(expression, Mapping):
        return False
    if expression.get("class") == "FUNCTION" and not expression.get("is_operator"):
        name = expression.get("function_name", "").lower()
        return name not in _OF_ONE_ROW or _may_aggregate(expression.get("arguments"))
    return any(map(_may_aggregate, expression.values()))
