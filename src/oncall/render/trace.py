"""An iteration's graph of what waits for what for other programs: as JSON, and for Graphviz."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from itertools import groupby

from oncall.core.units import format_duration
from oncall.views.stages.timeline import LETTERS
from oncall.views.stages.trace import Edge, TraceGraph, Vertex

FORMAT = 1


def graph_json(graph: TraceGraph) -> str:
    """The graph as JSON: `vertices` with their `id`, `edges` between ids, the `critical_path`."""
    path = sorted(
        (one for one in graph.vertices if one.critical),
        key=lambda one: (one.replica, one.started_ns),
    )
    content = {
        "format": FORMAT,
        "job": graph.job,
        "iteration": graph.iteration,
        "vertices": [{"id": one.id, **asdict(one)} for one in graph.vertices],
        "edges": [
            {
                "from": edge.start.id,
                "to": edge.end.id,
                "kind": edge.kind,
                "latency_ns": edge.latency_ns,
            }
            for edge in graph.edges
        ],
        "critical_path": [one.id for one in path],
    }
    return json.dumps(content, indent=1) + "\n"


def graph_dot(graph: TraceGraph) -> str:
    """The graph for Graphviz: a row a stage, the critical path bold."""
    lines = [
        "digraph trace {",
        f'  label="{_quoted(graph.job)} iteration {graph.iteration}"; labelloc=t; rankdir=LR;',
        '  node [shape=box, style=filled, fontname="DejaVu Sans", fontsize=10];',
        *_stages(graph),
        *map(_edge, graph.edges),
        "}",
    ]
    return "\n".join(lines) + "\n"


def _stages(graph: TraceGraph) -> Iterator[str]:
    for (replica, stage), group in groupby(
        graph.vertices, key=lambda one: (one.replica, one.stage)
    ):
        yield f"  subgraph cluster_{replica}_{stage} {{"
        yield f'    label="pipeline {replica} stage {stage}"; color="#cccccc";'
        for one in group:
            yield f"    {_vertex(one)}"
        yield "  }"


def _vertex(one: Vertex) -> str:
    taken = "not finished" if one.duration_ns is None else format_duration(one.duration_ns)
    slack = "" if one.slack_ns is None else f"\\nslack {format_duration(one.slack_ns)}"
    chunk = f".{one.chunk}" if one.chunk else ""
    text = f"{LETTERS[one.task]}{one.micro_batch}{chunk} rank {one.rank}\\n{taken}{slack}"
    fill = "#a5d6f3" if one.task == "forward" else "#7fcdb6"
    edge = ', penwidth=3, fontname="DejaVu Sans Bold"' if one.critical else ""
    return f'"{one.id}" [label="{text}", fillcolor="{fill}"{edge}];'


def _edge(edge: Edge) -> str:
    style = "solid" if edge.kind == "send" else "dashed"
    critical = edge.start.critical and edge.end.critical
    width = ", penwidth=3" if critical else ""
    return f'  "{edge.start.id}" -> "{edge.end.id}" [style={style}{width}];'


def _quoted(text: str) -> str:
    """As Graphviz shows it in quotes: without its escapes and entities of HTML."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return escaped.replace("&", "&amp;")
