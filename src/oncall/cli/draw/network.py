"""`oncall draw network|waiting|provenance`: what delayed a collective, as text or a picture."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from oncall.cli.draw.pictures import (
    Drawing,
    OutputOption,
    check_target,
    drawable,
    hash_of,
    show,
)
from oncall.cli.evidence import Evidence, evidence_of
from oncall.cli.options import JobOption
from oncall.cli.terminal import Interruptible
from oncall.core.errors import UsageError

if TYPE_CHECKING:
    from oncall.evidence.incident import Incident
    from oncall.views.network.waiting import Step, WaitingGraph

Comm = Annotated[
    str | None, typer.Option(metavar="HASH", help="Only collectives of this communicator.")
]
Seq = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        help="Sequence number of the collective. Default: the one that lost the most time.",
    ),
]


def _command(drawn: Callable[[Incident, WaitingGraph], Drawing]) -> Callable[..., None]:
    """The command for a drawing: adds the shared options and finds the collective they choose."""

    def command(
        path: Evidence,
        job: JobOption = None,
        comm: Comm = None,
        seq: Seq = None,
        output: OutputOption = None,
    ) -> None:
        from oncall.views.network.waiting import find_collective, waiting_graph

        check_target(output)
        wanted = hash_of(comm)
        with evidence_of(path, job) as incident, Interruptible(incident.con), drawable():
            graph = waiting_graph(incident, find_collective(incident, wanted, seq))
            drawing = drawn(incident, graph)
        show(drawing, output)

    command.__name__, command.__doc__ = drawn.__name__, drawn.__doc__
    return command


@_command
def waiting(_: Incident, graph: WaitingGraph) -> Drawing:
    """Draw which ranks waited for which in a collective.

    Each row is a sending rank; the critical path is marked. With many ranks, draws those where
    the critical path lost the most time and those that waited for them, and counts the rest.
    """
    from oncall.render.svg.waiting import waiting_svg
    from oncall.render.text.waiting import waiting_lines

    return Drawing(partial(waiting_lines, graph), partial(waiting_svg, graph))


@_command
def network(incident: Incident, graph: WaitingGraph) -> Drawing:
    """Draw the network in tiers and how PFC pauses spread.

    Shows the path of the pauses from their origin to the step of the critical path that lost the
    most time.
    """
    from oncall.analysis.network.network_paths import network_of
    from oncall.render.svg.topology import topology_svg
    from oncall.render.text.topology import topology_lines
    from oncall.views.network.topology import topology

    shown = topology(incident, network_of(incident.con), graph.collective, _worst(graph))
    if shown is None or not shown.roots:
        raise UsageError(_no_path(incident, graph))
    return Drawing(partial(topology_lines, shown), partial(topology_svg, shown))


@_command
def provenance(incident: Incident, graph: WaitingGraph) -> Drawing:
    """Draw the ports and flows that delayed a step.

    Shows the step of the critical path that lost the most time, the ports that delayed it, what
    those ports waited for, and the flows through them.
    """
    from oncall.analysis.network.network_paths import network_of
    from oncall.render.svg.provenance import provenance_svg
    from oncall.render.text.provenance import provenance_lines
    from oncall.views.network.provenance import provenance

    net, step = network_of(incident.con), _worst(graph)
    shown = provenance(incident, net, graph.collective, step)
    if shown is None:
        raise UsageError(_no_path(incident, graph))
    return Drawing(partial(provenance_lines, shown), partial(provenance_svg, shown))


def _worst(graph: WaitingGraph) -> Step:
    if graph.worst is None:
        raise UsageError(f"no step of the critical path of {graph.collective.name} was late")
    return graph.worst


def _no_path(incident: Incident, graph: WaitingGraph) -> str:
    """Why the step's path through the network is unknown."""
    from oncall.views.network.provenance import why_unseen

    unseen = why_unseen(incident, graph.collective, _worst(graph))
    return unseen or "no data about the path of the step through the network"
