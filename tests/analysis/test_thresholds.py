"""A number that decides something is a parameter, with its unit and reason."""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest

import oncall.analysis
from oncall.analysis.common.counters import BYTE_WRAPS, MOST_BYTES_PER_NS, MOST_EVENTS_PER_NS
from oncall.evidence.registry import all_relations
from oncall.rules.language.sql import ARITHMETIC, UNITS

SQL = {name: entry.sql for name, entry in all_relations().items() if entry.sql is not None}
# What no site could change: the sizes of counters, and what no port can count.
COUNTERS = {
    *(number for wrap in BYTE_WRAPS for number in (wrap, wrap - 1, wrap // 2)),
    MOST_BYTES_PER_NS,
    MOST_EVENTS_PER_NS,
}
ANALYSIS = Path(next(iter(oncall.analysis.__path__)))
ROOMS = ("common", "devices", "lost_time", "traffic", "tasks", "network")
# Numbers of a format, of mathematics or of the machine: no site could choose another.
FIXED = {
    "counters.BYTE_WRAPS",  # the widths of counters
    "counters.WRAPS",
    "counters.MOST_BYTES_PER_NS",  # what no port can count
    "counters.MOST_EVENTS_PER_NS",
    "judgement.BLOCKS",  # ranks that one host has
    "programs.ABSENT",  # no rank
    "causes._MOST_NUMBERS",  # that fit into memory
    "arrays._NUMBERS_AT_ONCE",
    "graph._NUMBERS_AT_ONCE",
    "call_patterns._ODD",  # mixes the bits of a hash
    "labelled_tasks._CALLS_AT_ONCE",  # in the cache of a processor
    "labelled_tasks._ROWS_AT_ONCE",  # in memory before they are stored
    "ordering.AT_ONCE",  # in memory before they are in order
    "clock_offsets._DEVIATION",  # of a normal distribution
    "judgement._QUANTILES",  # what the columns low and high are
    "latency._TURNS",  # which no result depends on, as the last change nothing
    "latency._SETTLED",
    "books._TURNS",  # after which medians stay as they are
    *(f"offsets.{name}" for name in ("_WEIGHED", "_STEPS", "_CONVERGED", "_NOTHING")),  # the same
    "contradictions._MOST_NAMED",  # ranks that a sentence names
    "arrays._CLOSE",  # a table instead of sorting: no result depends on it
    "network_paths.FAR",  # further than any way
    "task_positions.NOWHERE",  # no place
    # What nodes label tasks by, as they are installed there; so does `thresholds` in tasks.
    *(f"parallelism.{name}" for name in ("SMALL_BYTES", "PAUSE_TIMES", "LONG_PAUSES")),
    *("parallelism.INTERLEAVED", "parallelism.MORE"),
}
_NUMBERS = ("INTEGER", "DECIMAL", "FLOAT", "DOUBLE", "NUMERIC")


def deciding(node: Any) -> Iterator[float]:
    """The literals in comparisons and arithmetic, at any depth; arguments of functions are not."""
    if isinstance(node, list):
        for one in node:
            yield from deciding(one)
    elif isinstance(node, dict):
        parts: list[Any] = []
        if node.get("class") in ("COMPARISON", "BETWEEN"):
            parts = [node.get(side) for side in ("left", "right", "lower", "upper")]
        elif node.get("function_name") in ARITHMETIC:
            parts = [argument.get("expression") for argument in node["arguments"]]
        for part in parts:
            literal = (part or {}).get("literal") or {}
            if literal.get("kind") in _NUMBERS:
                yield float(literal["text"])
        for value in node.values():
            yield from deciding(value)


@pytest.fixture(scope="module")
def con() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as connection:
        yield connection


@pytest.mark.parametrize("name", SQL)
def test_sql_of_relations_holds_no_threshold(name: str, con: duckdb.DuckDBPyConnection) -> None:
    ((text,),) = con.execute("SELECT json_serialize_sql(?)", [SQL[name]]).fetchall()
    parsed = json.loads(text)
    assert not parsed["error"]
    assert set(deciding(parsed)) <= UNITS | COUNTERS


def _numeric(value: ast.expr | None) -> bool:
    """Whether an expression is computed from numbers alone, one of them beyond -1, 0 and 1."""
    if value is None:
        return False
    numbers = [one.value for one in ast.walk(value) if isinstance(one, ast.Constant)]
    plain = all(isinstance(number, int | float) for number in numbers)
    called = any(isinstance(one, ast.Dict | ast.Set) for one in ast.walk(value))
    return plain and not called and any(abs(number) > 1 or number % 1 for number in numbers)


def constants(tree: ast.Module) -> set[str]:
    """Names that a module gives to numbers."""
    return {
        target.id
        for node in tree.body
        if isinstance(node, ast.Assign | ast.AnnAssign) and _numeric(node.value)
        for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
        if isinstance(target, ast.Name)
    }


def used(tree: ast.Module) -> Iterator[ast.expr]:
    """What is compared or calculated with, in functions and in the SQL that they write."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare | ast.BinOp | ast.Subscript | ast.FormattedValue):
            yield from (one for one in ast.walk(node) if isinstance(one, ast.expr))
        elif isinstance(node, ast.Call):
            yield from node.args
            yield from (keyword.value for keyword in node.keywords)


def test_modules_of_relations_hold_no_threshold() -> None:
    modules = {
        path.stem: ast.parse(path.read_text())
        for room in ROOMS
        for path in (ANALYSIS / room).rglob("*.py")
    }
    decided = {
        one.id for tree in modules.values() for one in used(tree) if isinstance(one, ast.Name)
    }
    found = {
        f"{module}.{name}" for module, tree in modules.items() for name in constants(tree) & decided
    }
    assert found == FIXED, "declare it by Param or decides, or say here why no site could change it"


def test_functions_of_relations_hold_no_share() -> None:
    """Shares but a half, which divides, in comparisons and arithmetic."""
    shares = [
        f"{path.stem}:{part.lineno}"
        for room in ROOMS
        for path in (ANALYSIS / room).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Compare | ast.BinOp)
        for part in ast.iter_child_nodes(node)
        if isinstance(part, ast.Constant)
        and isinstance(part.value, float)
        and part.value % 1
        and part.value != 0.5
    ]
    assert shares == []
