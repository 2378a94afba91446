"""`oncall stacks PATH...`, and files that hold none."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from oncall.cli.main import main

FIXTURE = Path(__file__).parents[2] / "fixtures" / "stacks" / "checkpoint.txt"


def exit_code(monkeypatch: pytest.MonkeyPatch, *paths: str) -> object:
    monkeypatch.setattr(sys, "argv", ["oncall", "stacks", *paths])
    with pytest.raises(SystemExit) as left:
        main()
    return left.value.code


def test_a_file_without_stacks_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("empty.txt").touch()
    assert exit_code(monkeypatch, str(FIXTURE), "empty.txt") == 3
    assert "file empty.txt: empty file" in capsys.readouterr().out
    assert exit_code(monkeypatch, str(FIXTURE)) == 0
