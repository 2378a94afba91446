"""`oncall stacks PATH...`, and files that hold none."""

from __future__ import annotations

from pathlib import Path

import pytest

from ..command import oncall

FIXTURE = Path(__file__).parents[2] / "fixtures" / "stacks" / "checkpoint.txt"


def test_a_file_without_stacks_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("empty.txt").touch()
    done = oncall("stacks", FIXTURE, "empty.txt")
    assert done.returncode == 3 and "file empty.txt: empty file" in done.stdout
    assert oncall("stacks", FIXTURE).returncode == 0
