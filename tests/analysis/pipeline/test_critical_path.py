"""Critical paths: what the arrays say is what a walk along all paths finds."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from oncall.analysis.pipeline.critical_path import NONE, TraceGraph, trace_graph

Weights = tuple[TraceGraph, list[int], list[int], list[int]]


@st.composite
def graphs(draw: st.DrawFn) -> Weights:
    """Tasks of one or two pipelines, each after tasks of lower number, in mixed order."""
    size = draw(st.integers(1, 12))
    order = draw(st.permutations(range(size)))
    pipeline = [draw(st.integers(0, 1)) for _ in range(size)]
    previous, source = [NONE] * size, [NONE] * size
    for before in (previous, source):
        free = set(range(size))
        for place, task in enumerate(order):
            fit = sorted(t for t in order[:place] if t in free and pipeline[t] == pipeline[task])
            if fit and draw(st.booleans()):
                before[task] = draw(st.sampled_from(fit))
                free.discard(before[task])
    duration = draw(st.lists(st.integers(0, 50), min_size=size, max_size=size))
    latency, hold = (draw(st.lists(st.integers(0, 9), min_size=size, max_size=size)) for _ in "ab")
    arrays = (np.array(column, np.int64) for column in (pipeline, previous, source))
    return trace_graph(*arrays), duration, latency, hold


def longest_to(drawn: Weights, task: int) -> int:
    """The longest path that ends with `task`, by recursion."""
    graph, duration, latency, hold = drawn
    before = [0]
    if (previous := graph.previous[task]) != NONE:
        before.append(longest_to(drawn, previous) + hold[task])
    if (source := graph.source[task]) != NONE:
        before.append(longest_to(drawn, source) + latency[task])
    return max(before) + duration[task]


@given(graphs())
def test_earliest_ends_are_the_longest_paths(drawn: Weights) -> None:
    graph, *weights = drawn
    finish = graph.earliest(*(np.array(one, float) for one in weights))
    # What waits for nothing begins at 0, whatever it would be held.
    assert finish.tolist() == [longest_to(drawn, task) for task in range(len(finish))]


@given(graphs(), st.data())
def test_a_task_may_be_late_by_its_slack_and_no_more(drawn: Weights, data: st.DataObject) -> None:
    graph, *weights = drawn
    duration, latency, hold = (np.array(one, float) for one in weights)
    finish = graph.earliest(duration, latency, hold)
    spans = graph.spans(finish)
    slack = graph.latest(duration, latency, hold, spans) - finish
    assert (slack >= 0).all()
    task = data.draw(st.integers(0, len(duration) - 1))
    duration[task] += slack[task]
    assert graph.spans(graph.earliest(duration, latency, hold)).tolist() == spans.tolist()
    duration[task] += 1
    later = graph.spans(graph.earliest(duration, latency, hold))[graph.pipeline[task]]
    assert later == spans[graph.pipeline[task]] + 1


def test_tasks_in_a_cycle_have_no_time_and_harm_no_other() -> None:
    graph = trace_graph(np.array([0, 0, 0]), np.array([1, 0, NONE]), np.array([NONE] * 3))
    finish = graph.earliest(np.array([1.0, 2.0, 3.0]), np.zeros(3), np.zeros(3))
    assert np.isnan(finish[:2]).all() and finish[2] == 3
    assert graph.spans(finish).tolist() == [3]
