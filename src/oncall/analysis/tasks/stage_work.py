"""What every rank did in every iteration, on one clock: the input of all analyses of stages."""

from __future__ import annotations

from oncall.analysis.tasks.task_rows import TASK_COLUMNS
from oncall.evidence import relation

_INSTANTS = ("started_ns", "ended_ns", "first_call_ns", "last_call_ns")


_NAMES = ", ".join(name for name, *_ in TASK_COLUMNS)


def _tasks(names: str) -> str:
    """Tasks as recorded, else as labelled."""
    return f"""
        SELECT {names} FROM stage_tasks
        UNION ALL SELECT {names} FROM labelled_tasks
        ANTI JOIN (SELECT DISTINCT job, rank FROM stage_tasks) USING (job, rank)
    """


@relation(
    "iteration_shifts",
    reads=["stage_tasks|labelled_tasks"],
    optional=["clock_offsets", "task_layout"],
    empty_without=["stage_tasks|labelled_tasks"],
    columns=[
        ("job", "VARCHAR", "", "the job"),
        ("node", "VARCHAR", "", "a host that counts iterations differently"),
        ("iterations", "BIGINT", "", "what its numbers lack to those of the job"),
    ],
    source="VenusTrace 3.3",
)
def iteration_shifts() -> str:
    """Each node counts from the first iteration that it saw whole, which may be another one."""
    return f"""
        WITH tasks AS ({_tasks("job, rank, iteration, task, started_ns, ended_ns, whole, source")}),
        own AS (
            SELECT job, rank, iteration, min(started_ns) AS started_ns, max(ended_ns) AS ended_ns
            FROM tasks WHERE source = 'calls' AND whole AND task IN ('forward', 'backward')
            GROUP BY ALL),
        spans AS (
            SELECT o.job, l.node, iteration,
                min(started_ns - coalesce(c.offset_ns, 0)) AS started_ns,
                max(ended_ns - coalesce(c.offset_ns, 0)) AS ended_ns
            FROM own o LEFT JOIN task_layout l USING (job, rank)
            LEFT JOIN clock_offsets c ON c.job = o.job AND c.node = l.node
            GROUP BY ALL),
        counting AS (
            SELECT job, arg_max(node, (iterations, node)) AS node
            FROM (SELECT job, node, count(*) AS iterations FROM spans GROUP BY ALL) GROUP BY job)
        SELECT s.job, s.node,
            mode(r.iteration - s.iteration ORDER BY r.iteration - s.iteration) AS iterations
        FROM spans s JOIN counting c ON c.job = s.job
        JOIN spans r ON r.job = c.job AND r.node = c.node
            AND (s.started_ns + s.ended_ns) // 2 BETWEEN r.started_ns AND r.ended_ns
        GROUP BY ALL HAVING iterations != 0
    """


@relation(
    "stage_work",
    view=True,
    reads=["stage_tasks|labelled_tasks"],
    optional=["ranks", "clock_offsets", "task_layout", "iteration_shifts"],
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
    moved = ", ".join(f"t.{name} - coalesce(p.offset_ns, 0) AS {name}" for name in _INSTANTS)
    return f"""
        WITH tasks AS ({_tasks(_NAMES)}),
        places AS (
            SELECT l.job, l.rank, l.node, l.stage, l.replica, l.tensor_rank, c.offset_ns,
                c.error_ns, coalesce(s.iterations, 0) AS iterations
            FROM task_layout l LEFT JOIN clock_offsets c USING (job, node)
            LEFT JOIN iteration_shifts s USING (job, node))
        SELECT t.* REPLACE ({moved}, coalesce(t.stage, p.stage) AS stage,
                t.iteration + CASE WHEN t.source = 'calls' THEN coalesce(p.iterations, 0) ELSE 0 END
                    AS iteration),
            p.node, p.replica, p.tensor_rank, p.error_ns AS clock_error_ns
        FROM tasks t LEFT JOIN places p USING (job, rank)
    """
