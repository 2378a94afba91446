"""The C parts that were built with the package are found, or how to build them is said."""

from __future__ import annotations

import ctypes
from pathlib import Path

import pytest

import oncall
from oncall.native import NotBuilt, hooks_library, standin_folder


def test_the_hooks_can_be_loaded() -> None:
    library = ctypes.CDLL(str(hooks_library()))
    for symbol in ("ncclProfiler_v4", "ncclProfiler_v5", "ncclAllReduce"):
        assert hasattr(library, symbol)


def test_the_standin_lies_beside_them() -> None:
    names = {path.name for path in standin_folder().iterdir()}
    assert names == {"libnccl.so.2", "train", "collectives"}


def test_what_is_not_built_is_reported(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(oncall, "__path__", [str(tmp_path)])
    with pytest.raises(NotBuilt, match=r"liboncall_hooks\.so was not found: .*make native"):
        hooks_library()
    with pytest.raises(NotBuilt, match=r"libnccl\.so\.2 was not found"):
        standin_folder()
