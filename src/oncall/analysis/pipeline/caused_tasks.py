"""Slow tasks, each with the pipeline that caused it.

Ranks of several replicas that share experts or the context of a sample meet inside a task: when one
of them is late, the same task is slow in all their pipelines. The cause is the one whose ranks had
more own time than the baseline, or got its input late; the others computed as before.
"""

from __future__ import annotations

from oncall.analysis.pipeline.slow_tasks import SLOW_TASK_COLUMNS
from oncall.evidence import Param, relation

_PLACE = ("job", "iteration", "stage", "chunk", "micro_batch", "task")
_THERE = _PLACE[2:]  # the place in an iteration of a job
_PLACE_NAMES = ", ".join(_PLACE)
# The task `r` that a Send leads to; its columns as the cause `c` moves them; and as the result.
_TO = ", ".join(f"r.{name} AS to_{name}" for name in _THERE)
_MOVED_TO = ", ".join(f"CASE WHEN held_up THEN c.to_{name} END AS to_{name}" for name in _THERE)
_MOVED_NAMES = ", ".join(f"to_{name}" for name in _THERE)
_MOVED_HERE = ", ".join(f"coalesce(to_{name}, {name}) AS {name}" for name in _THERE)


def _same(other: str, this: str = "t") -> str:
    """SQL: the same place in another pipeline."""
    return " AND ".join(f"{other}.{name} = {this}.{name}" for name in _PLACE)


def _excess_there() -> str:
    """The same tasks in all pipelines: own time beyond the baseline, and how late they came."""
    return f"""
        places AS (SELECT DISTINCT {_PLACE_NAMES} FROM slow_tasks WHERE kind = 'computation'),
        there AS (
            -- A hole in a recording is no time of its own. Of calls alone, hosts that usually wait
            -- for their devices tell their own time, and nothing of how long the devices computed.
            SELECT g.*, pipeline_group, v.own_ns - e.baseline_own_ns * g.work AS more_ns,
                CASE WHEN v.whole AND NOT (e.baseline_own_ns < $own_part * e.baseline_ns
                        AND more_ns < $own_part * (g.duration_ns - g.expected_ns)
                        AND NOT coalesce(k.durations, true))
                    THEN more_ns END AS own_excess_ns,
                coalesce(g.latency_ns - g.baseline_latency_ns, 0) AS late_ns,
                -- What the Send before it, to the task `to`, held it up.
                CASE WHEN r.vertex IS NULL THEN 0
                    ELSE coalesce(p.hold_ns - p.baseline_hold_ns, 0) END AS held_ns,
                p.baseline_hold_ns, {_TO},
                greatest(own_excess_ns, late_ns, held_ns) AS most_ns
            FROM stage_graph g SEMI JOIN places USING ({_PLACE_NAMES})
            JOIN (SELECT vertex, whole, own_ns FROM stage_vertices) v ON v.vertex = g.vertex
            LEFT JOIN stage_paths p ON p.vertex = g.vertex
            LEFT JOIN stage_paths s ON s.source = p.previous
            LEFT JOIN stage_graph r ON r.vertex = s.vertex
            LEFT JOIN coupled_pipelines w ON w.job = g.job AND w.replica = g.replica
            LEFT JOIN knowledge k ON k.job = g.job
            LEFT JOIN stage_expectation e ON e.job = g.job AND e.replica = g.replica
                AND e.stage = g.stage AND e.chunk = g.chunk AND e.task = g.task)
    """


def _causes() -> str:
    """Slow tasks that waited for another pipeline, each with the one that caused it."""
    return f"""
        waited AS (
            SELECT t.*, c.replica AS cause,
                c.most_ns AS cause_excess_ns, c.held_ns = c.most_ns AS held_up,
                NOT held_up AND c.late_ns = c.most_ns AS came_late, {_MOVED_TO},
                c.started_ns AS cause_started_ns, c.slack_ns AS cause_slack_ns,
                CASE WHEN held_up THEN c.baseline_hold_ns WHEN came_late THEN c.baseline_latency_ns
                    ELSE c.expected_ns END AS cause_expected_ns
            FROM slow_tasks t
            JOIN there m ON {_same("m")} AND m.replica = t.replica
                AND m.own_excess_ns < $own_part * t.excess_ns
            JOIN there c ON {_same("c")} AND c.replica <> t.replica
                AND coalesce(c.pipeline_group = m.pipeline_group, true)
                -- What it began later is waited for, too, but has its reason elsewhere.
                AND c.most_ns >= greatest($least_part * t.excess_ns,
                    $own_part * (t.excess_ns - greatest(c.started_ns - t.started_ns, 0)))
            WHERE t.kind = 'computation'
            QUALIFY row_number() OVER (
                PARTITION BY t.job, t.iteration, t.replica, t.stage, t.chunk, t.micro_batch, t.task
                ORDER BY cause_excess_ns DESC, cause) = 1)
    """


def _moved() -> str:
    """Slow tasks without those that waited; in their place, the tasks that they waited for."""
    return f"""
        -- Who began later, in a pipeline that was slow before, is what the others waited for.
        behind AS (
            SELECT DISTINCT t.* FROM slow_tasks t
            JOIN there m ON {_same("m")} AND m.replica = t.replica
                AND m.own_excess_ns < $own_part * t.excess_ns
            JOIN there c ON {_same("c")} AND c.replica <> t.replica
                AND coalesce(c.pipeline_group = m.pipeline_group, true)
                AND c.started_ns - t.started_ns >= $own_part * t.excess_ns
            JOIN slow_tasks b ON b.job = t.job AND b.iteration = t.iteration
                AND b.replica = c.replica AND b.started_ns < c.started_ns
            WHERE t.kind = 'computation'),
        moved AS (
            SELECT * EXCLUDE (cause, came_late, held_up, {_MOVED_NAMES}, cause_started_ns,
                    cause_slack_ns, cause_excess_ns, cause_expected_ns)
                REPLACE (cause AS replica, {_MOVED_HERE}, cause_started_ns AS started_ns,
                    CASE WHEN came_late OR held_up THEN 'transfer' ELSE kind END AS kind,
                    cause_expected_ns + cause_excess_ns AS duration_ns,
                    cause_expected_ns AS expected_ns, cause_excess_ns AS excess_ns), 1 AS waited
            FROM waited
            UNION ALL
            SELECT *, 0 FROM slow_tasks
            ANTI JOIN waited USING ({_PLACE_NAMES}, replica, kind)
            ANTI JOIN behind USING ({_PLACE_NAMES}, replica, kind))
    """


@relation(
    "caused_tasks",
    reads=["slow_tasks", "stage_graph", "stage_paths", "stage_vertices", "stage_expectation"],
    optional=["coupled_pipelines", "knowledge"],
    empty_without=["slow_tasks"],
    columns=[
        *SLOW_TASK_COLUMNS,
        (
            "own_excess_ns",
            "DOUBLE",
            "ns",
            "own time beyond the baseline, of its rank with the most of it",
        ),
        (
            "waiting",
            "INTEGER",
            "pipelines",
            "stages that were slow only because they waited for it",
        ),
    ],
    source="VenusTrace 3.3 (dependencies within parallel groups)",
    params={
        "own_part": Param("50 %", "of a task's excess: with less than this as own time, it waited"),
        "least_part": Param("20 %", "of the excess: less of another pipeline's is no cause"),
    },
)
def caused_tasks() -> str:
    """Slow tasks; of pipelines that waited for another inside a task, the other's instead."""
    return f"""
        WITH {_excess_there()}, {_causes()}, {_moved()}
        SELECT *, sum(waited) OVER one AS waiting
        FROM moved LEFT JOIN (SELECT {_PLACE_NAMES}, replica, own_excess_ns FROM there)
            USING ({_PLACE_NAMES}, replica)
        WINDOW one AS (
            PARTITION BY job, iteration, replica, stage, chunk, micro_batch, task, kind)
        QUALIFY row_number() OVER (
            one ORDER BY waited, excess_ns DESC, saved_ns DESC, slack_ns, decided) = 1
    """
