"""The archive of former incidents that a console is configured to read."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from oncall.console.queries import GetSnapshot

from .conftest import Open


def test_an_archive_that_cannot_be_read_is_a_note(
    recorded: Callable[[str], Path],
    opened: Open,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    settings = tmp_path / "oncall" / "config.toml"
    settings.parent.mkdir()
    settings.write_text(f'[archive]\nplace = "{tmp_path}/nowhere"\n')
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    [note] = [
        one
        for one in opened(recorded("hang")).ask(GetSnapshot()).diagnosis.notes
        if one.startswith("without the archive of former incidents: ")
    ]
    assert "nowhere" in note
