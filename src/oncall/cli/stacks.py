"""`oncall stacks`: the Python stacks of all ranks of a job, folded, the odd one out first."""

from __future__ import annotations

import socket
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from oncall.cli.options import (
    FormatOption,
    HostsOption,
    SlurmJobOption,
    TextOrJson,
    check_targets,
    with_slurm_job,
)
from oncall.core.errors import ExitCode, UsageError

if TYPE_CHECKING:
    from oncall.evidence.incident import Incident
    from oncall.fleet.stacks import TakenStacks

_PROBLEMS = "SELECT problem, path FROM recordings WHERE problem IS NOT NULL ORDER BY path"


def stacks(
    paths: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="PATH...",
            help="Stacks that were taken before: py-spy, faulthandler, gdb py-bt, pystack. "
            "Default: take them now.",
        ),
    ] = None,
    job: Annotated[
        str | None, typer.Option(metavar="NAME", help="Job to look at, if there are several.")
    ] = None,
    hosts: HostsOption = None,
    slurm_job: SlurmJobOption = None,
    inventory: Annotated[
        Path | None, typer.Option(metavar="FILE", help="File that lists the nodes to ask.")
    ] = None,
    pid: Annotated[
        list[int] | None,
        typer.Option(metavar="PID", min=1, help="A process of this machine. Repeatable."),
    ] = None,
    looks: Annotated[
        int,
        typer.Option(
            metavar="N",
            min=1,
            max=5,
            help="How often to look at each process, every two seconds: shows what moves.",
        ),
    ] = 2,
    native: Annotated[
        bool,
        typer.Option(
            "--native/--no-native",
            help="With frames of C and C++: shows waits inside backward, but stops each process "
            "for up to a second; never longer than five.",
        ),
    ] = True,
    frames: Annotated[
        int, typer.Option(metavar="N", min=1, max=200, help="Frames to show of each stack.")
    ] = 10,
    save: Annotated[
        Path | None,
        typer.Option(metavar="FILE.oncall", help="Save the stacks as a new incident."),
    ] = None,
    into: Annotated[
        Path | None,
        typer.Option(metavar="FILE.oncall", help="Add the stacks to a saved incident."),
    ] = None,
    format: FormatOption = TextOrJson.TEXT,  # noqa: A002
) -> None:
    """Take the Python stacks of all ranks; the odd one comes first.

    Runs py-spy on each node, which must be installed there and may need root; without it, shows
    where the kernel has a process blocked. Without nodes to ask, looks at this machine.

    \b
    Examples:
      oncall stacks --job llama --hosts gpu[001-512]
      oncall stacks --pid 4312
      oncall stacks stacks/*.txt
      oncall stacks --job llama --save a.oncall; oncall diagnose a.oncall

    Exits with 3 if the stacks of some processes could not be taken, or a file holds none.
    """
    check_targets(save, into)
    hosts = with_slurm_job(hosts, slurm_job)
    live = any(one is not None for one in (hosts, inventory)) or pid
    if paths and live:
        raise UsageError("give either PATH... to read stacks or nodes and processes to look at")
    from oncall.core.errors import MissingEvidence
    from oncall.render.text import stacks as report
    from oncall.views.stacks import folded

    if paths:
        taken = _read(paths, job)
    else:
        taken = _take(job, hosts, inventory, pid or (), native=native, looks=looks)
    with taken.incident as incident:
        if save is not None:
            incident.save(save)
        if into is not None:
            _add(incident, into)
        try:
            seen = folded(incident)
        except MissingEvidence:
            missing = "; ".join(taken.problems) or "they hold none"
            raise UsageError(f"no stacks: {missing}") from None
    if format is TextOrJson.JSON:
        sys.stdout.write(report.to_json(seen, taken))
    else:
        sys.stdout.write(report.to_text(seen, taken, frames))
    failed = any(one.kind not in ("ok", "no-data") for one in taken.outcomes.values())
    incomplete = failed or bool(taken.problems)
    raise typer.Exit(ExitCode.TOO_LITTLE_COVERAGE if incomplete else ExitCode.HEALTHY)


def _read(paths: Sequence[Path], job: str | None) -> TakenStacks:
    from oncall.fleet.stacks import TakenStacks
    from oncall.use_case.recordings import read_evidence

    incident = read_evidence([str(path) for path in paths], job, False)
    problems: dict[str, list[str]] = {}
    for problem, path in incident.con.execute(_PROBLEMS).fetchall():
        problems.setdefault(problem, []).append(f"file {path}")
    return TakenStacks(incident, {}, problems)


def _take(
    job: str | None,
    hosts: str | None,
    inventory: Path | None,
    pids: Sequence[int],
    *,
    native: bool,
    looks: int,
) -> TakenStacks:
    """The stacks now: of these processes, of the nodes, or of this machine if there are none."""
    from oncall.fleet.stacks import fleet_stacks, local_stacks
    from oncall.node.store.places import run_dir

    if not pids and (hosts is not None or inventory is not None or _knows_hosts()):
        from oncall.cli.terminal import over_nodes, report_lost
        from oncall.fleet.reach import reach_fleet
        from oncall.node.store.wire import Request

        reach = reach_fleet(hosts, inventory)

        taken = over_nodes(
            reach,
            lambda transport, progress: fleet_stacks(
                transport,
                reach.hosts,
                Request("stacks", job=job, native=native, looks=looks),
                tree=reach.tree,
                progress=progress,
            ),
        )
        report_lost(taken.lost_gateways)
        return taken
    node = socket.gethostname().partition(".")[0]
    return local_stacks(run_dir(), node, job, pids, native=native, looks=looks)


def _knows_hosts() -> bool:
    """Whether nodes are configured, or this shell is in a Slurm allocation."""
    from oncall.fleet.configuration import read_configuration
    from oncall.fleet.inventory import find_hosts

    return find_hosts(None, None, read_configuration()) is not None


def _add(taken: Incident, into: Path) -> None:
    """Add the stacks to a saved incident, as those of its job."""
    from oncall.evidence.incident import Incident
    from oncall.fleet.merge import add_rows, measured_rows

    with Incident.open(into) as known:
        rows = measured_rows(taken)
        jobs = known.con.execute("SELECT DISTINCT job FROM jobs").fetchall()
        if len(jobs) == 1 and "thread_stacks" in rows:
            rows["thread_stacks"]["job"] = [jobs[0][0]] * len(rows["thread_stacks"]["job"])
        add_rows(known, rows)
        known.save(into)
