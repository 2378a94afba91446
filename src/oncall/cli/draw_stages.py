"""`oncall draw stages`: the pipelines of one training iteration as text, a picture or a graph."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from oncall.cli.interrupt import interruptible
from oncall.cli.pictures import PNG, SVG, Drawing, check_target, drawable, show
from oncall.core.errors import UsageError

if TYPE_CHECKING:
    from oncall.evidence.incident import Incident

_TRACE, _GRAPH, _DOT = ".trace.json", ".json", ".dot"


def stages(
    path: Annotated[
        Path,
        typer.Argument(
            metavar="PATH", help="A saved incident, a recording, or a folder of nodes' shards."
        ),
    ],
    job: Annotated[str | None, typer.Option(help="The job, if there are several.")] = None,
    iteration: Annotated[
        int | None,
        typer.Option(
            metavar="N", help="Default: one that does not end, else the slowest, else the last."
        ),
    ] = None,
    pipeline: Annotated[
        list[int] | None,
        typer.Option(metavar="N", help="Repeatable. Default: the one that the others wait for."),
    ] = None,
    ranks: Annotated[
        bool, typer.Option("--ranks", help="A row for every rank, instead of one for each stage.")
    ] = False,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="A picture (.svg, .png), the trace graph (.dot, .json), or all iterations for "
            "Perfetto (.trace.json); default: text here.",
        ),
    ] = None,
) -> None:
    """Draw what each stage of a pipeline did in one iteration, with the critical path.

    A row is a stage, told by the rank that decides how long it takes. What made a slow iteration
    slow is marked. Graphs are of all pipelines, unless some are named; a .trace.json holds all
    iterations, unless one is named.
    """
    from oncall.evidence import window
    from oncall.render.svg.stages import timeline_svg
    from oncall.render.text.stages import timeline_lines
    from oncall.views.stages.iterations import timeline

    if output is not None:
        check_target(output, (SVG, PNG, _DOT, _GRAPH))
    with evidence_of(path, job) as incident, interruptible(incident.con), drawable():
        window.keep_job(incident.con, job)
        if output is not None and not output.name.endswith((SVG, PNG)):
            _write_graph(incident, output, iteration, pipeline)
            typer.echo(str(output))
            return
        drawn = timeline(incident, iteration, pipeline or None, every_rank=ranks)
    show(Drawing(partial(timeline_lines, drawn), partial(timeline_svg, drawn)), output)


def evidence_of(path: Path, job: str | None) -> Incident:
    """What lies there; of shards what the rulebooks in force would ask the nodes for."""
    from oncall.cli.diagnose import read_evidence, shards_in

    shards = shards_in([str(path)])
    if not shards:
        return read_evidence([str(path)], job)
    from oncall.cli.gathering import Wanted, read_shards
    from oncall.cli.rulebooks import rulebooks_in_force

    rulebooks = rulebooks_in_force((), True, {}).in_force
    return read_shards(shards, Wanted(job), rulebooks).incident


def _write_graph(
    incident: Incident, output: Path, iteration: int | None, pipelines: list[int] | None
) -> None:
    if output.name.endswith(_TRACE):
        from oncall.render.chrome_trace import chrome_trace

        if pipelines:
            raise UsageError("--pipeline: a .trace.json holds all of them")
        pieces = chrome_trace(incident, iteration)
        first = next(pieces)  # what is refused is refused before a file is begun
        with output.open("w", encoding="utf-8") as file:
            file.write(first)
            file.writelines(pieces)
        return
    from oncall.render.trace_graph import graph_dot, graph_json, read_graph

    graph = read_graph(incident, iteration, pipelines or None)
    written = graph_dot(graph) if output.suffix == _DOT else graph_json(graph)
    output.write_text(written, encoding="utf-8")
