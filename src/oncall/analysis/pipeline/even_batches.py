"""What an iteration would take, were the work of its micro-batches even.

Replicas wait for one another at the end of each iteration, so the one that got the longest
sequences decides. The trace graph is walked once more with every micro-batch at the mean work of
its iteration, as the what-if analysis of ByteDance does with its tasks ("Understanding Stragglers
in Large Model Training Using What-if Analysis", OSDI '25).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import duckdb
import numpy as np

from oncall.analysis.pipeline.critical_path import NONE, Integers, Times, trace_graph
from oncall.analysis.pipeline.task_work import lower_middle
from oncall.evidence import relation


@relation(
    "even_batches",
    reads=["stage_vertices", "stage_paths", "training_iterations"],
    optional=["stage_expectation"],
    empty_without=["stage_paths"],
    columns=[
        ("job", "VARCHAR", "", "the job"),
        ("iteration", "BIGINT", "", "a whole iteration after the first ones"),
        ("actual_ns", "DOUBLE", "ns", "what its slowest pipeline took, according to the graph"),
        ("even_ns", "DOUBLE", "ns", "the same with every micro-batch at the mean work"),
    ],
    source="OSDI '25 what-if analysis (imbalance of sequence lengths)",
)
def even_batches(con: duckdb.DuckDBPyConnection) -> Mapping[str, Any]:
    """One row for each iteration."""
    found = con.execute(
        """SELECT job, iteration, p.vertex, p.duration_ns, e.baseline_ns,
            coalesce(latency_ns, 0) AS latency_ns, coalesce(hold_ns, 0) AS hold_ns,
            coalesce(previous, -1) AS previous, coalesce(source, -1) AS source,
            dense_rank() OVER (ORDER BY job, iteration) - 1 AS number,
            dense_rank() OVER (ORDER BY with_vertex) - 1 AS together,
            dense_rank() OVER (ORDER BY job, iteration, replica) - 1 AS pipeline,
            dense_rank() OVER (ORDER BY job, iteration, replica, micro_batch, task) - 1 AS batch
        FROM stage_paths p JOIN stage_vertices v USING (vertex)
        JOIN training_iterations i USING (job, iteration)
        LEFT JOIN stage_expectation e USING (job, replica, stage, chunk, task)
        WHERE i.whole AND NOT i.warm_up"""
    ).fetchnumpy()
    numbers = ("vertex", "previous", "source", "together", "number", "pipeline", "batch")
    vertex, previous, source, together, number, pipeline, batch = (
        np.asarray(found[name], np.int64) for name in numbers
    )
    times = ("duration_ns", "baseline_ns", "latency_ns", "hold_ns")
    took, baseline, latency, hold = (_floats(found[name]) for name in times)
    place = np.full(int(vertex.max(initial=NONE)) + 2, NONE)  # the last one for NONE
    place[vertex] = np.arange(len(vertex))
    graph = trace_graph(pipeline, place[previous], place[source], together)
    known = np.where(baseline > 0, baseline, np.nan)
    alike = took / batch_work(took / known, batch, number)
    iterations, first = np.unique(number, return_index=True)
    _, opening = np.unique(pipeline, return_index=True)

    def longest(duration: Times) -> Times:
        spans = np.zeros(len(iterations))
        ends = graph.spans(graph.earliest(duration, latency, hold))
        np.maximum.at(spans, number[opening], ends)
        return spans

    names = {name: np.asarray(found[name])[first] for name in ("job", "iteration")}
    return {**names, "actual_ns": longest(took), "even_ns": longest(alike)}


def batch_work(ratio: Times, batch: Integers, iteration: Integers) -> Times:
    """The work of each task's micro-batch (n,) over the mean of its iteration; 1 where unknown.

    `ratio` is what a task took over its baseline; of a batch's stages the lower middle counts,
    which one slow machine cannot lift.
    """
    middle, first, batch_of = lower_middle(ratio, batch)
    of = iteration[first]
    known = middle > 0  # a task that took no time carries no information
    count = np.bincount(of[known], minlength=int(of.max(initial=NONE)) + 1)
    total = np.bincount(of[known], middle[known], minlength=len(count))
    mean = total / np.maximum(count, 1)
    work = np.where(known, middle / np.where(count > 0, mean, 1.0)[of], 1.0)
    return np.asarray(work[batch_of])


def _floats(values: Any) -> Times:
    return np.ma.filled(np.ma.masked_array(values, dtype=np.float64), np.nan)
