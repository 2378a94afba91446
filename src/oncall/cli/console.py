"""`oncall` without a command and `oncall open`: the console on running jobs or recordings."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from oncall.cli.offers import offer_what_lies_here
from oncall.cli.options import (
    JobOption,
    ParamOption,
    RulesOption,
    SiteRulesOption,
    SymptomOption,
    TrainingOption,
    parse_overrides,
    read_training,
)
from oncall.core.configuration import configuration_files
from oncall.core.errors import BadInput, UsageError
from oncall.core.symptom import Symptom, with_symptom
from oncall.rules.site_folder import site_folder

if TYPE_CHECKING:
    from oncall.console.session import Session
    from oncall.demo.orders import Controls


def open_(
    paths: Annotated[
        list[Path],
        typer.Argument(
            metavar="PATH...",
            help="A saved incident (*.oncall), folders of shards, or recordings of any known "
            "format.",
        ),
    ],
    job: JobOption = None,
    rules: RulesOption = None,
    site_rules: SiteRulesOption = True,
    param: ParamOption = None,
    symptom: SymptomOption = Symptom.UNKNOWN,
    training: TrainingOption = None,
) -> None:
    """Open a saved incident or recordings in the console.

    Press ? for the keys. Needs a terminal; without one, use `oncall diagnose`.
    """
    for path in paths:
        if not path.exists():
            raise UsageError(f"{path}: no such file or folder")
    overrides = with_symptom(parse_overrides(param or ()), symptom)
    configured = read_training(training)

    def opener(site: Path | None) -> Session:
        from oncall.console.opening import open_recording

        return open_recording(paths, job, rules or (), overrides, site, configured)

    recording = paths[0] if len(paths) == 1 and paths[0].is_file() else None
    _show(opener, job, recording, site_rules)


def watch(
    job: str | None,
    hosts: str | None,
    inventory: Path | None,
    rules: Sequence[Path],
    site_rules: bool,
    param: Sequence[str],
    training: str | None = None,
) -> None:
    """Run the console on the fleet. Does not return; raises errors that occur before it opens."""
    if hosts is None and inventory is None:
        offer_what_lies_here()
    overrides: Mapping[str, str] = parse_overrides(param)
    configured = read_training(training)

    def opener(site: Path | None) -> Session:
        from oncall.console.opening import open_fleet

        return open_fleet(hosts, inventory, job, rules, overrides, site, configured)

    _show(opener, job, None, site_rules)


def _show(
    opener: Callable[[Path | None], Session],
    job: str | None,
    recording: Path | None,
    site_rules: bool,
) -> NoReturn:
    """Run the console, then exit. `opener` takes the folder of the site's rulebooks; errors of the
    configuration that names it are shown."""
    site, problems = site_folder() if site_rules else (None, [])
    code = run_console(partial(opener, site), job, recording, problems)
    # Everything is closed; the interpreter's own shutdown would take longer than all of it.
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def run_console(
    opener: Callable[[], Session],
    job: str | None,
    recording: Path | None = None,
    problems: Sequence[BadInput] = (),
    controls: Controls | None = None,
) -> int:
    """Show the console until it is left; returns the exit code. `controls`: of a demonstration.

    Imported by name: neither front end depends on the other."""
    code: int = import_module("oncall.tui.run").run(
        opener,
        job=job,
        recording=recording,
        configuration=configuration_files(),
        problems=problems,
        controls=controls,
    )
    return code
