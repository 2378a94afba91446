"""What each task of a pipeline waits for, and which tasks its iteration waits for.

The order of a rank's tasks is the one that really ran; a forward waits for the forward of the
virtual stage before it, a backward for the backward of the one after it. Clocks of nodes need not
agree: durations are measured on one clock each, and of a transfer only what it takes beyond the
baseline of its link counts as its own, with the baseline of both directions between two stages
averaged.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import duckdb
import numpy as np
from numpy.typing import NDArray

from oncall.analysis.common.quantiles import quantile_of_alike
from oncall.analysis.pipeline.critical_path import NONE, Integers, Times, TraceGraph, trace_graph
from oncall.analysis.pipeline.stage_expectation import lower_middle, work_ratio
from oncall.evidence import Param, relation

CRITICAL_NS = 1.0  # slack below this is rounding
_TIMES = (
    "work_ns", "baseline_ns", "clock_error", "recv_ns", "send_ns", "pair_ns", "beside_ns",
    "head_ns",
)  # fmt: skip
_FLAGS = ("backward", "held", "pair_whole", "calm")


@dataclass(frozen=True)
class Tasks:
    """Vertices (n,) in order of pipeline, stage and start, each an array.

    `position` is the virtual stage, chunk * pp + stage; `work_ns` is what the task takes for its
    own computation, `baseline_ns` what such tasks take.
    """

    vertex: Integers
    iteration: Integers  # numbers each (job, iteration) 0..
    pipeline: Integers
    lane: Integers  # numbers each (job, replica) 0..: a pipeline over all iterations
    stage: Integers
    position: Integers
    last_position: Integers
    micro_batch: Integers
    backward: NDArray[np.bool_]
    started: Times
    ended: Times
    work_ns: Times
    baseline_ns: Times
    clock_error: Times
    recv_ns: Times  # what receiving its input took, with waiting for the sender
    send_ns: Times  # what sending its result took, with waiting for the receiver
    pair_ns: Times  # what the slowest pair of ranks took to pass on its input
    beside_ns: Times  # what a middle one of them took: they pass the same between the same hosts
    pair_whole: NDArray[np.bool_]  # all of that transfer is in it, none was over before
    calm: NDArray[np.bool_]  # of an iteration that was not slow
    head_ns: Times  # how far apart its ranks made their first calls
    held: NDArray[np.bool_]  # it began only when the send of the task before it was over


@relation(
    "stage_paths",
    reads=["stage_vertices", "stage_expectation"],
    optional=["stage_transfers", "training_iterations"],
    empty_without=["stage_vertices"],
    columns=[
        ("vertex", "BIGINT", "", "the task"),
        ("previous", "BIGINT", "", "the task before it on its rank; NULL: none"),
        ("source", "BIGINT", "", "the task that sent its input; NULL: none, or not observed"),
        ("duration_ns", "DOUBLE", "ns", "its own computation"),
        ("expected_ns", "DOUBLE", "ns", "what that should take, for its work"),
        ("work", "DOUBLE", "ratio", "its micro-batch or iteration against others, all alike"),
        ("latency_ns", "DOUBLE", "ns", "from the source's end to its start, as the path counts it"),
        ("baseline_latency_ns", "DOUBLE", "ns", "the baseline of such a transfer"),
        ("hold_ns", "DOUBLE", "ns", "how long the transfer of the task before it held the rank"),
        ("baseline_hold_ns", "DOUBLE", "ns", "the baseline of such a hold"),
        ("wait_ns", "DOUBLE", "ns", "the bubble before it"),
        (
            "slack_ns",
            "DOUBLE",
            "ns",
            "how much later it could begin; 0: the iteration waits for it",
        ),
        ("critical", "BOOLEAN", "", "on the critical path of its pipeline"),
    ],
    source="VenusTrace 3.3, Appendix A (Algorithm 3)",
    params={
        "others_below": Param("50 %", "of its own past: ways differ by less than a factor of two"),
        "longer": Param(1.05, "times the baseline: below is scatter"),
    },
)
def stage_paths(
    con: duckdb.DuckDBPyConnection, *, others_below: float, longer: float
) -> Mapping[str, Any]:
    """Each task with its predecessors, its slack and whether its pipeline's time hangs on it."""
    tasks = read_tasks(con)
    graph = pipeline_graph(tasks)
    baseline_latency, latency = latencies(tasks, graph, others_below)
    late = heads(tasks, graph, baseline_latency, latency)
    tasks = replace(tasks, work_ns=tasks.work_ns + late)
    batches = int(tasks.micro_batch.max(initial=0)) + 1
    work = work_ratio(
        tasks.work_ns / np.where(tasks.baseline_ns > 0, tasks.baseline_ns, np.nan),
        tasks.iteration,
        tasks.pipeline,
        tasks.stage,
        (tasks.pipeline * batches + tasks.micro_batch) * 2 + tasks.backward,
        longer,
    )
    sent = sent_to(graph)
    held = tasks.held & (sent != NONE)
    hold, baseline_hold = (np.where(held, one[sent], 0.0) for one in (latency, baseline_latency))
    finish = graph.earliest(tasks.work_ns, latency, hold)
    spans = graph.spans(finish)
    # A pipeline that ends before the others can be late without anybody waiting for it.
    longest = np.zeros(int(tasks.iteration.max(initial=NONE)) + 1)
    np.maximum.at(longest, tasks.iteration, spans[tasks.pipeline])
    of_pipeline = np.zeros(len(spans), np.int64)
    of_pipeline[tasks.pipeline] = tasks.iteration
    due = graph.latest(tasks.work_ns, latency, hold, spans)
    latest = graph.latest(tasks.work_ns, latency, hold, longest[of_pipeline])
    none = np.ma.MaskedArray
    return {
        "vertex": tasks.vertex,
        "previous": none(tasks.vertex[graph.previous], graph.previous == NONE),
        "source": none(tasks.vertex[graph.source], graph.source == NONE),
        "duration_ns": tasks.work_ns,
        "expected_ns": np.ma.masked_invalid(tasks.baseline_ns * work),
        "work": work,
        "latency_ns": none(latency, graph.source == NONE),
        "baseline_latency_ns": none(baseline_latency, graph.source == NONE),
        "hold_ns": hold,
        "baseline_hold_ns": baseline_hold,
        "wait_ns": np.ma.masked_invalid(bubbles(tasks, graph)),
        "slack_ns": np.ma.masked_invalid(latest - finish),
        "critical": np.nan_to_num(due - finish, nan=np.inf) < CRITICAL_NS,
    }


def read_tasks(con: duckdb.DuckDBPyConnection) -> Tasks:
    """The tasks that were seen from begin to end."""
    found = con.execute(
        """WITH shape AS (
            SELECT job, max(stage) + 1 AS pp, (max(stage) + 1) * (max(chunk) + 1) - 1 AS last
            FROM stage_vertices GROUP BY job),
        pairs AS (
            SELECT job, iteration, replica, stage, chunk, micro_batch, task,
                max(took_ns) AS pair_ns, arg_max(whole, (took_ns, whole)) AS pair_whole,
                CASE WHEN count(*) > 1 THEN quantile_disc(took_ns, 0.5) FILTER (whole) END
                    AS beside_ns
            FROM stage_transfers WHERE whole IS NOT NULL GROUP BY ALL)
        SELECT v.vertex, dense_rank() OVER (ORDER BY v.job, iteration) - 1 AS iteration,
            dense_rank() OVER (ORDER BY v.job, iteration, replica) - 1 AS pipeline,
            dense_rank() OVER (ORDER BY v.job, replica) - 1 AS lane, stage,
            chunk * pp + stage AS position, last AS last_position, micro_batch,
            task = 'backward' AS backward, v.started_ns AS started, v.ended_ns AS ended,
            -- What a recorder lost of a task is not known to be work.
            CASE WHEN v.whole THEN v.duration_ns ELSE least(v.duration_ns, e.baseline_ns) END
                AS work_ns, e.baseline_ns, clock_error_ns AS clock_error, recv_ns, send_ns, pair_ns,
            beside_ns, head_ns,
            held, coalesce(pair_whole, false) AS pair_whole,
            coalesce(NOT i.slow AND NOT i.warm_up, true) AS calm
        FROM stage_vertices v JOIN shape USING (job)
        LEFT JOIN stage_expectation e USING (job, replica, stage, chunk, task)
        LEFT JOIN pairs USING (job, iteration, replica, stage, chunk, micro_batch, task)
        LEFT JOIN training_iterations i USING (job, iteration)
        WHERE v.started_ns IS NOT NULL AND v.ended_ns IS NOT NULL
        ORDER BY pipeline, stage, v.started_ns, backward"""
    ).fetchnumpy()
    origin = int(np.min(found["started"], initial=np.iinfo(np.int64).max))
    columns: dict[str, Any] = {
        name: np.asarray(values, np.int64)
        for name, values in found.items()
        if name in ("vertex", "iteration", "pipeline", "lane", "stage", "position")
        or name in ("last_position", "micro_batch")
    }
    for name in ("started", "ended"):  # nanoseconds since 1970 do not fit a float
        since = np.ma.masked_array(found[name], dtype=np.int64) - origin
        columns[name] = np.ma.filled(since.astype(np.float64), np.nan)
    for name in _TIMES:
        columns[name] = np.ma.filled(np.ma.masked_array(found[name], dtype=np.float64), np.nan)
    columns |= {name: np.asarray(found[name], np.bool_) for name in _FLAGS}
    return Tasks(**columns)


def pipeline_graph(tasks: Tasks) -> TraceGraph:
    """Program order and data between stages.

    What arrives after the task was already over, beyond what clocks may be off, is no input of it.
    """
    follows = (np.diff(tasks.pipeline, prepend=NONE) == 0) & (
        np.diff(tasks.stage, prepend=NONE) == 0
    )
    previous = np.where(follows, np.arange(len(follows)) - 1, NONE)
    step = np.where(tasks.backward, 1, -1)
    wanted = tasks.position + step
    inside = (wanted >= 0) & (wanted <= tasks.last_position)
    source = np.where(inside, _sender(tasks, wanted), NONE)
    error = np.where(np.isnan(tasks.clock_error), np.inf, tasks.clock_error)
    late = (source != NONE) & (tasks.ended[source] - error > tasks.ended)
    source[late] = NONE
    return trace_graph(tasks.pipeline, previous, source)


def _sender(tasks: Tasks, wanted: Integers) -> Integers:
    """The task of the same micro-batch and direction at position `wanted`, or NONE (n,)."""

    def key(position: Integers) -> Integers:
        batches = int(tasks.micro_batch.max(initial=0)) + 1
        positions = int(tasks.last_position.max(initial=0)) + 3  # one beyond at either end
        code = (tasks.pipeline * positions + position + 1) * batches + tasks.micro_batch
        return code * 2 + tasks.backward

    if not len(wanted):
        return wanted
    present = key(tasks.position)
    order = np.argsort(present, kind="stable")
    place = np.searchsorted(present[order], key(wanted))
    place = np.minimum(place, len(order) - 1)
    return np.where(present[order][place] == key(wanted), order[place], NONE)


def bubbles(tasks: Tasks, graph: TraceGraph) -> Times:
    """Time (n,) each rank was idle before a task; NaN for its first."""
    idle = tasks.started - tasks.ended[graph.previous]
    return np.where(graph.previous == NONE, np.nan, np.maximum(idle, 0))


def sent_to(graph: TraceGraph) -> Integers:
    """The task (n,) that gets what the task before each on its rank sends, or NONE."""
    return np.where(graph.previous == NONE, NONE, graph.receiver[graph.previous])


def latencies(tasks: Tasks, graph: TraceGraph, others_below: float) -> tuple[Times, Times]:
    """The baseline of a transfer to each task (n,), and what this one took.

    Where both sides are recorded, the shorter one shows it: the other came first and waited. Where
    the receiver's alone is, it took no longer than since the sender was done, beyond the baseline.
    """
    both = np.where(graph.source == NONE, np.nan, tasks.send_ns[graph.source])
    both = np.where(np.isnan(tasks.pair_ns), np.minimum(both, tasks.recv_ns), tasks.pair_ns)
    both[graph.source == NONE] = np.nan
    if np.isnan(both).all():
        return apparent_latencies(tasks, graph)
    known = ~np.isnan(both)
    link = _boundary(tasks, graph.source) * 2 + tasks.backward
    baseline = np.full(_links(tasks), np.nan)
    for seen in (known & tasks.calm & tasks.pair_whole, known & tasks.calm, known):
        middle = _quantile(both, link, seen, 0.5, len(baseline))
        baseline = np.where(np.isnan(baseline), middle, baseline)
    beside = _quantile(tasks.beside_ns, link, ~np.isnan(tasks.beside_ns), 0.5, len(baseline))
    baseline = np.where(beside < others_below * baseline, beside, baseline)
    baseline = np.nan_to_num(beside_others(baseline, int(tasks.lane.max()) + 1, others_below)[link])
    received = ~known & (graph.source != NONE) & ~np.isnan(tasks.recv_ns)
    if received.any():
        shift = clock_shifts(tasks, graph)
        since = tasks.started - shift - (tasks.ended - shift)[graph.source]
        came = np.minimum(tasks.recv_ns, np.maximum(since, 0))
        median_arrival = _quantile(came, link, known | received, 0.5, _links(tasks))[link]
        both = np.where(received, baseline + np.maximum(came - median_arrival, 0), both)
    return baseline, np.where(known | received, both, baseline)


def beside_others(baseline: Times, lanes: int, below: float) -> Times:
    """The baseline of each link (lanes * links,), by its own past, or as the same border in the
    other pipelines where those take less than `below` of it: then it was slow from the
    beginning."""
    border = np.tile(np.arange(len(baseline) // lanes), lanes)
    others = lower_middle(baseline, border)[0][border]
    return np.where(others < below * baseline, others, baseline)


def heads(tasks: Tasks, graph: TraceGraph, baseline: Times, latency: Times) -> Times:
    """What the latest rank of each task (n,) computed before its first call, where that stands for
    the begin: the time by which it came after the others, less what its input was late."""
    if not tasks.head_ns.any():
        return tasks.head_ns
    fed = graph.source != NONE
    shift = clock_shifts(tasks, graph)
    since = tasks.started - shift - (tasks.ended - shift)[graph.source] - baseline
    head = np.where(fed, np.fmin(tasks.head_ns, since), tasks.head_ns)
    late = np.where(fed, np.maximum(latency - baseline, 0), 0)
    return np.asarray(np.maximum(head - late, 0), np.float64)


def apparent_latencies(tasks: Tasks, graph: TraceGraph) -> tuple[Times, Times]:
    """The same from when tasks end and begin.

    Only where the receiver stood waiting is a transfer's time seen. A clock that is off adds to one
    direction what it takes from the other.
    """
    source = graph.source
    baseline = np.zeros(len(source))
    if not (source != NONE).any():
        return baseline, baseline
    shift = clock_shifts(tasks, graph)
    ended, previous = tasks.ended - shift, graph.previous
    # What was sent before it was asked for can be on its way no longer than it was waited for.
    seen = np.fmin(tasks.started - shift - ended[source], tasks.recv_ns)
    free = np.where(previous == NONE, -np.inf, ended[previous])
    waited = (source != NONE) & ((free <= ended[source]) | ~np.isnan(tasks.recv_ns))
    boundary = _boundary(tasks, source)
    link = boundary * 2 + tasks.backward
    median = _quantile(seen, link, waited, 0.5, _links(tasks))
    excess = np.where(waited, seen - median[link], 0.0)
    directions = np.ma.masked_invalid(median).reshape(-1, 2)
    baseline = np.maximum(np.ma.filled(directions.mean(axis=1), 0.0)[boundary], 0.0)
    return baseline, np.maximum(baseline + excess, 0.0)


def clock_shifts(tasks: Tasks, graph: TraceGraph) -> Times:
    """By how much the clock of each task's stage is ahead of its pipeline's first stage (n,).

    The fastest transfers of both directions between two stages differ by twice that. Where clocks
    are known to be the same, nothing is estimated.
    """
    seen = tasks.started - tasks.ended[graph.source]
    link = _boundary(tasks, graph.source) * 2 + tasks.backward
    fastest = _quantile(seen, link, graph.source != NONE, 0.0, _links(tasks))
    forward, backward = fastest.reshape(int(tasks.lane.max()) + 1, -1, 2).transpose(2, 0, 1)
    behind = np.cumsum(np.nan_to_num((forward - backward) / 2), axis=1)
    shift = np.where(tasks.stage > 0, behind[tasks.lane, tasks.stage - 1], 0.0)
    return np.where(np.nan_to_num(tasks.clock_error, nan=1.0) > 0, shift, 0.0)


def _boundary(tasks: Tasks, source: Integers) -> Integers:
    """Numbers the border between two stages of a lane that a task's input crosses (n,)."""
    positions = int(tasks.last_position.max()) + 1
    return tasks.lane * positions + np.minimum(tasks.position, tasks.position[source])


def _links(tasks: Tasks) -> int:
    """How many borders and directions there are in all lanes."""
    return (int(tasks.lane.max()) + 1) * (int(tasks.last_position.max()) + 1) * 2


def _quantile(
    values: Times, groups: Integers, chosen: NDArray[np.bool_], share: float, count: int
) -> Times:
    """A quantile of the chosen values of each group 0..count-1; NaN: none was chosen."""
    found = np.full(count, np.nan)
    found[groups] = quantile_of_alike(groups, np.where(chosen, values, np.nan), share)[0]
    return found
