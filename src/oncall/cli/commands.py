"""`oncall`: the commands, each imported when it is asked for, and how their errors are told."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from oncall import __version__
from oncall.cli.rulebooks import More, WithSite
from oncall.cli.training import ToldTraining
from oncall.core.errors import ExitCode, OncallError, RulebookError, UsageError
from oncall.core.printable import LONGEST_LINE, clean_lines, shortened

# name -> module and attribute: a Typer application or a function
_COMMANDS = {
    "collect": ("oncall.cli.collect", "collect"),
    "demo": ("oncall.cli.demo", "demo"),
    "diagnose": ("oncall.cli.diagnose", "diagnose"),
    "doctor": ("oncall.cli.doctor", "doctor"),
    "draw": ("oncall.cli.draw", "app"),
    "hooks": ("oncall.cli.hooks", "app"),
    "open": ("oncall.cli.console", "open_"),
    "probe": ("oncall.cli.probe", "probe"),
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


app = typer.Typer(cls=_Commands, invoke_without_command=True, **_SETTINGS)


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"oncall {__version__}")
        raise typer.Exit


@app.callback()
def oncall(
    context: typer.Context,
    job: Annotated[str | None, typer.Option(help="Open the console on this job.")] = None,
    hosts: Annotated[
        str | None,
        typer.Option(
            metavar="NODESET", help="The nodes to ask, such as gpu[001-512], or local:DIR/*."
        ),
    ] = None,
    inventory: Annotated[
        Path | None, typer.Option(metavar="FILE", help="A file with the nodes to ask.")
    ] = None,
    rules: More = None,
    site_rules: WithSite = True,
    param: Annotated[
        list[str] | None,
        typer.Option(metavar="RULE.NAME=VALUE", help="A parameter of a rulebook. Repeatable."),
    ] = None,
    training: ToldTraining = None,
    version: Annotated[  # noqa: ARG001 - its callback leaves
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="The version."),
    ] = False,
) -> None:
    """Which rank, node, link or stage holds up a training job, and why.

    Without a command: the console, on the jobs that run on the nodes.

    Exit codes: 0 healthy, 1 a finding, 2 usage or bad input, 3 too little seen to say,
    70 a bug in oncall, 130 interrupted, 141 the reader of the output went away.
    """
    command = context.invoked_subcommand
    if command is None:
        from oncall.cli.console import watch

        watch(job, hosts, inventory, rules or (), site_rules, param or (), training)
    elif (
        any(one is not None for one in (job, hosts, inventory)) or rules or param or not site_rules
    ):
        raise UsageError(f"options of a command follow it: oncall {command} --job NAME ...")


@contextmanager
def told_plainly() -> Iterator[None]:
    """Errors that a person can act on leave as their message and their exit code."""
    try:
        yield
    except RulebookError as error:
        # Like a compiler's: a line that starts with file:line:column can be followed by editors.
        raise _left(error.exit_code, str(error)) from None
    except OncallError as error:
        raise _left(error.exit_code, f"oncall: {error}") from None
    except KeyboardInterrupt:
        raise _left(ExitCode.INTERRUPTED, "oncall: interrupted") from None
    except BrokenPipeError:
        _abandon_output()
        raise typer.Exit(ExitCode.BROKEN_PIPE) from None
    except OSError as error:
        # A full disk, a name too long: the machine refuses, and says what.
        _abandon_output()
        place = f"{error.filename!s}: " if error.filename else ""
        raise _left(ExitCode.BAD_INPUT, f"oncall: {place}{error.strerror or error}") from None


def _left(code: ExitCode, message: str) -> typer.Exit:
    # File names and contents are written by others, at any length.
    print(
        "\n".join(shortened(line, LONGEST_LINE) for line in clean_lines(message)), file=sys.stderr
    )
    return typer.Exit(code)


def _abandon_output() -> None:
    """What is still buffered must not be flushed into what cannot take it, at exit."""
    with suppress(OSError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
