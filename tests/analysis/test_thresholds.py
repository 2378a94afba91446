"""A number that decides something is a parameter, with its unit and reason."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import duckdb
import pytest

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
# Numbers that are no thresholds, or not parameters yet.
EXCEPTIONS: dict[str, set[float]] = {
    "job_traffic": {4},  # quarters of the recording
    "late_flows": {0.050000000000000044},  # what a late step exceeds; shared with waiting_graph
    "latency_split": {4},  # quarters of the time
    "nic_signs": {12},  # parts of the recording
    "nic_use": {12},
    "node_flow_steps": {2 << 20},  # NCCL's buffer
    "node_metrics": {4, 12},
    "outside_incasts": {5},  # a queue; shared with what pictures show
    "process_signs": {3},  # its last third
    "sender_links": {5},
    "step_flows": {5},
    "step_ports": {5},
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


@pytest.mark.parametrize("name", SQL)
def test_sql_of_relations_holds_no_threshold(name: str) -> None:
    with duckdb.connect() as con:
        ((text,),) = con.execute("SELECT json_serialize_sql(?)", [SQL[name]]).fetchall()
    parsed = json.loads(text)
    assert not parsed["error"]
    assert set(deciding(parsed)) - UNITS - COUNTERS <= EXCEPTIONS.get(name, set())
