"""Terminals of any size: serial consoles, `docker exec -t` and expect give them none at all."""

from __future__ import annotations

import fcntl
import os
import pty
import struct
import subprocess
import sys
import termios
from pathlib import Path

import pytest


def _on_a_terminal(
    arguments: list[str], columns: int, said: bool = False, **variables: str
) -> tuple[int, str]:
    """The exit code of `oncall` on a terminal of that width, and what it showed; with what it
    `said` on stderr."""
    ours, its = pty.openpty()
    fcntl.ioctl(its, termios.TIOCSWINSZ, struct.pack("HHHH", 0, columns, 0, 0))
    environment = {**os.environ, "TERM": "xterm", **variables}
    if "COLUMNS" not in variables:
        environment.pop("COLUMNS", None)
    child = subprocess.Popen(
        [sys.executable, "-m", "oncall.cli.main", *arguments],
        stdin=its,
        stdout=its,
        stderr=its if said else subprocess.DEVNULL,
        env=environment,
        start_new_session=True,
    )
    os.close(its)
    shown = b""
    while True:
        try:
            some = os.read(ours, 1 << 16)
        except OSError:  # EIO: the terminal has no writer any more
            break
        if not some:
            break
        shown += some
    os.close(ours)
    return child.wait(), shown.decode(errors="replace")


@pytest.mark.parametrize(
    ("arguments", "code", "shown"),
    [
        (["diagnose", "{log}"], 1, "were not checked"),
        (["rules", "show", "hang"], 0, "H1"),
        (["explain", "H1"], 0, "H1"),
        (["--help"], 0, "diagnose"),
    ],
)
def test_a_terminal_without_a_size_shows_the_whole_answer(arguments, code, shown, log):
    arguments = [one.format(log=log) for one in arguments]
    ended, text = _on_a_terminal(arguments, columns=0)
    assert ended == code, text
    assert shown in text


def test_what_is_wrong_is_said_in_lines_that_fit(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("hello.txt").write_text("hello\n")
    ended, text = _on_a_terminal(["diagnose", "hello.txt"], columns=80, said=True)
    lines = text.rpartition("\x1b[K")[2].splitlines()
    assert ended == 2 and max(map(len, lines)) <= 80
    assert "NCCL RAS output (text or JSON, or ras://HOST:PORT)" in " ".join(lines)


def test_columns_decides_how_wide_a_report_is(log):
    _, narrow = _on_a_terminal(["diagnose", str(log), "--color", "never"], 0, COLUMNS="60")
    _, wide = _on_a_terminal(["diagnose", str(log), "--color", "never"], 0, COLUMNS="140")
    assert max(map(len, narrow.splitlines())) <= 60 < max(map(len, wide.splitlines()))


@pytest.fixture(scope="module")
def log(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("logs") / "rank0.log"
    path.write_text(
        "2026-11-20 03:02:11 gpu018: RuntimeError: CUDA error: an illegal memory access was "
        "encountered in a kernel of this process, which may be reported at some other call\n"
    )
    return path


def test_a_doubt_is_said_once_on_a_terminal(tmp_path: Path) -> None:
    log = tmp_path / "train.log"
    log.write_text("[rank0]: step 1 loss 2.3\n[rank0]: step 2 loss 2.2\n")
    ended, text = _on_a_terminal(["diagnose", str(log)], columns=80, said=True)
    assert ended == 3 and text.lower().count("inconclusive") == 1, text
