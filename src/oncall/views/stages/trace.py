"""An iteration as a trace shows it, all tasks and what was sent between them; and its graph, what
waits for what (VenusTrace 3.3)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

from oncall.core.errors import UsageError
from oncall.core.printable import clean
from oncall.evidence.incident import Incident
from oncall.views.stages.iterations import NO_STAGES, has_stages, worst_iteration
from oncall.views.stages.timeline import LETTERS

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


@dataclass(frozen=True)
class Vertex:
    """One task of a stage. Instants are Unix ns on common time; unknown is None."""

    replica: int
    stage: int
    chunk: int
    micro_batch: int
    task: str
    rank: int
    node: str | None
    started_ns: int
    ended_ns: int | None
    duration_ns: int | None
    expected_ns: int | None
    slack_ns: int | None
    wait_ns: int | None
    critical: bool

    @property
    def id(self) -> str:
        """`p0.s2.c0.F3`: pipeline, stage, chunk, task with its micro-batch."""
        place = f"p{self.replica}.s{self.stage}.c{self.chunk}"
        return f"{place}.{LETTERS[self.task]}{self.micro_batch}"


@dataclass(frozen=True)
class Edge:
    """`end` waits for `start`: in the order of the program, or for what it sends."""

    start: Vertex
    end: Vertex
    kind: str
    latency_ns: int | None


@dataclass(frozen=True)
class TraceGraph:
    """One iteration of some pipelines; vertices by pipeline, stage and start."""

    job: str
    iteration: int
    vertices: tuple[Vertex, ...]
    edges: tuple[Edge, ...]


def read_graph(
    incident: Incident, iteration: int | None = None, replicas: Iterable[int] | None = None
) -> TraceGraph:
    """The graph of one iteration (None: the worst) of pipelines (None: all). Raises UsageError."""
    if not has_stages(incident):
        raise UsageError(NO_STAGES)
    incident.provide(["stage_edges"])
    iteration = worst_iteration(incident) if iteration is None else iteration
    chosen = {
        "iteration": iteration,
        "replicas": None if replicas is None else list(replicas),
    }
    where = "iteration = $iteration AND ($replicas IS NULL OR list_contains($replicas, replica))"
    rows = incident.con.execute(
        f"""SELECT job, {_KEY}, rank, node, started_ns, ended_ns, duration_ns,
            expected_ns::BIGINT, slack_ns, wait_ns, coalesce(critical, false)
        FROM stage_graph WHERE {where} ORDER BY replica, stage, started_ns, task""",
        chosen,
    ).fetchall()
    if not rows:
        raise UsageError(f"iteration {iteration} has no trace graph of that pipeline")
    vertices = tuple(Vertex(*row[1:]) for row in rows)
    by_key = {
        (one.replica, one.stage, one.chunk, one.micro_batch, one.task): one for one in vertices
    }
    ends = ", ".join(
        f"{side}_{name}"
        for side in ("from", "to")
        for name in ("stage", "chunk", "micro_batch", "task")
    )
    edges = tuple(
        Edge(by_key[replica, *key[:4]], by_key[replica, *key[4:]], kind, latency_ns)
        for replica, *key, kind, latency_ns in incident.con.execute(
            f"SELECT replica, {ends}, kind, latency_ns FROM stage_edges WHERE {where} ORDER BY ALL",
            chosen,
        ).fetchall()
        if (replica, *key[:4]) in by_key and (replica, *key[4:]) in by_key
    )
    return TraceGraph(clean(rows[0][0] or ""), iteration, vertices, edges)
