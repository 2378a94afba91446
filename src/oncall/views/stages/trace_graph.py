"""The trace graph of one iteration (VenusTrace 3.3).

Vertices are forwards and backwards of micro-batches on stages; edges say what waits for what: the
order of a rank's own program, and sends from stage to stage.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from oncall.core.errors import UsageError
from oncall.core.printable import clean
from oncall.evidence.incident import Incident
from oncall.views.stages.iterations import NO_STAGES, has_stages, worst_iteration
from oncall.views.stages.timeline import LETTERS

_VERTEX = "replica, stage, chunk, micro_batch, task"


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
        f"""SELECT job, {_VERTEX}, rank, node, started_ns, ended_ns, duration_ns,
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
