"""What a slow stage costs: the time of an iteration if the stage had been as expected.

Following ByteDance (Understanding Stragglers in Large Model Training Using What-if Analysis, OSDI
'25), the trace graph is evaluated again with the tasks of one stage, or the transfers to it, at
their expected durations. The time that this saves, divided by the time that could be saved in
total, is the stage's share. Only the slowest pipelines of an iteration count (VenusTrace 3.3),
since pipelines that end earlier delay no other.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import duckdb
import numpy as np
from numpy.typing import NDArray

from oncall.analysis.pipeline.critical_path import NONE, Integers, Times, TraceGraph, trace_graph
from oncall.analysis.pipeline.stage_paths import exchanged, sent_to
from oncall.evidence import relation

_TIMES = ("took", "expected", "latency", "baseline_latency", "hold", "baseline_hold")


@dataclass(frozen=True)
class Lost:
    """Tasks (n,) of slow iterations: their graph, and what they and their inputs took and should
    have taken. `group` (p,) numbers the iteration of each pipeline 0.., `stage` (n,) the stages.
    `with_forward` (n,): backwards whose input was exchanged for a forward's in one group call;
    `alike`: by what part the ends of one call may differ.
    """

    graph: TraceGraph
    group: Integers
    stage: Integers
    took: Times
    expected: Times
    latency: Times
    baseline_latency: Times
    hold: Times
    baseline_hold: Times
    with_forward: NDArray[np.bool_]
    alike: float

    def transfers_to(self, stage: int) -> NDArray[np.bool_]:
        """What is sent to a stage (n,), and what it exchanges for that: given for forwards."""
        mine = (self.stage == stage) & ~self.with_forward
        other = exchanged(self.graph, self.latency, self.hold, self.alike)
        return np.asarray(mine | (self.with_forward & np.append(mine, False)[other]))

    def spans(self, tasks: NDArray[np.bool_], transfers: NDArray[np.bool_]) -> Times:
        """The time of each pipeline (p,) with those tasks and transfers (n,) as expected."""
        took = np.where(tasks, np.fmin(self.took, self.expected), self.took)
        latency = np.where(transfers, np.minimum(self.latency, self.baseline_latency), self.latency)
        sends = np.append(transfers, False)[sent_to(self.graph)]
        hold = np.where(sends, np.minimum(self.hold, self.baseline_hold), self.hold)
        return self.graph.spans(self.graph.earliest(took, latency, hold))

    def kept(self, pipelines: NDArray[np.bool_]) -> Lost:
        """Only these pipelines (p,)."""
        chosen = pipelines[self.graph.pipeline]
        number = np.append(np.cumsum(chosen) - 1, NONE)
        previous, source = (number[one[chosen]] for one in (self.graph.previous, self.graph.source))
        pipeline = (np.cumsum(pipelines) - 1)[self.graph.pipeline[chosen]]
        tasks = {name: getattr(self, name)[chosen] for name in ("stage", "with_forward", *_TIMES)}
        graph = trace_graph(pipeline, previous, source)
        return replace(self, graph=graph, group=self.group[pipelines], **tasks)


@relation(
    "stage_costs",
    reads=["stage_vertices", "stage_paths", "stage_expectation", "training_iterations"],
    empty_without=["stage_paths"],
    columns=[
        ("job", "VARCHAR", "", "the job"),
        ("iteration", "BIGINT", "", "an iteration that took longer than it should"),
        ("replica", "INTEGER", "", "one of its slowest pipelines"),
        ("stage", "INTEGER", "", "pipeline stage"),
        ("kind", "VARCHAR", "", "computation: its tasks; transfer: what is sent to it"),
        ("actual_ns", "BIGINT", "ns", "what the pipeline took"),
        ("without_ns", "BIGINT", "ns", "what it would have taken with this stage as expected"),
        ("normal_ns", "BIGINT", "ns", "what it would have taken with all as expected"),
        ("explained", "DOUBLE", "ratio", "share of the lost time that this stage explains"),
    ],
    source="OSDI '25 what-if analysis; VenusTrace 3.3 (scalability), Algorithm 2 (lines 17-22)",
    params={
        "others_below": "stage_paths.others_below",
        "slow_share": "training_iterations.slow_share",
        "slowest_part": "lost_time.mostly",
        "alike": "stage_vertices.together",
    },
)
def stage_costs(
    con: duckdb.DuckDBPyConnection,
    *,
    others_below: float,
    slow_share: float,
    slowest_part: float,
    alike: float,
) -> Mapping[str, Any]:
    """What each stage of the slowest pipelines costs in each slow iteration."""
    lost, names = _read(con, others_below, slow_share, alike)
    everything = np.ones(len(lost.took), np.bool_)
    normal = lost.spans(everything, everything)
    actual = lost.spans(~everything, ~everything)
    chosen = slowest(lost.group, actual, normal, slowest_part)
    lost, actual, normal = lost.kept(chosen), actual[chosen], normal[chosen]
    names = {name: values[chosen] for name, values in names.items()}
    rows: list[Mapping[str, Any]] = []
    nothing = np.zeros(len(lost.took), np.bool_)
    for stage in range(int(lost.stage.max(initial=0)) + 1):
        of_stage = lost.stage == stage
        for kind, tasks, transfers in (
            ("computation", of_stage, nothing),
            ("transfer", nothing, lost.transfers_to(stage)),
        ):
            without = lost.spans(tasks, transfers)
            there = np.flatnonzero(actual > without)
            columns = {name: values[there] for name, values in names.items()}
            columns |= {"stage": np.full(len(there), stage), "kind": np.full(len(there), kind)}
            columns |= {"actual_ns": actual[there], "without_ns": without[there]}
            columns |= {"normal_ns": normal[there]}
            columns["explained"] = (actual - without)[there] / (actual - normal)[there]
            rows.append(columns)
    return {name: np.concatenate([one[name] for one in rows]) for name in rows[0]}


def slowest(group: Integers, actual: Times, normal: Times, part: float) -> NDArray[np.bool_]:
    """The pipelines (p,) that end last in their iteration, or nearly last: those that lost at least
    `part` of what the slowest lost. With all as expected, the iteration would have ended when the
    last pipeline would."""
    count = int(group.max(initial=NONE)) + 1
    longest, possible = np.zeros(count), np.zeros(count)
    np.maximum.at(longest, group, actual)
    np.maximum.at(possible, group, normal)
    limit = longest - (1 - part) * (longest - possible)
    return np.asarray((actual > normal) & (actual >= limit[group]), np.bool_)


def _read(
    con: duckdb.DuckDBPyConnection, others_below: float, slow_share: float, alike: float
) -> tuple[Lost, dict[str, Any]]:
    """Pipelines of slow iterations, and of all iterations if one was slow from the beginning; the
    job, iteration and replica of each."""
    found = con.execute(
        f"""WITH always AS (
            SELECT job FROM stage_expectation WHERE basis = 'other pipelines'
            UNION
            SELECT job FROM stage_paths JOIN stage_vertices USING (vertex)
            GROUP BY job, replica, stage, chunk, task
            HAVING {others_below} * median(latency_ns) > median(baseline_latency_ns)),
        -- Iterations may differ by more, as with the lengths of samples, than a slow link costs.
        links AS (
            SELECT job, iteration FROM stage_paths JOIN stage_vertices USING (vertex)
            JOIN training_iterations i USING (job, iteration)
            GROUP BY job, iteration, replica, stage, task
            HAVING sum(latency_ns - baseline_latency_ns) FILTER (
                    {others_below} * latency_ns > baseline_latency_ns)
                > {slow_share} * any_value(i.baseline_ns)),
        chosen AS (
            SELECT job, iteration FROM training_iterations i
            WHERE NOT warm_up AND whole AND (slow OR EXISTS (FROM always a WHERE a.job = i.job)
                OR EXISTS (FROM links l WHERE l.job = i.job AND l.iteration = i.iteration)))
        SELECT job, iteration, replica, stage, p.vertex, p.duration_ns AS took,
            expected_ns AS expected, coalesce(latency_ns, 0) AS latency,
            coalesce(baseline_latency_ns, 0) AS baseline_latency, hold_ns AS hold,
            baseline_hold_ns AS baseline_hold, task = 'backward' AS backward,
            coalesce(previous, -1) AS previous, coalesce(source, -1) AS source,
            dense_rank() OVER (ORDER BY job, iteration) - 1 AS number,
            dense_rank() OVER (ORDER BY job, iteration, replica) - 1 AS pipeline
        FROM stage_paths p JOIN stage_vertices USING (vertex)
        SEMI JOIN chosen USING (job, iteration)"""
    ).fetchnumpy()
    numbers = ("vertex", "pipeline", "number", "stage", "previous", "source")
    vertex, pipeline, number, stage, *before = (np.asarray(found[k], np.int64) for k in numbers)
    place = np.full(int(vertex.max(initial=NONE)) + 2, NONE)  # the last one for NONE
    place[vertex] = np.arange(len(vertex))
    previous, source = (place[one] for one in before)
    times: dict[str, Times] = {
        name: np.ma.filled(np.ma.masked_array(found[name], dtype=np.float64), np.nan)
        for name in _TIMES
    }
    _, first = np.unique(pipeline, return_index=True)
    names = {name: np.asarray(found[name])[first] for name in ("job", "iteration", "replica")}
    graph = trace_graph(pipeline, previous, source)
    with_forward = np.asarray(found["backward"], np.bool_)
    with_forward &= exchanged(graph, times["latency"], times["hold"], alike) != NONE
    group = number[first]
    return Lost(graph, group, stage, with_forward=with_forward, alike=alike, **times), names
