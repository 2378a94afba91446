"""The command line as a process: what it imports, how it fails, what it returns."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import typer

from oncall.cli.commands import _COMMANDS, app
from oncall.cli.main import main
from oncall.core.errors import (
    BadInput,
    ExitCode,
    Interrupted,
    OncallError,
    Problem,
    RulebookError,
    UsageError,
)

from ..command import oncall

SOURCE = Path(__file__).parents[2] / "src"


def test_importing_the_command_line_is_light(python_prints: Callable[[str], str]) -> None:
    code = (
        "import sys, oncall.cli.commands; "
        "print([name for name in ('textual', 'duckdb', 'numpy', 'jinja2', 'pydantic', "
        "'ruamel.yaml', 'rich.console') if name in sys.modules])"
    )
    assert python_prints(code) == "[]"


def test_help_names_every_command_and_exit_code() -> None:
    shown = oncall("--help")
    assert shown.returncode == 0
    assert shown.stderr == ""
    for name in ("diagnose", "rules", "schema", "simulate", "3    diagnose: no fault found"):
        assert name in shown.stdout


def test_help_says_of_each_command_what_the_command_says() -> None:
    """The list of commands is shown without importing any, so it says it a second time."""
    commands = typer.main.get_command(app)
    context = commands.make_context("oncall", [], resilient_parsing=True)
    for name, (_, text) in _COMMANDS.items():
        own = commands.get_command(context, name).help  # type: ignore[attr-defined]
        assert " ".join(own.partition("\n\n")[0].split()) == text


def test_reading_recordings_loads_no_sockets(python_prints: Callable[[str], str]) -> None:
    code = (
        "import sys; from typer.testing import CliRunner; from oncall.cli.commands import app;"
        "CliRunner().invoke(app, ['diagnose', '/nowhere', '--job', 'a', '--param', 'a.b=1']);"
        "print('asyncio' in sys.modules)"
    )
    assert python_prints(code) == "False"


def test_version() -> None:
    assert oncall("--version").stdout.startswith("oncall ")


def test_a_reader_that_goes_away_is_no_error() -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "oncall.cli.main", "schema"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(SOURCE)},
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        said = process.stderr.read()
    assert process.returncode == ExitCode.BROKEN_PIPE
    assert said == b""


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is always full")
def test_a_full_disk_behind_the_output_is_reported() -> None:
    with Path("/dev/full").open("wb") as full:
        left = subprocess.run(
            [sys.executable, "-m", "oncall.cli.main", "schema"],
            stdout=full,
            stderr=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": str(SOURCE)},
            check=False,
        )
    assert left.returncode == ExitCode.BAD_INPUT
    assert left.stderr == b"oncall: No space left on device\n"


@pytest.mark.parametrize("closed", ["1>&-", "2>&-", "1>&- 2>&-"])
def test_closed_streams_are_no_error(closed: str) -> None:
    left = subprocess.run(
        ["/bin/sh", "-c", f'"$0" -m oncall.cli.main --version {closed}', sys.executable],
        capture_output=True,
        env={**os.environ, "PYTHONPATH": str(SOURCE)},
        check=False,
    )
    assert (left.returncode, left.stderr) == (ExitCode.HEALTHY, b"")


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> Callable[[BaseException], int]:
    """Run `oncall fail`, a command that raises the given error; returns the exit code."""

    def run(error: BaseException) -> int:
        def fail() -> None:
            raise error

        module = type(sys)("oncall.cli.failing")
        module.fail = fail  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "oncall.cli.failing", module)
        monkeypatch.setitem(_COMMANDS, "fail", ("failing:fail", ""))
        monkeypatch.setattr(sys, "argv", ["oncall", "fail"])
        with pytest.raises(SystemExit) as left:
            main()
        assert isinstance(left.value.code, int)
        return left.value.code

    return run


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (UsageError("no such thing"), 2, "oncall: no such thing\n"),
        (BadInput("dump.pkl", "truncated"), 2, "oncall: dump.pkl: truncated\n"),
        (
            RulebookError([Problem("a.yaml", 1, 1, "one"), Problem("a.yaml", 2, 1, "two")]),
            2,
            "a.yaml:1:1: error: one\na.yaml:2:1: error: two\n",
        ),
        (BadInput("dump\x1b[31m", "truncated"), 2, "oncall: dump\N{REPLACEMENT CHARACTER}[31m: "),
        (OSError(36, "File name too long", "aaa"), 2, "oncall: aaa: File name too long\n"),
        (KeyboardInterrupt(), 130, "oncall: interrupted\n"),
        (typer.Exit(3), 3, ""),
        (
            ModuleNotFoundError("No module named 'asyncssh'", name="asyncssh"),
            2,
            "oncall: this needs the Python package asyncssh, which is not installed here",
        ),
        (RuntimeError("boom"), 70, "oncall: internal error: RuntimeError: boom\n"),
    ],
)
def test_errors_become_a_message_and_a_code(
    failing: Callable[[BaseException], int],
    capsys: pytest.CaptureFixture[str],
    error: BaseException,
    code: int,
    said: str,
) -> None:
    assert failing(error) == code
    shown = capsys.readouterr()
    assert shown.err.startswith(said) if said else shown.err == ""
    assert "Traceback" not in shown.err
    assert shown.out == ""


def test_a_bug_shows_its_traceback_only_when_asked(
    failing: Callable[[BaseException], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ONCALL_DEBUG", "1")
    with pytest.raises(RuntimeError, match="boom"):
        failing(RuntimeError("boom"))


def test_every_actionable_error_is_bad_input() -> None:
    kinds = {*OncallError.__subclasses__()} - {Interrupted}
    assert {kind.exit_code for kind in kinds} == {ExitCode.BAD_INPUT}


def test_an_interrupt_while_the_commands_are_imported(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(**_: object) -> None:
        raise KeyboardInterrupt

    module = type(sys)("oncall.cli.commands")
    module.app = interrupted  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "oncall.cli.commands", module)
    with pytest.raises(SystemExit) as left:
        main()
    assert left.value.code == ExitCode.INTERRUPTED
    assert capsys.readouterr().err == "oncall: interrupted\n"


def test_a_real_interrupt() -> None:
    """SIGINT while it waits for a RAS server that never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(60)
        place = f"ras://127.0.0.1:{server.getsockname()[1]}"
        with subprocess.Popen(
            [sys.executable, "-m", "oncall.cli.main", "diagnose", place],
            stderr=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": str(SOURCE)},
        ) as process:
            connection, _ = server.accept()
            process.send_signal(signal.SIGINT)
            shown, said = process.communicate(timeout=60)
            connection.close()
    assert process.returncode == ExitCode.INTERRUPTED
    assert (shown, said) == (b"", b"oncall: interrupted\n")


@pytest.mark.parametrize("mebibytes", [400, 700, 900])
def test_too_little_room_is_said_before_a_library_ends_the_process(mebibytes: int) -> None:
    """numpy's OpenBLAS ends it with exit code 1, which means that a fault was found."""
    code = (
        f"import resource; resource.setrlimit(resource.RLIMIT_AS, ({mebibytes << 20},) * 2); "
        "from oncall.cli.start import run; run()"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, "diagnose", "log"], capture_output=True, text=True
    )
    assert done.returncode == ExitCode.BAD_INPUT
    assert f"{mebibytes} MiB on the address space of this process (ulimit -v)" in done.stderr


def test_memory_that_is_out_is_no_bug(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("oncall.cli.main._command", lambda: (_ for _ in ()).throw(MemoryError()))
    with pytest.raises(SystemExit) as left:
        main()
    assert left.value.code == ExitCode.BAD_INPUT
