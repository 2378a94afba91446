"""The trace graph of pipelines: every forward and backward, what it waits for and its slack."""

from __future__ import annotations

from oncall.analysis.pipeline.stage_vertices import VERTEX, VERTEX_COLUMNS
from oncall.evidence import relation

_KIND = "job, replica, stage, chunk, task"


@relation(
    "stage_graph",
    reads=["stage_vertices", "stage_paths"],
    optional=["stage_expectation"],
    empty_without=["stage_paths"],
    columns=[
        *VERTEX_COLUMNS,
        ("vertex", "BIGINT", "", "its number"),
        ("rank", "INTEGER", "", "the deciding member of the tensor-parallel group"),
        ("node", "VARCHAR", "", "its host"),
        ("started_ns", "BIGINT", "ns", "when it could begin, common time"),
        ("ended_ns", "BIGINT", "ns", "when it was done"),
        ("duration_ns", "BIGINT", "ns", "its own computation, without waiting for its inputs"),
        ("expected_ns", "DOUBLE", "ns", "what that should take, for its micro-batch (robust)"),
        ("spread_ns", "DOUBLE", "ns", "median deviation of such tasks"),
        ("basis", "VARCHAR", "", "the expectation comes from its own past or other pipelines"),
        ("work", "DOUBLE", "ratio", "its micro-batch against others, equal in all stages"),
        ("earliest_ns", "BIGINT", "ns", "earliest start, common time"),
        ("latest_ns", "BIGINT", "ns", "latest start that makes the iteration no longer"),
        ("slack_ns", "BIGINT", "ns", "in between"),
        ("critical", "BOOLEAN", "", "on the critical path of its pipeline"),
        ("wait_ns", "BIGINT", "ns", "the bubble before it"),
        ("latency_ns", "BIGINT", "ns", "how long its input was in transfer; NULL: no input"),
        ("baseline_latency_ns", "BIGINT", "ns", "the baseline of that"),
        ("clock_error_ns", "BIGINT", "ns", "by how much its instants may be off"),
    ],
    source="VenusTrace 3.3, Fig. 7, Appendix A",
)
def stage_graph() -> str:
    """The vertices of the trace graph, with expectation and slack."""
    return f"""
        WITH origin AS (
            SELECT job, iteration, replica, min(started_ns) AS origin_ns
            FROM stage_vertices GROUP BY ALL)
        SELECT v.*, p.duration_ns, p.expected_ns, p.work, e.spread_ns, e.basis,
            origin_ns + p.earliest_ns AS earliest_ns, origin_ns + p.latest_ns AS latest_ns,
            p.slack_ns, p.critical, p.wait_ns, p.latency_ns, p.baseline_latency_ns
        FROM (SELECT * EXCLUDE (duration_ns) FROM stage_vertices) v
        JOIN stage_paths p USING (vertex)
        JOIN origin USING (job, iteration, replica)
        LEFT JOIN stage_expectation e USING ({_KIND})
    """


@relation(
    "stage_edges",
    reads=["stage_vertices", "stage_paths"],
    empty_without=["stage_paths"],
    columns=[
        ("job", "VARCHAR", "", "the job"),
        ("iteration", "BIGINT", "", "training iteration"),
        ("replica", "INTEGER", "", "the pipeline"),
        *[
            (f"{side}_{name}", kind, unit, f"{meaning} of the task {waits}")
            for side, waits in (("from", "that is waited for"), ("to", "that waits"))
            for name, kind, unit, meaning in VERTEX_COLUMNS[3:]
        ],
        ("kind", "VARCHAR", "", "program order, or send"),
        ("latency_ns", "BIGINT", "ns", "from one's end to the other's start, for a send"),
    ],
    source="VenusTrace 3.3 (trace model)",
)
def stage_edges() -> str:
    """What waits for what: the rank's own order, and sends between stages."""
    ends = ", ".join(
        f"{alias}.{name} AS {side}_{name}"
        for side, alias in (("from", "a"), ("to", "b"))
        for name in VERTEX[3:]
    )
    return f"""
        WITH pairs AS (
            SELECT previous AS before, vertex, 'program order' AS kind, NULL AS latency_ns
            FROM stage_paths WHERE previous IS NOT NULL
            UNION ALL
            SELECT source, vertex, 'send', latency_ns FROM stage_paths WHERE source IS NOT NULL)
        SELECT b.job, b.iteration, b.replica, {ends}, p.kind, p.latency_ns
        FROM pairs p JOIN stage_vertices a ON a.vertex = p.before
        JOIN stage_vertices b ON b.vertex = p.vertex
    """
