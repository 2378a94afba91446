"""`oncall draw stages`: the pipelines of one iteration, as text, a picture or a graph."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from oncall.cli.draw.pictures import PNG, SVG, Drawing, check_target, drawable, show
from oncall.cli.evidence import Evidence, evidence_of
from oncall.cli.options import JobOption
from oncall.cli.terminal import Interruptible
from oncall.core.errors import UsageError

if TYPE_CHECKING:
    from oncall.evidence.incident import Incident

_GRAPH, _DOT = ".json", ".dot"
_FORMER_TRACE = ".trace.json"


def stages(
    path: Evidence,
    job: JobOption = None,
    iteration: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            help="Iteration to draw. Default: one that did not end, else the slowest, else the "
            "last.",
        ),
    ] = None,
    pipeline: Annotated[
        list[int] | None,
        typer.Option(
            metavar="N",
            help="Pipeline to draw. Default: the one that the others wait for. Repeatable.",
        ),
    ] = None,
    ranks: Annotated[
        bool, typer.Option("--ranks", help="Draw a row for each rank instead of each stage.")
    ] = False,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="Write a picture (.svg, .png), or the trace graph (.dot, .json). Default: print "
            "text.",
        ),
    ] = None,
) -> None:
    """Draw what each pipeline stage did in one iteration.

    Each row is a stage, represented by its slowest rank. The critical path and the causes of a
    slow iteration are marked.

    A trace graph contains all pipelines unless you give --pipeline. `oncall export perfetto`
    writes all iterations.
    """
    from oncall.render.svg.stages import timeline_svg
    from oncall.render.text.stages import timeline_lines
    from oncall.views.stages.iterations import timeline

    if output is not None and output.name.endswith(_FORMER_TRACE):
        raise UsageError(f"--output {output}: `oncall export perfetto` writes all iterations now")
    check_target(output, (SVG, PNG, _DOT, _GRAPH))
    with evidence_of(path, job) as incident, Interruptible(incident.con), drawable():
        if output is not None and output.suffix in (_DOT, _GRAPH):
            _write_graph(incident, output, iteration, pipeline)
            typer.echo(str(output))
            return
        drawn = timeline(incident, iteration, pipeline or None, every_rank=ranks)
    show(Drawing(partial(timeline_lines, drawn), partial(timeline_svg, drawn)), output)


def _write_graph(
    incident: Incident, output: Path, iteration: int | None, pipelines: list[int] | None
) -> None:
    from oncall.render.trace import graph_dot, graph_json
    from oncall.views.stages.trace import read_graph

    graph = read_graph(incident, iteration, pipelines or None)
    written = graph_dot(graph) if output.suffix == _DOT else graph_json(graph)
    output.write_text(written, encoding="utf-8")
