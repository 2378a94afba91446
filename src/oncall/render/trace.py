"""Iterations for other programs: as a trace for Perfetto or chrome://tracing, a process a node, a
thread a rank; and one's graph of what waits for what, as JSON and for Graphviz.

The trace's format is Chrome's Trace Event Format (JSON), times in microseconds since the first
task: complete events `X` for tasks, asynchronous ones `b`, `e` for sends and receives, which
overlap, flow events `s`, `f` from each task to the one on another stage that works on what it sent.
The critical path has tracks of its own, one a pipeline, so that it is seen whatever a viewer
colours.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from itertools import groupby
from typing import Any

from oncall.core.printable import clean
from oncall.core.units import format_duration
from oncall.evidence.incident import Incident
from oncall.views.stages.timeline import COMPUTE, LETTERS
from oncall.views.stages.trace import (
    Edge,
    Trace,
    TracedTask,
    TraceGraph,
    Vertex,
    sends_of,
    tasks_of,
    traced,
)

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


_PATHS_PROCESS = 0
# Chrome's names of colours, which Perfetto takes too where it honours them.
_COLOURS = {"forward": "rail_response", "backward": "good"}
_CRITICAL_COLOUR = "terrible"
_Event = dict[str, Any]


def chrome_trace(incident: Incident, iteration: int | None = None) -> Iterator[str]:
    """The pieces of the JSON text, of one iteration or all. Raises UsageError at the first."""
    trace = traced(incident, iteration)
    about = {"job": trace.job, "origin_unix_ns": trace.first_ns}
    yield f'{{"displayTimeUnit": "ms", "otherData": {json.dumps(about)},\n"traceEvents": [\n'
    separator = ""
    for event in _events(incident, trace):
        yield f"{separator}{json.dumps(event)}"
        separator = ",\n"
    yield "\n]}\n"


def _events(incident: Incident, trace: Trace) -> Iterator[_Event]:
    # Node -> process number; ranks whose node is not known share one.
    processes = {node: number for number, node in enumerate(trace.nodes, _PATHS_PROCESS + 1)}
    yield from _names(trace, processes)
    ended_ns: dict[int, int] = {}
    for iteration in trace.iterations:  # one at a time, so that not all are held
        rows = tasks_of(incident, iteration, trace.first_ns)
        yield from _paths(rows, ended_ns)
        for number, row in enumerate(rows):
            yield from _task(number, row, processes)
        yield from _sends(incident, iteration, trace.first_ns, processes)


def _names(trace: Trace, processes: dict[str | None, int]) -> Iterator[_Event]:
    yield _name("process_name", _PATHS_PROCESS, 0, "critical path")
    for node, pid in processes.items():
        yield _name("process_name", pid, 0, clean(node) if node else "node unknown")
    for replica in trace.pipelines:
        yield _name("thread_name", _PATHS_PROCESS, replica, f"pipeline {replica}")
    for place, (node, rank, stage, of_pipeline) in enumerate(trace.ranks):
        pid, pipeline = processes[node], "" if of_pipeline is None else f", pipeline {of_pipeline}"
        yield _name("thread_name", pid, rank, f"rank {rank}: stage {stage}{pipeline}")
        order = {"sort_index": place}
        yield {"ph": "M", "name": "thread_sort_index", "pid": pid, "tid": rank, "args": order}


def _name(kind: str, pid: int, tid: int, name: str) -> _Event:
    return {"ph": "M", "name": kind, "pid": pid, "tid": tid, "args": {"name": name}}


def _paths(rows: list[TracedTask], ended_ns: dict[int, int]) -> Iterator[_Event]:
    """The critical path of each pipeline. Its tasks are of several ranks, and one begins after the
    other; `ended_ns` is where the path of each pipeline has come to so far."""
    by_replica: dict[int, list[TracedTask]] = {}
    for row in rows:
        if row.critical:
            by_replica.setdefault(row.replica or 0, []).append(row)
    for replica, path in by_replica.items():
        for row in path:
            at_ns = max(row.at_ns, ended_ns.get(replica, 0))
            if row.until_ns <= at_ns:
                continue
            ended_ns[replica] = row.until_ns
            yield _event(row) | {
                "name": f"{_name_of(row)} rank {row.rank}",
                "pid": _PATHS_PROCESS,
                "tid": replica,
                "ph": "X",
                "ts": at_ns / 1000,
                "dur": (row.until_ns - at_ns) / 1000,
            }


def _name_of(row: TracedTask) -> str:
    counted = row.task in COMPUTE and row.micro_batch is not None
    return f"{LETTERS[row.task]}{row.micro_batch}" if counted else row.task.replace("_", " ")


def _event(row: TracedTask) -> _Event:
    """What all events of a task have."""
    about = {
        "iteration": row.iteration,
        "task": row.task,
        "micro_batch": row.micro_batch,
        "chunk": row.chunk,
        "slack_us": None if row.slack_ns is None else row.slack_ns / 1000,
        "expected_us": None if row.expected_ns is None else row.expected_ns / 1000,
    }
    return {
        "cat": f"{row.task},critical" if row.critical else row.task,
        "ts": row.at_ns / 1000,
        "args": {key: value for key, value in about.items() if value is not None},
    }


def _task(number: int, row: TracedTask, processes: dict[str | None, int]) -> Iterator[_Event]:
    name = _name_of(row)
    event = _event(row) | {
        "name": f"{name}, not finished" if row.is_open else name,
        "pid": processes[row.node],
        "tid": row.rank,
    }
    if row.moves:
        event |= {
            "id": f"{row.iteration}.{row.rank}.{row.task}.{number}",
            "name": f"rank {row.rank} {name}",
        }
        yield event | {"ph": "b"}
        yield event | {"ph": "e", "ts": row.until_ns / 1000}
        return
    event |= {"ph": "X", "dur": (row.until_ns - row.at_ns) / 1000}
    if row.critical:
        event["cname"] = _CRITICAL_COLOUR
    elif row.task in _COLOURS:
        event["cname"] = _COLOURS[row.task]
    yield event


def _sends(
    incident: Incident, iteration: int, first_ns: int, processes: dict[str | None, int]
) -> Iterator[_Event]:
    """A flow from the end of the task that sends to the start of the one that waits for it."""
    found = sends_of(incident, iteration, first_ns)
    for number, (node, rank, sent_ns, to_node, to_rank, got_ns, name) in enumerate(found):
        flow = {"cat": "send", "name": f"send of {name}", "id": f"{iteration}.{number}"}
        # A flow begins within its slice, the last nanosecond of it; and it ends at one's start.
        yield flow | {
            "ph": "s",
            "pid": processes[node],
            "tid": rank,
            "ts": (sent_ns - 1) / 1000,
        }
        yield flow | {
            "ph": "f",
            "bp": "e",
            "pid": processes[to_node],
            "tid": to_rank,
            "ts": max(got_ns, sent_ns) / 1000,
        }
