"""`oncall probe`: have nodes ping each other now, and store the measurements in an incident."""

from __future__ import annotations

import random
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from oncall.cli.options import FormatOption, TextOrJson, check_targets
from oncall.core.errors import ExitCode, UsageError

if TYPE_CHECKING:
    from oncall.evidence.incident import Incident
    from oncall.fleet.probe import Probed, ProbeOrder


_PEERS = 8  # of a node probed alone


def probe(
    hosts: Annotated[
        str | None,
        typer.Argument(
            metavar="[HOSTS]",
            help="Nodes to probe, such as gpu[001-016] or local:DIR/*. A single node pings some "
            "of the configured nodes.",
        ),
    ] = None,
    inventory: Annotated[
        Path | None, typer.Option(metavar="FILE", help="File that lists the nodes to probe.")
    ] = None,
    sources: Annotated[
        list[str] | None,
        typer.Option(
            "--from", metavar="NODE", help="Ping from these nodes only; all answer. Repeatable."
        ),
    ] = None,
    count: Annotated[
        int, typer.Option(metavar="N", min=1, max=200, help="Number of pings per pair.")
    ] = 20,
    bandwidth: Annotated[
        bool,
        typer.Option(
            "--bandwidth",
            help="Also measure bandwidth from each node to the next: at most 128 MiB and half a "
            "second.",
        ),
    ] = False,
    mesh: Annotated[
        bool,
        typer.Option("--mesh", help="Ping from every NIC to every NIC. Default: NIC k to NIC k."),
    ] = False,
    save: Annotated[
        Path | None,
        typer.Option(metavar="FILE.oncall", help="Save the measurements as a new incident."),
    ] = None,
    into: Annotated[
        Path | None,
        typer.Option(metavar="FILE.oncall", help="Add the measurements to a saved incident."),
    ] = None,
    format: FormatOption = TextOrJson.TEXT,  # noqa: A002
) -> None:
    """Have nodes ping each other and compare their latencies.

    Network latency is a UDP ping with kernel or NIC timestamps, minus the time spent in the
    target's program. End-to-end latency is an RDMA ping, hosts included.

    Each node sends at most 200 pings per second and stops listening afterwards. Press Ctrl-C to
    stop early and report what has arrived. Exits with 3 if some nodes could not be probed.
    """
    check_targets(save, into)
    from oncall.fleet.inventory import expand_hosts
    from oncall.fleet.merge import add_rows, measured_rows
    from oncall.fleet.probe import ProbeOrder
    from oncall.render.text import probe as report
    from oncall.views.probe import summarise

    with ExitStack() as stack:
        known: Incident | None = None
        if into is not None:
            from oncall.evidence.incident import Incident

            known = stack.enter_context(Incident.open(into))
        pinging = dict.fromkeys(one for each in sources or () for one in expand_hosts(each))
        order = ProbeOrder(tuple(pinging), count, bandwidth, mesh)
        probed = _run(hosts, inventory, order)
        measured = stack.enter_context(probed.incident)
        summary = summarise(measured.con)
        if into is not None and known is not None:
            add_rows(known, measured_rows(measured))
            known.save(into)
        if save is not None:
            measured.save(save)
    written = report.to_json if format is TextOrJson.JSON else report.to_text
    sys.stdout.write(written(probed, summary))
    whole = all(outcome.kind == "ok" for outcome in probed.outcomes.values())
    raise typer.Exit(ExitCode.HEALTHY if whole else ExitCode.TOO_LITTLE_COVERAGE)


def _run(hosts: str | None, inventory: Path | None, order: ProbeOrder) -> Probed:
    from oncall.cli.terminal import over_nodes, report_lost
    from oncall.fleet.probe import probe_fleet
    from oncall.fleet.reach import reach_fleet

    reach = reach_fleet(hosts, inventory)
    probed_hosts = reach.hosts
    if len(probed_hosts) == 1 and hosts is not None:
        probed_hosts += _peers(probed_hosts[0], hosts)

    probed = over_nodes(
        reach,
        lambda transport, progress: probe_fleet(
            transport,
            probed_hosts,
            order,
            patience_s=reach.patience_s,
            tree=reach.tree,
            progress=progress,
        ),
    )
    report_lost(probed.lost_gateways)
    return probed


def _peers(host: str, hosts_option: str) -> tuple[str, ...]:
    """Random other hosts of the fleet. Raises UsageError if none is configured."""
    from oncall.fleet.configuration import read_configuration
    from oncall.fleet.inventory import find_hosts
    from oncall.fleet.local import PREFIX

    local = hosts_option.startswith(PREFIX)
    fleet = None if local else find_hosts(None, None, read_configuration())
    others = [other for other in fleet.hosts if other != host] if fleet is not None else []
    if not others:
        raise UsageError(
            f"a probe needs two nodes: give others besides {host}, or set `hosts` under [fleet] "
            "in ~/.config/oncall/config.toml"
        )
    return tuple(random.sample(others, min(_PEERS, len(others))))
