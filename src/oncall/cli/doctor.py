"""`oncall doctor`: check this machine or the nodes, and say what to type next."""

from __future__ import annotations

import socket
import sys
from collections.abc import Mapping
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from oncall.cli.options import FormatOption, TextOrJson
from oncall.core.errors import ExitCode, UsageError

if TYPE_CHECKING:
    from oncall.fleet.checkup.doctor import Checkup


def doctor(
    hosts: Annotated[
        str | None,
        typer.Argument(
            metavar="[HOSTS]",
            help="Nodes to check, such as gpu[001-512] or local:DIR/*. Default: this machine.",
        ),
    ] = None,
    inventory: Annotated[
        Path | None, typer.Option(metavar="FILE", help="File that lists the nodes to check.")
    ] = None,
    job: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Check what this running job would leave of an incident, and what to change.",
        ),
    ] = None,
    images: Annotated[
        list[Path] | None,
        typer.Option(
            "--image",
            metavar="DIR",
            help="Also check that the hooks load in the container image unpacked or mounted at "
            "DIR. Repeatable.",
        ),
    ] = None,
    format: FormatOption = TextOrJson.TEXT,  # noqa: A002
) -> None:
    """Check this machine or the nodes, and say what to fix.

    On this machine, also checks that the hooks load with the C library of every running process,
    containers included. A process whose glibc is older than the hooks need would exit at start.

    On each node, checks the connection, version, clock, collector, newest shard, free disk and
    recording jobs. Nodes with equal results share one line.

    With --job, checks what a running job would leave of an incident: reads those variables of its
    processes' environment that configure evidence (TORCH_*, NCCL_*, ONCALL_*, LD_PRELOAD,
    PYTHONFAULTHANDLER), and no others.

    Exits with 1 if a check failed. With --job, exits with 3 if some hosts or processes could not be
    checked.
    """
    from oncall.render.text import checkup

    if job is not None:
        if images:
            raise UsageError("--image checks a folder, --job a running job; give only one of them")
        raise typer.Exit(_check_job(job, hosts, inventory, format))

    if hosts is None and inventory is None:
        from oncall.fleet.checkup.doctor_here import check_here

        checks = check_here(images or ())
        well = all(check.state != "wrong" for check in checks)
        write_here = checkup.here_json if format is TextOrJson.JSON else checkup.here_text
        sys.stdout.write(write_here(checks))
    elif images:
        raise UsageError("--image checks a folder of this machine: omit HOSTS and --inventory")
    else:
        found = _check(hosts, inventory)
        well = all(one.well for one in found)
        write = checkup.fleet_json if format is TextOrJson.JSON else checkup.fleet_text
        sys.stdout.write(write(found))
    raise typer.Exit(ExitCode.HEALTHY if well else ExitCode.FINDING)


def _check_job(job: str, hosts: str | None, inventory: Path | None, format: TextOrJson) -> ExitCode:  # noqa: A002
    from oncall.cli.terminal import over_nodes
    from oncall.fleet.checkup.job_checkup import JobCheckup, check_job, check_job_here, not_checked
    from oncall.fleet.outcome import Outcome
    from oncall.fleet.reach import reach_fleet
    from oncall.node.store.places import run_dir
    from oncall.render.text import checkup

    found: list[JobCheckup]
    outcomes: Mapping[str, Outcome] = {}
    if hosts is None and inventory is None:
        node = socket.gethostname().partition(".")[0]
        found = check_job_here(run_dir(), job, node)
    else:
        reach = reach_fleet(hosts, inventory)
        found, outcomes = over_nodes(
            reach,
            lambda transport, progress: check_job(
                transport, reach.hosts, job, reach.patience_s, progress
            ),
        )
    write = checkup.job_json if format is TextOrJson.JSON else checkup.job_text
    sys.stdout.write(write(found, outcomes))
    if not_checked(outcomes) or not all(one.complete for one in found):
        return ExitCode.TOO_LITTLE_COVERAGE
    return ExitCode.HEALTHY if all(one.well for one in found) else ExitCode.FINDING


def _check(hosts: str | None, inventory: Path | None) -> list[Checkup]:
    """Check all hosts, with a progress line on a terminal."""
    from oncall.cli.terminal import over_nodes, status_line
    from oncall.fleet.checkup.doctor import check_fleet
    from oncall.fleet.reach import reach_fleet

    reach, done = reach_fleet(hosts, inventory), count(1)
    with status_line() as show:

        def checked(_: Checkup) -> None:
            show(f"{next(done)} of {len(reach.hosts)} nodes")

        return over_nodes(reach, lambda at, _: check_fleet(at, reach.hosts, checked))
