"""What a slow command says on a terminal while it works."""

from __future__ import annotations

import io
import threading

import pytest

from oncall.cli.terminal import status_line


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_it_shows_one_line_that_fits_and_is_erased(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = _Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    monkeypatch.setenv("COLUMNS", "20")
    with status_line() as show:
        show("reading a file with a long name")
    assert terminal.getvalue() == "\r\x1b[Kreading a file with\r\x1b[K"


def test_a_text_that_changes_by_itself_is_shown_again(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = _Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    monkeypatch.setattr("oncall.cli.terminal._DRAW_EVERY_S", 0.001)
    third = threading.Event()
    said = iter(("one", "two", "three"))

    def text() -> str:
        word = next(said, "three")
        if word == "three":
            third.set()
        return word

    with status_line() as show:
        show(text)
        assert third.wait(60)
    assert terminal.getvalue().startswith("\r\x1b[Kone\r\x1b[Ktwo\r\x1b[K")
    assert terminal.getvalue().endswith("\r\x1b[K")


def test_a_pipe_gets_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    pipe = io.StringIO()
    monkeypatch.setattr("sys.stderr", pipe)
    with status_line() as show:
        show("reading")
    assert pipe.getvalue() == ""
