"""The tasks of iterations and what was sent between them, as a trace shows them; and the graph of
one iteration, what waits for what (VenusTrace 3.3)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from oncall.core.errors import UsageError
from oncall.core.printable import clean
from oncall.evidence.incident import Incident
from oncall.views.stages.iterations import NO_STAGES, has_stages, worst_iteration
from oncall.views.stages.timeline import LETTERS

_KEY = "replica, stage, chunk, micro_batch, task"
# What is not over yet reaches to the last instant that is known. Of a thread's events one must not
# reach into the next: clocks of calls and of computation differ by microseconds.
PLACED_TASKS = """
    seen AS (SELECT max(greatest(started_ns, ended_ns)) AS last_ns FROM stage_work),
    work AS (
        SELECT * REPLACE (coalesce(replica, 0) AS replica, coalesce(chunk, 0) AS chunk),
            task LIKE '%!_send' ESCAPE '!' OR task LIKE '%!_recv' ESCAPE '!' AS moves,
            greatest(coalesce(ended_ns, last_ns), started_ns) AS end_ns
        FROM stage_work CROSS JOIN seen WHERE started_ns IS NOT NULL),
    apart AS (
        SELECT *, CASE WHEN next_ns < end_ns AND end_ns < after_ns AND NOT moves THEN next_ns
            ELSE end_ns END AS until_ns
        FROM (SELECT *, lead(started_ns) OVER next AS next_ns, lead(end_ns) OVER next AS after_ns
            FROM work
            WINDOW next AS (PARTITION BY rank, moves ORDER BY started_ns, end_ns DESC))),
    placed AS (
        SELECT w.*, g.vertex, g.rank = w.rank AS decides,
            coalesce(g.critical AND decides, false) AS critical, g.slack_ns,
            g.expected_ns::BIGINT AS expected_ns
        FROM apart w LEFT JOIN stage_graph g USING (job, iteration, replica, stage, chunk,
            micro_batch, task))"""
# What each task waits for: the one before it on its rank, and what was sent to it.
EDGES = """(
    SELECT previous AS before, vertex, 'program order' AS kind, NULL AS latency_ns
    FROM stage_graph WHERE previous IS NOT NULL
    UNION ALL
    SELECT source, vertex, 'send', latency_ns FROM stage_graph WHERE source IS NOT NULL)"""
# From the end of the task that sends, its last nanosecond, to the start of the one that waits.
SENDS = f"""WITH {PLACED_TASKS}
    SELECT pfrom.rank, 'tasks' AS thread, pfrom.until_ns - 1 AS at_ns, pto.rank AS to_rank,
        'tasks' AS to_thread, greatest(pto.started_ns, pfrom.until_ns) AS to_ns,
        'sends ' || pfrom.task || ' ' || pfrom.micro_batch AS name, pfrom.node,
        pto.node AS to_node
    FROM stage_graph e JOIN placed pfrom ON pfrom.vertex = e.source AND pfrom.decides
    JOIN placed pto ON pto.vertex = e.vertex AND pto.decides
    WHERE pfrom.ended_ns IS NOT NULL"""


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
    incident.provide(["stage_graph"])
    iteration = worst_iteration(incident) if iteration is None else iteration
    chosen = {
        "iteration": iteration,
        "replicas": None if replicas is None else list(replicas),
    }
    where = "iteration = $iteration AND ($replicas IS NULL OR list_contains($replicas, replica))"
    rows = incident.con.execute(
        f"""SELECT job, vertex, {_KEY}, rank, node, started_ns, ended_ns, duration_ns,
            expected_ns::BIGINT, slack_ns, wait_ns, coalesce(critical, false)
        FROM stage_graph WHERE {where} ORDER BY replica, stage, started_ns, task""",
        chosen,
    ).fetchall()
    if not rows:
        raise UsageError(f"iteration {iteration} has no trace graph of that pipeline")
    vertices = tuple(Vertex(*row[2:]) for row in rows)
    by_number = dict(zip((number for _, number, *_ in rows), vertices, strict=True))
    edges = tuple(
        Edge(by_number[before], by_number[after], kind, latency_ns)
        for before, after, kind, latency_ns in incident.con.execute(
            f"SELECT before, vertex, kind, latency_ns FROM {EDGES} ORDER BY ALL"
        ).fetchall()
        if before in by_number and after in by_number
    )
    return TraceGraph(clean(rows[0][0] or ""), iteration, vertices, edges)
