"""Benchmarks run rarely, so a name that moves would break one unseen."""

from __future__ import annotations

import ast
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"


@pytest.mark.parametrize("path", sorted(BENCHMARKS.rglob("*.py")), ids=lambda path: path.stem)
def test_a_benchmark_imports_only_what_there_is(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text())):
        if not isinstance(node, ast.ImportFrom) or not (node.module or "").startswith("oncall"):
            continue
        module = import_module(str(node.module))
        for name in node.names:
            submodule = f"{node.module}.{name.name}"
            assert hasattr(module, name.name) or find_spec(submodule), submodule


@pytest.fixture
def contributions(monkeypatch: pytest.MonkeyPatch) -> tuple[Any, Any]:
    """benchmarks/contributions.py, and what it asks of one recording."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return import_module("contributions"), import_module("contributions_ablation")


def test_a_relation_that_a_verdict_rests_on_changes_the_root_when_emptied(
    contributions: tuple[Any, Any],
) -> None:
    _, ablation = contributions
    recording = import_module("contributions_recordings").Recording(
        "wrong_op", "fixtures", BENCHMARKS.parent / "fixtures" / "flight_recorder" / "wrong_op"
    )
    (hang,) = (book for book in ablation.books() if book.name == "hang")
    read = {name for fact in hang.book.facts for name in ablation.facts()[f"hang.{fact}"].tables}
    wanted = {"relation": frozenset(read), "rulebook": frozenset({"hang"})}
    answer = ablation.looked_at(recording, wanted, {}, 60.0)
    assert {one["rulebook"] for one in answer["findings"] if one["root"]} == {"hang"}
    assert answer["ablated"]["rulebook"] == {"hang": "root"}
    assert "root" in answer["ablated"]["relation"].values()
    assert {*answer["ablated"]["relation"]} <= {*answer["behind"]["relation"]}
    assert {*answer["behind"]["fact"]} <= {*answer["fired"]["fact"]} <= {*answer["ran"]["fact"]}


def test_differences_are_named_alike_in_every_recording(contributions: tuple[Any, Any]) -> None:
    command, _ = contributions

    def answer(verdict: str, blame: str, exit_code: int = 1, **other: Any) -> dict[str, Any]:
        finding = {"rulebook": "hosts", "verdict": verdict, "blame": [blame], "confidence": 0.9}
        return {
            "exit": exit_code,
            "findings": [{**finding, "severity": "warning", "root": True, **other}],
        }

    def changes(old: dict[str, Any], new: dict[str, Any]) -> list[str]:
        return list(command.changes(old, new))

    one = answer("NIC", "node: node a")
    assert changes(one, one) == []
    assert changes(one, answer("NIC", "node: node b")) == ["other blame: hosts.NIC"]
    assert changes(one, answer("CABLE", "node: node a")) == [
        "other verdict on the same blame: hosts.NIC -> hosts.CABLE"
    ]
    idle = answer("NIC", "node: node a", 0, severity="info", root=False)
    assert changes(one, idle) == ["lost: hosts.NIC (now information)", "exit 1 -> 0"]
    assert changes(idle, one) == ["gained: hosts.NIC (was information)", "exit 0 -> 1"]
    assert changes(one, answer("NIC", "node: node a", confidence=0.5)) == [
        "confidence down: hosts.NIC"
    ]
