"""The program on a pseudo-terminal: it starts, it ends however it is ended, it leaves order."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from .terminal import SOURCE, terminal

RECORDING = str(Path(__file__).parents[2] / "fixtures" / "flight_recorder" / "not_entered")
HANGS = ("--symptom", "hung")  # the dump does not say when it was made


@pytest.fixture(autouse=True)
def _own_configuration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))


def children_of(pid: int) -> list[str]:
    listed = subprocess.run(
        ["ps", "-o", "pid=", "--ppid", str(pid)], capture_output=True, text=True
    )
    return listed.stdout.split()


def test_quit_leaves_the_terminal_clean_and_no_child() -> None:
    with terminal("open", RECORDING, *HANGS) as console:
        console.wait_for("Not-entered hang")
        children = children_of(console.pid)
        console.type("\x11")
        assert console.wait() == 0
        assert console.left_clean
        assert not [child for child in children if Path(f"/proc/{child}").exists()]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_it_as_quitting_does(number: signal.Signals) -> None:
    with terminal("open", RECORDING, *HANGS) as console:
        console.wait_for("Not-entered hang")
        console.signal(number)
        assert console.wait() == 128 + number
        assert console.left_clean


def test_it_ends_when_its_terminal_is_gone() -> None:
    with terminal("open", RECORDING, *HANGS) as console:
        console.wait_for("Not-entered hang")
        console.hang_up()
        console.wait()


def test_a_fault_of_ours_is_one_line_on_a_clean_terminal(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(
        "import oncall.tui.shell.asking as t\n"
        "def beat(self): raise KeyError('what')\n"
        "t.Asking.beat = beat\n"
    )
    path = os.pathsep.join([str(tmp_path), str(SOURCE)])
    with terminal("open", RECORDING, *HANGS, environment={"PYTHONPATH": path}) as console:
        assert console.wait() == 70
        assert console.left_clean
        last = console.seen[console.seen.rfind(b"\x1b[?1049l") :].decode()
        assert "oncall: internal error: KeyError: 'what'" in last
        assert "Traceback" not in last


def test_a_terminal_that_cannot_move_its_cursor_is_reported_what_to_set() -> None:
    with terminal("open", RECORDING, *HANGS, environment={"TERM": "dumb"}) as console:
        assert console.wait() == 2
        assert b"TERM=dumb" in console.seen and b"xterm-256color" in console.seen
        assert b"\x1b[" not in console.seen


def test_what_is_no_recording_is_reported_before_anything_is_drawn() -> None:
    with terminal("open", "/nowhere") as console:
        assert console.wait() == 2
        assert b"oncall: /nowhere: no such file or folder" in console.seen
        assert b"\x1b[?1049h" not in console.seen


def test_a_corrupt_recording_is_reported_in_the_console(tmp_path: Path) -> None:
    path = tmp_path / "night.oncall"
    path.write_bytes(b"\0" * 8 + b"DUCK" + b"\xff" * 5000)
    with terminal("open", str(path)) as console:
        console.wait_for("night.oncall")
        console.wait_for("try again")
        console.type("\x11")
        assert console.wait() == 0


def test_a_configuration_that_is_wrong_is_reported_and_does_not_stop_the_console(
    configure: Callable[[str], Path],
) -> None:
    configure('[rules]\nfolder = 3\n[keys]\nsvae = "S"\nquit = "Q"\n')
    with terminal("open", RECORDING, *HANGS, size=(200, 30)) as console:
        console.wait_for("[rules] folder is text")
        console.wait_for("and 1 more; see the log")
        console.wait_for("Not-entered hang")
        console.type("9")
        console.wait_for("svae: unknown action; did you mean save")
        console.type("Q")
        assert console.wait() == 0


def test_no_colour_and_no_utf8_are_respected() -> None:
    with terminal(
        "open", RECORDING, *HANGS, environment={"NO_COLOR": "1", "LC_ALL": "C"}
    ) as console:
        console.wait_for("Not-entered hang")
        console.type("\x11")
        console.wait()
        assert console.seen.isascii()
        assert not [
            code for code in console.seen.split(b"\x1b[") if code.startswith((b"38;2;2", b"31m"))
        ]


def test_without_a_terminal_the_way_to_print_is_named() -> None:
    left = subprocess.run(
        [sys.executable, "-m", "oncall.cli.main", "open", RECORDING],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(SOURCE)},
        stdin=subprocess.DEVNULL,
    )
    assert left.returncode == 2
    assert left.stderr == "oncall: the console needs a terminal; use `oncall diagnose` instead\n"


def test_the_first_frame_waits_for_no_database(python_prints: Callable[[str], str]) -> None:
    """What reads evidence is imported once the console is on the screen."""
    code = (
        "import sys, oncall.cli.main, oncall.tui.app, oncall.tui.screens.jobs\n"
        "print(sorted({'duckdb', 'numpy', 'ruamel', 'oncall.rules'} & {*sys.modules}))"
    )
    assert python_prints(code) == "[]"


def test_diagnose_does_not_pay_for_the_console() -> None:
    code = (
        "import sys; sys.argv = ['oncall', 'diagnose', sys.argv[1]]\n"
        "from oncall.cli.main import main\n"
        "try: main()\n"
        "except SystemExit: print([name for name in sys.modules if 'textual' in name])"
    )
    left = subprocess.run(
        [sys.executable, "-c", code, RECORDING],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(SOURCE)},
    )
    assert left.stdout.endswith("[]\n"), left.stderr
