"""`oncall draw network|waiting|provenance`: what held a collective up, as text or a picture."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from oncall.cli.interrupt import interruptible
from oncall.cli.pictures import check_target, terminal, write_picture
from oncall.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from oncall.evidence.incident import Incident
    from oncall.report.network.waiting import Step, WaitingGraph

    Drawing = tuple[Callable[[int, bool], list[str]], Callable[[], str]]  # as text, as SVG

Evidence = Annotated[
    Path,
    typer.Argument(
        metavar="PATH", help="A saved incident, a recording, or a folder of nodes' shards."
    ),
]
Job = Annotated[str | None, typer.Option(help="The job, if there are several.")]
Comm = Annotated[
    str | None, typer.Option(metavar="HASH", help="Only collectives of this communicator.")
]
Seq = Annotated[
    int | None,
    typer.Option(metavar="N", help="The collective's number. Default: the one that lost most."),
]
Output = Annotated[
    Path | None,
    typer.Option(
        "--output", "-o", metavar="FILE", help="A picture (.svg, .png); default: text here."
    ),
]


def waiting(
    path: Evidence,
    job: Job = None,
    comm: Comm = None,
    seq: Seq = None,
    output: Output = None,
) -> None:
    """Draw who waited for whose step in a collective, with the critical path.

    A row is a sending rank. Of many ranks those are drawn that the critical path passes where it
    lost most, and those that waited for them; the rest is counted.
    """
    from oncall.report.network.waiting_svg import waiting_svg
    from oncall.report.network.waiting_text import waiting_lines

    def drawn(_: Incident, graph: WaitingGraph) -> Drawing:
        return (
            lambda width, plain: waiting_lines(graph, width, plain=plain),
            lambda: waiting_svg(graph),
        )

    _draw(path, job, (comm, seq), output, drawn)


def network(
    path: Evidence,
    job: Job = None,
    comm: Comm = None,
    seq: Seq = None,
    output: Output = None,
) -> None:
    """Draw the network in tiers, and the way the pauses took from where they began to the late
    step.

    It is the step of the critical path that lost most.
    """
    from oncall.analysis.network_paths import network_of
    from oncall.report.network.topology_evidence import topology
    from oncall.report.network.topology_svg import topology_svg
    from oncall.report.network.topology_text import topology_lines

    def drawn(incident: Incident, graph: WaitingGraph) -> Drawing:
        step = _worst(graph)
        shown = topology(incident, network_of(incident.con), graph.collective, step)
        if shown is None or not shown.roots:
            raise UsageError(_why(incident, graph))
        return (
            lambda width, plain: topology_lines(shown, width, plain=plain),
            lambda: topology_svg(shown),
        )

    _draw(path, job, (comm, seq), output, drawn)


def provenance(
    path: Evidence,
    job: Job = None,
    comm: Comm = None,
    seq: Seq = None,
    output: Output = None,
) -> None:
    """Draw the ports that held a late step up, what those waited for, and the flows in them.

    It is the step of the critical path that lost most.
    """
    from oncall.analysis.network_paths import network_of
    from oncall.report.network.provenance_svg import provenance_svg
    from oncall.report.network.provenance_text import provenance_lines
    from oncall.report.network.step_evidence import provenance

    def drawn(incident: Incident, graph: WaitingGraph) -> Drawing:
        step = _worst(graph)
        shown = provenance(incident, network_of(incident.con), graph.collective, step)
        if shown is None:
            raise UsageError(_why(incident, graph))
        return (
            lambda width, plain: provenance_lines(shown, width, plain=plain),
            lambda: provenance_svg(shown),
        )

    _draw(path, job, (comm, seq), output, drawn)


def _draw(
    path: Path,
    job: str | None,
    which: tuple[str | None, int | None],
    output: Path | None,
    drawn: Callable[[Incident, WaitingGraph], Drawing],
) -> None:
    from oncall.cli.draw_stages import evidence_of
    from oncall.evidence import window
    from oncall.report.network.evidence import find_collective, waiting_graph

    if output is not None:
        check_target(output)
    comm = _hash(which[0])
    with evidence_of(path, job) as incident, interruptible(incident.con):
        window.keep_job(incident.con, job)
        graph = waiting_graph(incident, find_collective(incident, comm, which[1]))
        as_text, as_svg = drawn(incident, graph)
    if output is not None:
        write_picture(output, as_svg())
        typer.echo(str(output))
        return
    plain, width = terminal()
    sys.stdout.write("\n".join(as_text(width, plain)) + "\n")


def _hash(comm: str | None) -> int | None:
    if comm is None:
        return None
    try:
        return int(comm, 16)
    except ValueError:
        raise UsageError(f"--comm {comm}: a communicator is a hash, such as 0x1f2e") from None


def _worst(graph: WaitingGraph) -> Step:
    if graph.worst is None:
        raise UsageError(f"no step of the critical path of {graph.collective.name} was late")
    return graph.worst


def _why(incident: Incident, graph: WaitingGraph) -> str:
    from oncall.report.network.step_evidence import why_unseen

    return why_unseen(incident, graph.collective, _worst(graph)) or "nothing is known of the way"
