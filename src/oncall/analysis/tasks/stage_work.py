"""What every rank did in every iteration, on one clock: the input of all analyses of stages."""

from __future__ import annotations

from oncall.analysis.tasks.task_rows import TASK_COLUMNS
from oncall.evidence import relation

_INSTANTS = ("started_ns", "ended_ns", "first_call_ns", "last_call_ns")


@relation(
    "stage_work",
    reads=["stage_tasks|labelled_tasks"],
    optional=["ranks", "clock_offsets", "stage_layout"],
    empty_without=["stage_tasks|labelled_tasks"],
    columns=[
        *TASK_COLUMNS,
        ("node", "VARCHAR", "", "host"),
        ("replica", "INTEGER", "", "place in the data-parallel group: which pipeline"),
        ("tensor_rank", "INTEGER", "", "place in the tensor-parallel group"),
        ("clock_error_ns", "BIGINT", "ns", "the error of its instants; NULL: unknown"),
    ],
    source="VenusTrace 3.3",
)
def stage_work() -> str:
    """Tasks as recorded or labelled, with the rank's place in the job. Instants are common time."""
    names = ", ".join(name for name, *_ in TASK_COLUMNS)
    moved = ", ".join(f"t.{name} - coalesce(c.offset_ns, 0) AS {name}" for name in _INSTANTS)
    return f"""
        WITH tasks AS (
            SELECT {names} FROM stage_tasks
            UNION ALL SELECT {names} FROM labelled_tasks
            ANTI JOIN (SELECT DISTINCT job, rank FROM stage_tasks) USING (job, rank)),
        placed AS (
            SELECT t.* REPLACE ({moved}, coalesce(t.stage, l.stage) AS stage), l.node, l.replica,
                l.tensor_rank, c.error_ns AS clock_error_ns
            FROM tasks t LEFT JOIN stage_layout l USING (job, rank)
            LEFT JOIN clock_offsets c ON c.job = t.job AND c.node = l.node),
        -- Each node counts from the first iteration that it saw whole, which may be another one.
        spans AS (
            SELECT job, node, iteration, min(started_ns) AS started_ns, max(ended_ns) AS ended_ns
            FROM placed WHERE source = 'calls' AND whole AND task IN ('forward', 'backward')
            GROUP BY ALL),
        counting AS (
            SELECT job, arg_max(node, (iterations, node)) AS node
            FROM (SELECT job, node, count(*) AS iterations FROM spans GROUP BY ALL) GROUP BY job),
        shifts AS (
            SELECT s.job, s.node,
                mode(r.iteration - s.iteration ORDER BY r.iteration - s.iteration) AS iterations
            FROM spans s JOIN counting c ON c.job = s.job
            JOIN spans r ON r.job = c.job AND r.node = c.node
                AND (s.started_ns + s.ended_ns) // 2 BETWEEN r.started_ns AND r.ended_ns
            GROUP BY ALL)
        SELECT p.* REPLACE (p.iteration + CASE WHEN p.source = 'calls'
            THEN coalesce(s.iterations, 0) ELSE 0 END AS iteration)
        FROM placed p LEFT JOIN shifts s ON s.job = p.job AND s.node = p.node
    """
