"""All tasks of iterations, and what was sent between them, as a trace shows them."""

from __future__ import annotations

from typing import Any, NamedTuple

from oncall.core.errors import UsageError
from oncall.core.printable import clean
from oncall.evidence.incident import Incident
from oncall.views.stages.iterations import NO_STAGES, has_stages

_KEY = "replica, stage, chunk, micro_batch, task"
# What is not over yet reaches to the last instant that is known. Of a thread's events one must not
# reach into the next: clocks of calls and of computation differ by microseconds.
_PLACED = """
    seen AS (SELECT max(greatest(started_ns, ended_ns)) AS last_ns FROM stage_work),
    work AS (
        SELECT * REPLACE (coalesce(replica, 0) AS replica, coalesce(chunk, 0) AS chunk),
            replica AS stated_replica, task LIKE '%!_send' ESCAPE '!' OR task LIKE '%!_recv'
                ESCAPE '!' AS moves,
            greatest(coalesce(ended_ns, last_ns), started_ns) AS end_ns
        FROM stage_work CROSS JOIN seen
        WHERE iteration = $iteration AND started_ns IS NOT NULL),
    placed AS (
        SELECT *, CASE WHEN next_ns < end_ns AND end_ns < after_ns AND NOT moves THEN next_ns
            ELSE end_ns END AS until_ns
        FROM (SELECT *, lead(started_ns) OVER next AS next_ns, lead(end_ns) OVER next AS after_ns
            FROM work
            WINDOW next AS (PARTITION BY rank, moves ORDER BY started_ns, end_ns DESC)))"""


class TracedTask(NamedTuple):
    """A task; times in ns since the first one. `moves`: it is a send or a receive."""

    node: str | None
    rank: int
    iteration: int
    task: str
    moves: bool
    chunk: int | None
    micro_batch: int | None
    at_ns: int
    until_ns: int
    is_open: bool
    critical: bool
    replica: int | None
    slack_ns: int | None
    expected_ns: int | None


class Trace(NamedTuple):
    """What is traced: iterations in order, the first instant of them, Unix ns, the nodes, the
    pipelines, and (node, rank, stage, pipeline) of each rank in drawing order."""

    job: str
    iterations: list[int]
    first_ns: int
    nodes: list[str | None]
    pipelines: list[int]
    ranks: list[tuple[str | None, int, int, int | None]]


def traced(incident: Incident, iteration: int | None = None) -> Trace:
    """One iteration or all. Raises UsageError where it is not there."""
    if not has_stages(incident):
        raise UsageError(NO_STAGES)
    incident.provide(["stage_edges"])

    def asked(sql: str, parameters: Any = ()) -> list[tuple[Any, ...]]:
        return incident.con.execute(sql, parameters).fetchall()

    wanted = [
        number
        for (number,) in asked(
            "SELECT DISTINCT iteration FROM stage_work WHERE started_ns IS NOT NULL "
            "AND iteration IS NOT NULL AND ($only IS NULL OR iteration = $only) ORDER BY iteration",
            {"only": iteration},
        )
    ]
    if not wanted:
        raise UsageError(f"there is no iteration {iteration}")
    ((first_ns, job),) = asked(
        "SELECT min(started_ns), any_value(job) FROM stage_work "
        "WHERE list_contains(?::BIGINT[], iteration)",
        [wanted],
    )
    nodes = [node for (node,) in asked("SELECT DISTINCT node FROM stage_work ORDER BY node")]
    pipelines = asked("SELECT DISTINCT replica FROM stage_graph ORDER BY replica")
    ranks = asked(
        "SELECT node, rank, any_value(stage), any_value(replica) FROM stage_work "
        "GROUP BY node, rank ORDER BY any_value(replica), any_value(stage), rank"
    )
    replicas = [replica for (replica,) in pipelines]
    return Trace(clean(job or ""), wanted, first_ns, nodes, replicas, ranks)


def tasks_of(incident: Incident, iteration: int, first_ns: int) -> list[TracedTask]:
    """The tasks of an iteration, by start."""
    found = incident.con.execute(
        f"""
        WITH {_PLACED}
        SELECT w.node, w.rank, w.iteration, w.task, w.moves, w.chunk, w.micro_batch,
            w.started_ns - {first_ns}, w.until_ns - {first_ns}, w.ended_ns IS NULL,
            coalesce(g.critical, false) AND g.rank = w.rank, w.stated_replica, g.slack_ns,
            g.expected_ns::BIGINT
        FROM placed w LEFT JOIN (FROM stage_graph WHERE iteration = $iteration) g
            ON (g.job, {_of("g")}) = (w.job, {_of("w")})
        ORDER BY w.started_ns, w.rank, w.until_ns DESC
        """,
        {"iteration": iteration},
    ).fetchall()
    return [TracedTask(*row) for row in found]


def _of(alias: str) -> str:
    """What tells a task of an iteration, of a table's alias."""
    return ", ".join(f"{alias}.{name}" for name in _KEY.split(", "))


def sends_of(incident: Incident, iteration: int, first_ns: int) -> list[tuple[Any, ...]]:
    """(node, rank, when it was sent, node, rank, when the task that waits for it began, what), ns
    since `first_ns`."""
    joins = " ".join(
        f"JOIN graph g{side} ON (g{side}.replica, "
        + ", ".join(f"g{side}.{name}" for name in ("stage", "chunk", "micro_batch", "task"))
        + ") = (e.replica, "
        + ", ".join(f"e.{side}_{name}" for name in ("stage", "chunk", "micro_batch", "task"))
        + f") JOIN placed p{side} ON p{side}.rank = g{side}.rank "
        + f"AND ({_of(f'p{side}')}) = ({_of(f'g{side}')})"
        for side in ("from", "to")
    )
    return incident.con.execute(
        f"""
        WITH {_PLACED}, graph AS (FROM stage_graph WHERE iteration = $iteration)
        SELECT pfrom.node, pfrom.rank, pfrom.until_ns - {first_ns}, pto.node, pto.rank,
            pto.started_ns - {first_ns}, e.from_task || ' ' || e.from_micro_batch
        FROM (FROM stage_edges WHERE kind = 'send' AND iteration = $iteration) e {joins}
        WHERE pfrom.ended_ns IS NOT NULL ORDER BY pfrom.until_ns, pfrom.rank, pto.rank
        """,
        {"iteration": iteration},
    ).fetchall()
