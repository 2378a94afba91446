"""Benchmarks run rarely, so a name that moves would break one unseen."""

from __future__ import annotations

import ast
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"


@pytest.mark.parametrize("path", sorted(BENCHMARKS.glob("*.py")), ids=lambda path: path.stem)
def test_a_benchmark_imports_only_what_there_is(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text())):
        if not isinstance(node, ast.ImportFrom) or not (node.module or "").startswith("oncall"):
            continue
        module = import_module(str(node.module))
        for name in node.names:
            submodule = f"{node.module}.{name.name}"
            assert hasattr(module, name.name) or find_spec(submodule), submodule
