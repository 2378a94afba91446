"""The forward and backward tasks of pipelines: the vertices of the trace graph.

The ranks of a tensor-parallel group work on one task together and each call of the group waits for
its last member, so a group is one vertex: it begins when the last member could, and is over when
the last is (VenusTrace 3.3).
"""

from __future__ import annotations

from oncall.evidence import relation

VERTEX = ["job", "iteration", "replica", "stage", "chunk", "micro_batch", "task"]
VERTEX_COLUMNS = [
    ("job", "VARCHAR", "", "the job"),
    ("iteration", "BIGINT", "", "training iteration"),
    ("replica", "INTEGER", "", "the pipeline: its place in the data-parallel group"),
    ("stage", "INTEGER", "", "pipeline stage"),
    ("chunk", "INTEGER", "", "model chunk on the stage"),
    ("micro_batch", "INTEGER", "", "micro-batch"),
    ("task", "VARCHAR", "", "forward or backward"),
]


@relation(
    "stage_vertices",
    reads=["stage_work"],
    empty_without=["stage_work"],
    columns=[
        ("vertex", "BIGINT", "", "its number"),
        *VERTEX_COLUMNS,
        ("rank", "INTEGER", "", "of the tensor-parallel group the member that decides"),
        ("node", "VARCHAR", "", "its host"),
        ("ranks", "INTEGER", "ranks", "members seen"),
        ("started_ns", "BIGINT", "ns", "when the group could begin, common time"),
        ("ended_ns", "BIGINT", "ns", "when the group was done; NULL: not seen to end"),
        ("duration_ns", "BIGINT", "ns", "in between"),
        ("late_ns", "BIGINT", "ns", "how much later than the median member that one entered"),
        ("last_calls", "INTEGER", "calls", "calls in which it was the last to enter"),
        ("calls", "INTEGER", "calls", "calls of the group in the task"),
        ("whole", "BOOLEAN", "", "all of its calls were recorded and made"),
        ("clock_error_ns", "BIGINT", "ns", "by how much its instants may be off"),
    ],
    source="VenusTrace 3.3 (trace model), Fig. 6",
)
def stage_vertices() -> str:
    """Each forward and backward of each pipeline, its tensor-parallel group as one."""
    # Who decides: the member with the most time of its own, else the one that enters last.
    decides = "coalesce(own_ns, late_ns, last_calls, ended_ns - started_ns, 0)"
    return f"""
        SELECT row_number() OVER () - 1 AS vertex, job, iteration, coalesce(replica, 0) AS replica,
            stage, coalesce(chunk, 0) AS chunk, micro_batch, task,
            arg_max(rank, {decides}) AS rank, arg_max(node, {decides}) AS node,
            count(*) AS ranks, max(started_ns) AS started_ns,
            CASE WHEN bool_and(ended_ns IS NOT NULL) THEN max(ended_ns) END AS ended_ns,
            greatest(CASE WHEN bool_and(ended_ns IS NOT NULL) THEN max(ended_ns) END
                - max(started_ns), 0) AS duration_ns,
            arg_max(late_ns, {decides}) AS late_ns,
            arg_max(last_calls, {decides}) AS last_calls, max(calls) AS calls,
            bool_and(coalesce(whole, true)) AS whole, max(clock_error_ns) AS clock_error_ns
        FROM stage_work
        WHERE task IN ('forward', 'backward') AND iteration IS NOT NULL AND stage IS NOT NULL
            AND micro_batch IS NOT NULL
        GROUP BY job, iteration, coalesce(replica, 0), stage, coalesce(chunk, 0), micro_batch, task
    """


@relation(
    "stage_transfers",
    reads=["stage_vertices", "stage_work"],
    empty_without=["stage_vertices"],
    columns=[
        ("vertex", "BIGINT", "", "the task"),
        ("recv_ns", "BIGINT", "ns", "what receiving its input took; NULL: not seen"),
        ("send_ns", "BIGINT", "ns", "what sending its result took; NULL: not seen"),
        ("sent_ns", "BIGINT", "ns", "when that was done, common time"),
    ],
    source="VenusTrace 3.2.1 (pipeline communication), Fig. 7",
)
def stage_transfers() -> str:
    """What tasks receive and send. Whichever side comes second sees what the transfer itself takes,
    on its own clock; the other waits for it, too."""
    return """
        WITH one AS (
            SELECT job, iteration, coalesce(replica, 0) AS replica, stage,
                coalesce(chunk, 0) AS chunk, micro_batch, split_part(task, '_', 1) AS task,
                split_part(task, '_', 2) AS side, max(ended_ns - started_ns) AS took_ns,
                max(ended_ns) AS ended_ns
            FROM stage_work
            WHERE task IN ('forward_send', 'backward_send', 'forward_recv', 'backward_recv')
                AND started_ns IS NOT NULL AND ended_ns >= started_ns
            GROUP BY ALL)
        SELECT v.vertex, max(took_ns) FILTER (side = 'recv') AS recv_ns,
            max(took_ns) FILTER (side = 'send') AS send_ns,
            max(o.ended_ns) FILTER (side = 'send') AS sent_ns
        FROM one o JOIN stage_vertices v
            USING (job, iteration, replica, stage, chunk, micro_batch, task)
        GROUP BY v.vertex
    """
