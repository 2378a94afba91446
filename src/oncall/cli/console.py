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
from oncall.cli.rulebooks import More, WithSite
from oncall.cli.training import ToldTraining, read_training
from oncall.core.configuration import configuration_files
from oncall.core.errors import BadInput, UsageError
from oncall.rules.site_folder import site_folder

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
    rules: More = None,
    site_rules: WithSite = True,
    param: Annotated[
        list[str] | None,
        typer.Option(
            metavar="RULE.NAME=VALUE", help="A parameter, e.g. hang.hang_after=30s. Repeatable."
        ),
    ] = None,
    training: ToldTraining = None,
) -> None:
    """Look into a saved incident, or recordings, in the console.

    Inside, ? explains every key. Needs a terminal; `oncall diagnose` prints instead.
    """
    for path in paths:
        if not path.exists():
            raise UsageError(f"{path}: no such file or folder")
    overrides = parse_overrides(param or ())
    told = read_training(training)
    site, problems = _site(site_rules)

    def opener() -> Session:
        from oncall.console.opening import open_recording

        return open_recording(paths, job, rules or (), overrides, site, told)

    recording = paths[0] if len(paths) == 1 and paths[0].is_file() else None
    _show(opener, job, recording, problems)


def watch(
    job: str | None,
    hosts: str | None,
    inventory: Path | None,
    rules: Sequence[Path],
    site_rules: bool,
    param: Sequence[str],
    training: str | None = None,
) -> None:
    """The console on the fleet. Does not return, but for errors before it is shown."""
    overrides: Mapping[str, str] = parse_overrides(param)
    told = read_training(training)
    site, problems = _site(site_rules)

    def opener() -> Session:
        from oncall.console.opening import open_fleet

        return open_fleet(hosts, inventory, job, rules, overrides, site, told)

    _show(opener, job, None, problems)


def _site(wanted: bool) -> tuple[Path | None, list[BadInput]]:
    """The folder of the site's rulebooks, and what is wrong with what would tell it."""
    return site_folder() if wanted else (None, [])


def _show(
    opener: Callable[[], Session],
    job: str | None,
    recording: Path | None,
    problems: Sequence[BadInput],
) -> NoReturn:
    """Run the console, and leave. It is imported by name: neither front end needs the other.
    `problems` of the configuration are told in it."""
    run = import_module("oncall.tui.run").run
    code = run(
        opener,
        job=job,
        recording=recording,
        configuration=configuration_files(),
        problems=problems,
    )
    # Everything is closed, and the interpreter's own end would take longer than all the rest.
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
