"""`oncall probe`: nodes ping one another now, and what they measure goes into an incident."""

from __future__ import annotations

import asyncio
import random
import sys
from contextlib import ExitStack
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from oncall.core.errors import ExitCode, UsageError

if TYPE_CHECKING:
    from oncall.evidence.incident import Incident
    from oncall.fleet.probe import Probed, ProbeOrder


_PEERS = 8  # of a node that is probed alone


class Format(StrEnum):
    """What is printed."""

    TEXT = "text"
    JSON = "json"


def probe(
    hosts: Annotated[
        str | None,
        typer.Argument(
            metavar="[HOSTS]",
            help="The nodes to probe, such as gpu[001-016], or local:DIR/*. Of one alone, some "
            "others of the configuration are its peers.",
        ),
    ] = None,
    inventory: Annotated[
        Path | None, typer.Option(metavar="FILE", help="A file with the nodes to probe.")
    ] = None,
    sources: Annotated[
        list[str] | None,
        typer.Option(
            "--from", metavar="NODE", help="Only these ping, and all others answer. Repeatable."
        ),
    ] = None,
    count: Annotated[
        int, typer.Option(metavar="N", min=1, max=200, help="Pings of each pair.")
    ] = 20,
    bandwidth: Annotated[
        bool,
        typer.Option(
            "--bandwidth",
            help="Also send at most 128 MiB and half a second from each node to the next.",
        ),
    ] = False,
    mesh: Annotated[
        bool, typer.Option("--mesh", help="Every NIC pings every NIC; else NIC k pings NIC k.")
    ] = False,
    save: Annotated[
        Path | None, typer.Option(metavar="FILE.oncall", help="Save what was measured.")
    ] = None,
    into: Annotated[
        Path | None,
        typer.Option(metavar="FILE.oncall", help="Add what was measured to a saved incident."),
    ] = None,
    format: Annotated[Format, typer.Option(help="What to print.")] = Format.TEXT,  # noqa: A002
) -> None:
    """Have nodes ping one another, by UDP and where they can by RDMA, and compare.

    Network latency is a UDP ping by the kernel's or the NIC's stamps, what the target's program
    takes taken off; end-to-end latency is an RDMA ping, hosts included. Each node sends at most
    200 pings a second; nothing keeps listening afterwards. Ctrl-C stops, with what has come.

    Exit codes: 0 probed, 2 usage, 3 some of the nodes could not be probed.
    """
    if save is not None and into is not None:
        raise UsageError("--save makes a new incident, --into adds to one: give one of them")
    from oncall.cli.diagnose import check_target
    from oncall.fleet.merge import add_probes, probe_rows
    from oncall.fleet.probe import ProbeOrder
    from oncall.render.text import probe as report
    from oncall.render.text.probe_summary import summarise

    with ExitStack() as stack:
        known: Incident | None = None
        if save is not None:
            check_target("--save", save)
        if into is not None:
            from oncall.evidence.incident import Incident

            check_target("--into", into)
            known = stack.enter_context(Incident.open(into))
        order = ProbeOrder(_expanded(sources or ()), count, bandwidth, mesh)
        probed = _run(hosts, inventory, order)
        measured = stack.enter_context(probed.incident)
        summary = summarise(measured.con)
        if into is not None and known is not None:
            add_probes(known, probe_rows(measured))
            known.save(into)
        if save is not None:
            measured.save(save)
    written = report.to_json if format is Format.JSON else report.to_text
    sys.stdout.write(written(probed, summary))
    whole = all(outcome.kind == "ok" for outcome in probed.outcomes.values())
    raise typer.Exit(ExitCode.HEALTHY if whole else ExitCode.TOO_LITTLE_COVERAGE)


def _expanded(sources: list[str] | tuple[str, ...]) -> tuple[str, ...]:
    if not sources:
        return ()
    from oncall.fleet.inventory import expand_hosts

    return tuple(dict.fromkeys(host for each in sources for host in expand_hosts(each)))


def _run(hosts: str | None, inventory: Path | None, order: ProbeOrder) -> Probed:
    from oncall.cli.gathering import progress_line
    from oncall.fleet.probe import probe_fleet
    from oncall.fleet.reach import opened, reach_fleet

    reach = reach_fleet(hosts, inventory)
    probed_hosts = reach.hosts
    if len(probed_hosts) == 1 and hosts is not None:
        probed_hosts += _peers(probed_hosts[0], hosts)

    async def ask() -> Probed:
        with progress_line() as progress:
            async with opened(reach.transport) as transport:
                return await probe_fleet(
                    transport,
                    probed_hosts,
                    order,
                    patience_s=reach.patience_s,
                    progress=progress,
                )

    return asyncio.run(ask())


def _peers(host: str, told: str) -> tuple[str, ...]:
    """Some other hosts of the fleet, by chance. Raises UsageError where none is configured."""
    from oncall.fleet.configuration import read_configuration
    from oncall.fleet.inventory import find_hosts
    from oncall.fleet.local import PREFIX

    fleet = None if told.startswith(PREFIX) else find_hosts(None, None, read_configuration())
    others = [other for other in fleet.hosts if other != host] if fleet is not None else []
    if not others:
        raise UsageError(
            f"a probe takes two nodes: name others beside {host}, or set hosts under [fleet] in "
            "~/.config/oncall/config.toml"
        )
    return tuple(random.sample(others, min(_PEERS, len(others))))
