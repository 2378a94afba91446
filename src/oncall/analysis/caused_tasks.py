"""Slow tasks, each with the pipeline that caused it.

Ranks of several replicas that share experts or the context of a sample meet inside a task: when one
of them is late, the same task is slow in all their pipelines. The cause is the one whose ranks had
more time of their own than usual, or got its input late; the others computed as ever.
"""

from __future__ import annotations

from oncall.analysis.slow_tasks import SLOW_TASK_COLUMNS
from oncall.evidence import relation

_PLACE = ("job", "iteration", "stage", "chunk", "micro_batch", "task")
OWN_PART = 0.5  # of a task's excess: with less of it as time of its own, it waited
LEAST_PART = 0.2  # of it: less of another pipeline's is no cause


def _same(other: str) -> str:
    """SQL: the same place in another pipeline."""
    return " AND ".join(f"{other}.{name} = t.{name}" for name in _PLACE)


@relation(
    "caused_tasks",
    reads=["slow_tasks", "stage_work", "stage_graph"],
    empty_without=["slow_tasks"],
    columns=[
        *SLOW_TASK_COLUMNS,
        ("own_excess_ns", "DOUBLE", "ns", "own time beyond usual, of its rank with the most of it"),
        ("waiting", "INTEGER", "pipelines", "that were slow there only because they waited for it"),
    ],
    source="VenusTrace 3.3 (dependencies within parallel groups)",
)
def caused_tasks() -> str:
    """Slow tasks; of pipelines that waited for another inside a task, the other's instead."""
    place = ", ".join(_PLACE)
    return f"""
        WITH places AS (SELECT DISTINCT {place} FROM slow_tasks WHERE kind = 'computation'),
        kinds AS (SELECT DISTINCT job, stage, chunk, task FROM places),
        own AS (
            SELECT w.job, iteration, coalesce(replica, 0) AS replica, w.stage,
                coalesce(w.chunk, 0) AS chunk, micro_batch, w.task, max(own_ns) AS own_ns
            FROM stage_work w JOIN kinds k ON w.job = k.job AND w.stage = k.stage
                AND coalesce(w.chunk, 0) = k.chunk AND w.task = k.task
            GROUP BY ALL),
        usual AS (
            SELECT job, replica, stage, chunk, task,
                quantile_cont(own_ns, 0.25) AS usual_ns  -- as of iterations
            FROM own GROUP BY ALL),
        there AS (
            SELECT g.*, own_ns - usual_ns AS own_excess_ns,
                coalesce(latency_ns - usual_latency_ns, 0) AS late_ns
            FROM stage_graph g SEMI JOIN places USING ({place})
            LEFT JOIN own USING (job, iteration, replica, stage, chunk, micro_batch, task)
            LEFT JOIN usual USING (job, replica, stage, chunk, task)),
        waited AS (
            SELECT t.*, c.replica AS cause, c.late_ns > c.own_excess_ns AS came_late,
                c.started_ns AS cause_started_ns, c.slack_ns AS cause_slack_ns,
                greatest(c.own_excess_ns, c.late_ns) AS cause_excess_ns,
                c.expected_ns AS cause_expected_ns, c.usual_latency_ns AS cause_latency_ns
            FROM slow_tasks t
            JOIN there m ON {_same("m")} AND m.replica = t.replica
                AND m.own_excess_ns < {OWN_PART} * t.excess_ns
            JOIN there c ON {_same("c")} AND c.replica <> t.replica
                -- What it began later is waited for, too, but has its reason elsewhere.
                AND greatest(c.own_excess_ns, c.late_ns) >= greatest({LEAST_PART} * t.excess_ns,
                    {OWN_PART} * (t.excess_ns - greatest(c.started_ns - t.started_ns, 0)))
            WHERE t.kind = 'computation'
            QUALIFY row_number() OVER (
                PARTITION BY t.job, t.iteration, t.replica, t.stage, t.chunk, t.micro_batch, t.task
                ORDER BY cause_excess_ns DESC, cause) = 1),
        -- Who began later, in a pipeline that was slow before, is what the others waited for.
        behind AS (
            SELECT DISTINCT t.* FROM slow_tasks t
            JOIN there m ON {_same("m")} AND m.replica = t.replica
                AND m.own_excess_ns < {OWN_PART} * t.excess_ns
            JOIN there c ON {_same("c")} AND c.replica <> t.replica
                AND c.started_ns - t.started_ns >= {OWN_PART} * t.excess_ns
            JOIN slow_tasks b ON b.job = t.job AND b.iteration = t.iteration
                AND b.replica = c.replica AND b.started_ns < c.started_ns
            WHERE t.kind = 'computation'),
        moved AS (
            SELECT * EXCLUDE (cause, came_late, cause_started_ns, cause_slack_ns, cause_excess_ns,
                    cause_expected_ns, cause_latency_ns)
                REPLACE (cause AS replica, cause_started_ns AS started_ns,
                    CASE WHEN came_late THEN 'transfer' ELSE kind END AS kind,
                    CASE WHEN came_late THEN cause_latency_ns ELSE cause_expected_ns END
                        + cause_excess_ns AS duration_ns,
                    CASE WHEN came_late THEN cause_latency_ns ELSE cause_expected_ns END
                        AS expected_ns, cause_excess_ns AS excess_ns), 1 AS waited
            FROM waited
            UNION ALL
            SELECT *, 0 FROM slow_tasks
            ANTI JOIN waited USING ({place}, replica, kind)
            ANTI JOIN behind USING ({place}, replica, kind))
        SELECT *, sum(waited) OVER one AS waiting
        FROM moved LEFT JOIN (SELECT {place}, replica, own_excess_ns FROM there)
            USING ({place}, replica)
        WINDOW one AS (
            PARTITION BY job, iteration, replica, stage, chunk, micro_batch, task, kind)
        QUALIFY row_number() OVER (one ORDER BY waited, excess_ns DESC) = 1
    """
