"""`oncall`: the commands, each imported when it is asked for, and the one place where an error
becomes a message on stderr and an exit code."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any, NoReturn

import typer
from typer.core import TyperGroup

from oncall import __version__
from oncall.errors import ExitCode, OncallError, RulebookError

# name -> module and attribute: a Typer application or a function
_COMMANDS = {
    "diagnose": ("oncall.cli.diagnose", "diagnose"),
    "rules": ("oncall.cli.rules", "app"),
    "schema": ("oncall.cli.schema", "schema"),
    "simulate": ("oncall.cli.simulate", "simulate"),
}
_SETTINGS: dict[str, Any] = {
    "add_completion": False,
    "pretty_exceptions_enable": False,
    "rich_markup_mode": None,
}


class _Commands(TyperGroup):
    """The commands by name; `oncall diagnose` never pays for importing `oncall rules`."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        # The names are all that typer needs to ask "did you mean".
        names: dict[str, Any] = dict.fromkeys(_COMMANDS)
        self.commands = names

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002
        return list(_COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ARG002
        if cmd_name not in _COMMANDS:
            return None
        module, attribute = _COMMANDS[cmd_name]
        found = getattr(import_module(module), attribute)
        if not isinstance(found, typer.Typer):
            alone = typer.Typer(**_SETTINGS)
            alone.command(name=cmd_name)(found)
            found = alone
        return typer.main.get_command(found)

    def invoke(self, ctx: Any) -> Any:
        with told_plainly():
            try:
                return super().invoke(ctx)
            finally:
                # A reader that went away shows here, not in the interpreter's last breath.
                sys.stdout.flush()


app = typer.Typer(cls=_Commands, no_args_is_help=True, **_SETTINGS)


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"oncall {__version__}")
        raise typer.Exit


@app.callback()
def oncall(
    version: bool = typer.Option(
        False, "--version", callback=_print_version, is_eager=True, help="Print the version."
    ),
) -> None:
    """Which rank, node, link or stage holds up a training job, and why.

    Exit codes: 0 healthy, 1 a finding, 2 usage or bad input, 3 too little seen to say,
    70 a bug in oncall, 130 interrupted, 141 the reader of the output went away.
    """


@contextmanager
def told_plainly() -> Iterator[None]:
    """Errors that a person can act on leave as their message and their exit code."""
    try:
        yield
    except RulebookError as error:
        # Like a compiler's: a line that starts with file:line:column can be followed by editors.
        print(error, file=sys.stderr)
        raise typer.Exit(error.exit_code) from None
    except OncallError as error:
        print(f"oncall: {error}", file=sys.stderr)
        raise typer.Exit(error.exit_code) from None
    except KeyboardInterrupt:
        print("oncall: interrupted", file=sys.stderr)
        raise typer.Exit(ExitCode.INTERRUPTED) from None
    except BrokenPipeError:
        # What is still buffered must not be flushed into the closed pipe at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise typer.Exit(ExitCode.BROKEN_PIPE) from None


def main() -> NoReturn:
    """The console script. Leaves by SystemExit with a code of `ExitCode`."""
    # Importing makes a hundred thousand objects that all stay: looking for garbage among them
    # again and again costs a tenth of a whole diagnosis.
    gc.set_threshold(100_000, 20, 100)
    for stream in (sys.stdout, sys.stderr):
        # A terminal that cannot show a glyph shows `?`; it is no reason to fail.
        stream.reconfigure(errors="replace")  # type: ignore[union-attr]
    try:
        app(prog_name="oncall")
    except Exception as error:
        if os.environ.get("ONCALL_DEBUG"):
            raise
        print(
            f"oncall: this is a bug: {type(error).__name__}: {error}\n"
            "Run it again with ONCALL_DEBUG=1 for the traceback, and report that.",
            file=sys.stderr,
        )
        sys.exit(ExitCode.BUG)
    sys.exit(ExitCode.HEALTHY)


if __name__ == "__main__":
    main()
