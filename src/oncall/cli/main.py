"""The console script: safe output streams, and an exit code for every outcome."""

from __future__ import annotations

import atexit
import gc
import os
import signal
import sys
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn, TextIO, cast

from oncall.cli.terminal import interrupts_reported
from oncall.core.errors import ExitCode
from oncall.core.printable import can_write, for_terminal, speaks_utf8, to_ascii
from oncall.core.room import lacking_room

# Commands that read no tables, as in `commands`; any other may be slower to start, no more.
_WITHOUT_TABLES = ("--help", "--version", "env", "explain", "hooks", "schema")


def run() -> NoReturn:
    """`main` in a process of its own, which leaves without freeing every object that it holds: that
    would take a tenth of a short diagnosis, and the system takes back the memory as a whole."""
    left_with: list[int] = []
    atexit.register(lambda: _leave(*left_with))  # called last, as it is registered first
    try:
        main()
    except SystemExit as left:
        if isinstance(left.code, int):
            left_with.append(left.code)
        raise


def _leave(*code: int) -> None:
    """End the process with that exit code; without one, or with output that cannot be written,
    Python ends it."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # nothing is left to put in order
    if code:
        with suppress(OSError):
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(*code)


def main() -> NoReturn:
    """Run `oncall`. Raises SystemExit with an `ExitCode`."""
    # Imports create a hundred thousand long-lived objects; scanning them for garbage again and
    # again takes a tenth of a whole diagnosis.
    gc.set_threshold(200_000, 20, 100)
    # Else numpy starts a thread per core for linear algebra, which oncall does not use.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    _guard_streams()
    try:
        _command()
    except KeyboardInterrupt:
        _end(ExitCode.INTERRUPTED, "interrupted")
    except Exception as error:
        if os.environ.get("ONCALL_DEBUG"):
            raise
        if package := _missing_package(error):
            _end(
                ExitCode.BAD_INPUT,
                f"this needs the Python package {package}, which is not installed here (the "
                "tarball for nodes has no console); run it where oncall was installed with pip",
            )
        if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryException":
            _end(ExitCode.BAD_INPUT, "out of memory: give fewer files, or run it elsewhere")
        _end(
            ExitCode.BUG,
            f"internal error: {type(error).__name__}: {error}\n"
            "Run the command again with ONCALL_DEBUG=1 and report the traceback.",
        )
    sys.exit(ExitCode.HEALTHY)


def _end(code: ExitCode, why: str) -> NoReturn:
    print(f"oncall: {why}", file=sys.stderr)
    sys.exit(code)


def _command() -> None:
    """Run the command of the arguments; imports none before it is known which."""
    if sys.argv[1:2] == ["node"]:
        from oncall.cli.node import main as node  # light: a node runs it for every request

        with interrupts_reported():
            node(sys.argv[2:])
    from oncall.cli.commands import app

    if sys.argv[1:2] and sys.argv[1] not in _WITHOUT_TABLES:
        if lacking := lacking_room():
            _end(ExitCode.BAD_INPUT, lacking)
        # While Ctrl-C still just ends the process: DuckDB's import aborts on KeyboardInterrupt.
        import duckdb  # noqa: F401
    with interrupts_reported():
        app(prog_name="oncall")


def _missing_package(error: Exception) -> str:
    """The foreign package whose absence it is; empty for any other error."""
    if not isinstance(error, ModuleNotFoundError) or error.name is None:
        return ""
    package = error.name.partition(".")[0]
    return "" if package == "oncall" else package


class SafeStream:
    """Wraps a text stream. Bytes written to its `buffer` are not filtered. What it cannot write, or
    a terminal not show, is written as the sign of ASCII that is most like it."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._plain = not can_write(stream.encoding) or (stream.isatty() and not speaks_utf8())

    def write(self, text: str) -> int:
        shown = for_terminal(text)
        self._stream.write(to_ascii(shown) if self._plain else shown)
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def _guard_streams() -> None:
    """Replace closed streams (`>&-`), print what the encoding lacks in ASCII, and filter control
    sequences."""
    if sys.stdout is None:
        sys.stdout = Path(os.devnull).open("w")  # noqa: SIM115 - open to the end
    if sys.stderr is None:
        sys.stderr = Path(os.devnull).open("w")  # noqa: SIM115 - open to the end
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(errors="replace")  # type: ignore[union-attr]
    # All output passes through these, also the error messages of the option parser.
    sys.stdout = cast(TextIO, SafeStream(sys.stdout))
    sys.stderr = cast(TextIO, SafeStream(sys.stderr))


if __name__ == "__main__":
    run()
