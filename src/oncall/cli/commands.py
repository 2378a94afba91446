"""`oncall`: its commands, each imported on demand, and how their errors are printed."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from oncall import __version__
from oncall.cli.options import (
    HostsOption,
    InventoryOption,
    ParamOption,
    RulesOption,
    SiteRulesOption,
    SlurmJobOption,
    TrainingOption,
    with_slurm_job,
)
from oncall.cli.terminal import complain
from oncall.core.errors import ExitCode, OncallError, RulebookError, UsageError, of_system
from oncall.core.printable import LONGEST_LINE, clean_lines, shortened

# What one wants to do -> name -> module and attribute (a Typer application or a function), and what
# the help says of it.
_GROUPS = {
    "What is wrong": {
        "diagnose": ("diagnose:diagnose", "Find what hangs or slows a job, and what to do next."),
        "open": ("console:open_", "Open a saved incident or recordings in the console."),
        "compare": ("compare:compare", "Say what takes longer in one run than in another."),
        "explain": ("explain:explain", "Say what a verdict means, what excludes it, what to do."),
        "demo": ("demo:demo", "Run a small training job here, break it, and diagnose it."),
    },
    "A running job": {
        "watch": ("watch:watch", "Watch a job, and notify when it hangs or runs slow."),
        "stacks": (
            "stacks:stacks",
            "Take the Python stacks of all ranks; the odd one comes first.",
        ),
        "probe": ("probe:probe", "Have nodes ping each other and compare their latencies."),
    },
    "Recording": {
        "doctor": ("doctor:doctor", "Check this machine or the nodes, and say what to fix."),
        "env": ("env:env", "Print what to set so that the next incident leaves evidence."),
        "hooks": ("hooks:app", "Set up and inspect the hooks that record a job."),
        "collect": ("collect:collect", "Record the training processes of this node."),
    },
    "In other programs": {
        "draw": ("draw.app:app", "Draw recorded traffic, pipelines and networks."),
        "export": ("export:app", "Write an incident for Perfetto, pandas, polars or DuckDB."),
        "sql": ("sql:sql", "Ask an incident's tables and relations in SQL."),
        "mcp": ("mcp:mcp", "Answer agents over the Model Context Protocol."),
    },
    "Over the years": {
        "archive": ("archive:app", "Keep incidents and hourly roll-ups for years."),
        "history": ("history:history", "Show what was blamed, how often, and what fixed it."),
    },
    "Rules": {
        "rules": ("rules:app", "Check, test, show and write rulebooks."),
        "schema": ("schema:schema", "Print the tables and relations that SQL in rules can read."),
        "simulate": ("simulate:simulate", "Simulate a training cluster with faults."),
    },
}
_COMMANDS = {name: how for group in _GROUPS.values() for name, how in group.items()}
_SETTINGS: dict[str, Any] = {
    "add_completion": False,
    "pretty_exceptions_enable": False,
    "rich_markup_mode": None,
}


def group(help: str, **settings: Any) -> typer.Typer:  # noqa: A002
    """A command of several, to which each is added."""
    return typer.Typer(help=help, no_args_is_help=True, **_SETTINGS, **settings)


class _Commands(TyperGroup):
    """The commands by name. `oncall diagnose` never imports `oncall rules`."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        # Typer needs only the names for "did you mean".
        names: dict[str, Any] = dict.fromkeys(_COMMANDS)
        self.commands = names

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002
        return list(_COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ARG002
        if cmd_name not in _COMMANDS:
            return None
        module, attribute = _COMMANDS[cmd_name][0].split(":")
        found = getattr(import_module(f"oncall.cli.{module}"), attribute)
        if not isinstance(found, typer.Typer):
            alone = typer.Typer(**_SETTINGS)
            alone.command(name=cmd_name)(found)
            found = alone
        return typer.main.get_command(found)

    def format_commands(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002
        """List the commands without importing any."""
        for title, commands in _GROUPS.items():
            with formatter.section(title):
                formatter.write_dl([(name, text) for name, (_, text) in commands.items()])

    def invoke(self, ctx: Any) -> Any:
        with errors_reported():
            try:
                return super().invoke(ctx)
            finally:
                # A closed pipe must raise here, not while the interpreter exits.
                sys.stdout.flush()


app = typer.Typer(
    cls=_Commands, invoke_without_command=True, **{**_SETTINGS, "add_completion": True}
)


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"oncall {__version__}")
        raise typer.Exit


@app.callback()
def oncall(
    context: typer.Context,
    job: Annotated[str | None, typer.Option(metavar="NAME", help="Job to open.")] = None,
    hosts: HostsOption = None,
    slurm_job: SlurmJobOption = None,
    inventory: InventoryOption = None,
    rules: RulesOption = None,
    site_rules: SiteRulesOption = True,
    param: ParamOption = None,
    training: TrainingOption = None,
    version: Annotated[  # noqa: ARG001 - its callback exits
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version and exit."
        ),
    ] = False,
) -> None:
    """Find the rank, node, link or pipeline stage that hangs or slows a training job.

    Without a command, opens the console on the jobs that run on the nodes.

    \b
    Exit codes:
      0    no fault found (INFO findings included)
      1    diagnose: a fault; doctor: a failed check; demo: a wrong diagnosis
      2    usage error or bad input; rules test: a failed test
      3    diagnose: no fault found, and the evidence might not have shown one;
           probe, stacks, doctor --job: some nodes or processes could not be seen
      70   bug in oncall
      130  interrupted
      141  output pipe closed
    """
    hosts = with_slurm_job(hosts, slurm_job)
    command = context.invoked_subcommand
    if command is None:
        from oncall.cli.console import watch

        watch(job, hosts, inventory, rules or (), site_rules, param or (), training)
    elif (
        any(one is not None for one in (job, hosts, inventory)) or rules or param or not site_rules
    ):
        raise UsageError(
            f"put options after the command they belong to: oncall {command} --job NAME ..."
        )


@contextmanager
def errors_reported() -> Iterator[None]:
    """Turn errors that a person can act on into a message on stderr and an exit code."""
    try:
        yield
    except RulebookError as error:
        # Editors jump to a line that starts with file:line:column, as a compiler's does.
        raise _exit_with(error.exit_code, str(error)) from None
    except OncallError as error:
        raise _exit_with(error.exit_code, f"oncall: {error}") from None
    except KeyboardInterrupt:
        raise _exit_with(ExitCode.INTERRUPTED, "oncall: interrupted") from None
    except BrokenPipeError:
        _abandon_output()
        raise typer.Exit(ExitCode.BROKEN_PIPE) from None
    except OSError as error:
        _abandon_output()
        raise _exit_with(ExitCode.BAD_INPUT, f"oncall: {of_system(error)}") from None


def _exit_with(code: ExitCode, message: str) -> typer.Exit:
    # File names and contents are untrusted and may be long.
    complain(shortened(line, LONGEST_LINE) for line in clean_lines(message))
    return typer.Exit(code)


def _abandon_output() -> None:
    """Discard buffered output, so that exiting does not flush it into a broken stdout."""
    with suppress(OSError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
