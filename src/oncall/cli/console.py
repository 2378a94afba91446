"""`oncall` alone and `oncall open`: the console on a running job, or on what one left behind."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from oncall.cli.diagnose import parse_overrides
from oncall.errors import UsageError

if TYPE_CHECKING:
    from oncall.console.session import Session


def open_(
    paths: Annotated[
        list[Path],
        typer.Argument(
            metavar="PATH...",
            help="A saved *.oncall, a folder of shards, or recordings of any kind that is known.",
        ),
    ],
    job: Annotated[str | None, typer.Option(help="The job, if there are several.")] = None,
    rules: Annotated[
        list[Path] | None,
        typer.Option(metavar="DIR", help="More rulebooks; a later one overrides. Repeatable."),
    ] = None,
    param: Annotated[
        list[str] | None,
        typer.Option(
            metavar="RULE.NAME=VALUE", help="A parameter, e.g. hang.hang_after=30s. Repeatable."
        ),
    ] = None,
) -> None:
    """Look into a saved incident, or recordings, in the console.

    Inside, ? explains every key. Needs a terminal; `oncall diagnose` prints instead.
    """
    for path in paths:
        if not path.exists():
            raise UsageError(f"{path}: no such file or folder")
    overrides = parse_overrides(param or ())

    def opener() -> Session:
        from oncall.console.opening import open_recording

        return open_recording(paths, job, rules or (), overrides)

    recording = paths[0] if len(paths) == 1 and paths[0].is_file() else None
    _show(opener, job, recording)


def watch(
    job: str | None,
    hosts: str | None,
    inventory: Path | None,
    rules: Sequence[Path],
    param: Sequence[str],
) -> None:
    """The console on the fleet. Does not return, but for errors before it is shown."""
    overrides: Mapping[str, str] = parse_overrides(param)

    def opener() -> Session:
        from oncall.console.opening import open_fleet

        return open_fleet(hosts, inventory, job, rules, overrides)

    _show(opener, job, None)


def _show(opener: Callable[[], Session], job: str | None, recording: Path | None) -> NoReturn:
    """Run the console, and leave. It is imported by name: neither front end needs the other."""
    from oncall.fleet.configuration import configuration_files

    run = import_module("oncall.tui.run").run
    code = run(opener, job=job, recording=recording, configuration=configuration_files())
    # Everything is closed, and the interpreter's own end would take longer than all the rest.
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
