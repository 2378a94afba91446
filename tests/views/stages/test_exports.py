"""The trace graph for other tools: JSON, Graphviz, Perfetto."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections import defaultdict
from typing import Any

import pytest

from oncall.core.errors import UsageError
from oncall.evidence.incident import Incident
from oncall.render.trace import chrome_trace, graph_dot, graph_json
from oncall.views.stages.trace import read_graph


def trace(incident: Incident, iteration: int | None = None) -> list[dict[str, Any]]:
    events: list[dict[str, Any]] = json.loads("".join(chrome_trace(incident, iteration)))[
        "traceEvents"
    ]
    return events


def test_the_graph_holds_every_task_and_what_it_waits_for(delayed: Incident) -> None:
    graph = read_graph(delayed, 4)
    assert len(graph.vertices) == 2 * 4 * 2 * 4  # pipelines, stages, directions, micro-batches
    sends = [edge for edge in graph.edges if edge.kind == "send"]
    assert len(sends) == 2 * 3 * 2 * 4
    assert all(abs(edge.start.stage - edge.end.stage) == 1 for edge in sends)
    assert len(graph.edges) - len(sends) == 2 * 4 * (2 * 4 - 1)  # each rank's own order


def test_json_names_vertices_and_the_path(delayed: Incident) -> None:
    content = json.loads(graph_json(read_graph(delayed, 4, [1])))
    names = {vertex["id"] for vertex in content["vertices"]}
    assert len(names) == len(content["vertices"]) == 32
    assert "p1.s2.c0.B1" in content["critical_path"]
    assert {edge["from"] for edge in content["edges"]} | set(content["critical_path"]) <= names


def test_graphviz_reads_it(delayed: Incident) -> None:
    dot = graph_dot(read_graph(delayed, 4, [1]))
    assert dot.count(" -> ") == 3 * 2 * 4 + 4 * 7
    if shutil.which("dot"):
        done = subprocess.run(["dot", "-Tplain"], input=dot.encode(), capture_output=True)
        assert done.returncode == 0, done.stderr


def test_perfetto_gets_a_process_a_node_and_a_thread_a_rank(delayed: Incident) -> None:
    events = trace(delayed, 4)
    threads = {(e["pid"], e["tid"]) for e in events if e["ph"] == "X" and e["pid"] != 0}
    assert len(threads) == 8
    names = [e["args"]["name"] for e in events if e["name"] == "process_name"]
    assert names[0] == "critical path" and len(names) == 2
    assert min(e["ts"] for e in events if "ts" in e) == 0


@pytest.mark.parametrize("recorded", ["delayed", "grouped"])
def test_slices_of_a_thread_nest(recorded: str, request: pytest.FixtureRequest) -> None:
    """What Perfetto asks of complete events: one ends before the next begins, or holds it."""
    lanes = defaultdict(list)
    for event in trace(request.getfixturevalue(recorded)):
        if event["ph"] == "X":
            lanes[event["pid"], event["tid"]].append((event["ts"], event["ts"] + event["dur"]))
    for spans in lanes.values():
        open_until: list[float] = []
        for begin, end in sorted(spans, key=lambda span: (span[0], -span[1])):
            while open_until and open_until[-1] <= begin + 1e-3:
                open_until.pop()
            assert not open_until or end <= open_until[-1] + 1e-3
            open_until.append(end)


@pytest.mark.parametrize(("recorded", "pipelines"), [("delayed", 2), ("grouped", 1)])
def test_each_send_is_an_arrow_from_within_its_task_to_the_one_that_waits(
    recorded: str, pipelines: int, request: pytest.FixtureRequest
) -> None:
    events = trace(request.getfixturevalue(recorded), 4)
    starts = {e["id"]: e for e in events if e["ph"] == "s"}
    ends = {e["id"]: e for e in events if e["ph"] == "f"}
    assert len(starts) == pipelines * 3 * 2 * 4 and starts.keys() == ends.keys()
    slices = [e for e in events if e["ph"] == "X" and e["pid"] != 0]
    for number, start in starts.items():
        assert start["ts"] <= ends[number]["ts"]
        assert any(
            one["tid"] == start["tid"] and one["ts"] <= start["ts"] < one["ts"] + one["dur"]
            for one in slices
        )


def test_the_critical_path_has_a_track_of_its_own(delayed: Incident) -> None:
    path = [e for e in trace(delayed, 4) if e["ph"] == "X" and e["pid"] == 0]
    assert any(e["name"] == "B1 rank 5" and e["tid"] == 1 for e in path)


def test_an_iteration_that_is_not_there_is_refused_before_anything_is_written(
    delayed: Incident,
) -> None:
    with pytest.raises(UsageError, match="no iteration 99"):
        next(chrome_trace(delayed, 99))
    with pytest.raises(UsageError, match="iteration 99"):
        read_graph(delayed, 99)
