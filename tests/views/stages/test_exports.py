"""The trace graph for other tools: JSON, Graphviz."""

from __future__ import annotations

import json
import shutil
import subprocess

import pytest

from oncall.core.errors import UsageError
from oncall.evidence.incident import Incident
from oncall.render.trace import graph_dot, graph_json
from oncall.views.stages.trace import read_graph


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


def test_an_iteration_that_is_not_there_is_refused(delayed: Incident) -> None:
    with pytest.raises(UsageError, match="iteration 99"):
        read_graph(delayed, 99)
