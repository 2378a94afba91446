"""Slow tasks that only waited, within their calls, for another pipeline.

Ranks of several replicas that share experts or the context of a sample meet inside a task: when one
of them is late, the same task is slow in all their pipelines. The one whose ranks had more time of
their own than usual, or got its input late, is the cause; the others computed as ever.
"""

from __future__ import annotations

from oncall.analysis.stage_vertices import VERTEX_COLUMNS
from oncall.evidence import relation

OWN_PART = 0.5  # of a task's excess: with less of it as time of its own, it waited


@relation(
    "coupled_tasks",
    reads=["slow_tasks", "stage_work"],
    empty_without=["slow_tasks"],
    columns=[
        *VERTEX_COLUMNS,
        ("own_excess_ns", "DOUBLE", "ns", "its ranks' own time beyond what it usually is"),
        ("waits_for", "INTEGER", "", "the replica that made it wait"),
    ],
    source="VenusTrace 3.3 (dependencies within parallel groups)",
)
def coupled_tasks() -> str:
    """Slow tasks with ordinary time of their own, beside one that has more or came late."""
    place = "job, iteration, stage, chunk, micro_batch, task"
    return f"""
        WITH groups AS (
            SELECT DISTINCT job, replica, stage, chunk, task FROM slow_tasks),
        own AS (
            SELECT w.job, w.iteration, g.replica, g.stage, g.chunk, w.micro_batch, g.task,
                max(w.own_ns) AS own_ns
            FROM stage_work w JOIN groups g ON w.job = g.job AND w.stage = g.stage
                AND w.task = g.task AND coalesce(w.replica, 0) = g.replica
                AND coalesce(w.chunk, 0) = g.chunk
            GROUP BY ALL),
        usual AS (
            SELECT job, replica, stage, chunk, task, median(own_ns) AS usual_ns
            FROM own GROUP BY ALL),
        judged AS (
            SELECT t.*, own_ns - usual_ns AS own_excess_ns,
                t.kind = 'transfer' OR own_ns - usual_ns >= {OWN_PART} * excess_ns AS is_cause
            FROM slow_tasks t
            LEFT JOIN own USING (job, iteration, replica, stage, chunk, micro_batch, task)
            LEFT JOIN usual USING (job, replica, stage, chunk, task)),
        causes AS (
            SELECT {place}, arg_max(replica, excess_ns) AS waits_for FROM judged
            WHERE is_cause GROUP BY ALL)
        SELECT * FROM judged JOIN causes USING ({place}) WHERE NOT is_cause
    """
