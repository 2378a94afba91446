"""Iterations of the training for a pane: one drawn, the others in a strip, a task opened."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any

from oncall.core.errors import NotRecorded, UsageError
from oncall.core.printable import clean
from oncall.core.units import format_bytes, format_duration
from oncall.evidence.incident import Incident
from oncall.views.snapshot import Table
from oncall.views.stages import iterations as evidence
from oncall.views.stages.iterations import IterationLine
from oncall.views.stages.timeline import COMPUTE, Box, Timeline
from oncall.views.stages.trace import EDGES

_CALLS = ("call", "communicator", "after", "took", "size")
_MOST_CALLS = 200
_MOST_MEMBERS = 16
_KEY = ("stage", "chunk", "micro_batch", "task")


@dataclass(frozen=True)
class StagesView:
    """All iterations, in order, and one of them as a timeline."""

    iterations: tuple[IterationLine, ...]
    timeline: Timeline
    pipelines: tuple[int, ...]  # there are


@dataclass(frozen=True)
class TaskCard:
    """One task of a rank: what is known of it, and the calls it made."""

    rank: int
    iteration: int
    box: Box
    facts: tuple[tuple[str, str], ...]
    calls: Table


def stages_of(
    incident: Incident,
    iteration: int | None,
    pipeline: int | None,
    every_rank: bool,
    hung_ns: int | None = None,
    blamed: Collection[int] = (),
) -> StagesView:
    """One iteration (None: the worst) of a pipeline (None: the one that others wait for). Of a job
    that hangs since `hung_ns`, the worst is the one that went on then. `blamed`: as in `timeline`.

    Raises UsageError with the reason where it is not there.
    """
    if iteration is None and hung_ns is not None and evidence.has_stages(incident):
        iteration = evidence.iteration_at(incident, hung_ns)
    replicas = None if pipeline is None else [pipeline]
    drawn = evidence.timeline(incident, iteration, replicas, every_rank=every_rank, blamed=blamed)
    pipelines = incident.con.execute(
        "SELECT DISTINCT coalesce(replica, 0) FROM stage_work ORDER BY 1"
    ).fetchall()
    return StagesView(evidence.iterations(incident), drawn, tuple(one for (one,) in pipelines))


def task_of(incident: Incident, rank: int, iteration: int, box: Box) -> TaskCard:
    """A task in full: what it waited for, who waited for it, its group, its calls."""
    if not evidence.has_stages(incident):
        raise NotRecorded(evidence.NO_STAGES)
    incident.provide(("stage_graph", "operations", "members", "clock_offsets"))
    place = incident.con.execute(
        "SELECT stage, coalesce(replica, 0), node FROM stage_work "
        # A rank that stopped before its first call of the iteration is where it was before.
        "WHERE rank = ? AND iteration <= ? ORDER BY iteration DESC LIMIT 1",
        [rank, iteration],
    ).fetchall()
    if not place:
        raise UsageError(f"rank {rank} has no task in iteration {iteration}")
    stage, replica, node = place[0]
    key = {
        "iteration": iteration,
        "replica": replica,
        "stage": stage,
        "chunk": box.chunk,
        "micro_batch": box.micro_batch,
        "task": box.task,
    }
    where = f" on {clean(node)}" if node else ""
    facts = (
        ("place", f"rank {rank}{where}, stage {stage} of pipeline {replica}"),
        *([("with", f"rank {box.peer}")] if box.peer is not None else []),
        *(_neighbours(incident, key) if box.task in COMPUTE else ()),
        *(_group(incident, key) if box.task in COMPUTE else ()),
    )
    return TaskCard(rank, iteration, box, facts, _calls(incident, rank, box))


def _neighbours(incident: Incident, key: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """What it waited for and who waited for it, over the edges of the trace graph."""
    for this, other, says in (
        ("vertex", "before", "waits for"),
        ("before", "vertex", "waited for by"),
    ):
        here = " AND ".join(f"t.{name} = ${name}" for name in ("iteration", "replica", *_KEY))
        rows = incident.con.execute(
            f"""
            SELECT o.task, o.micro_batch, o.stage, o.rank, e.kind, e.latency_ns
            FROM {EDGES} e JOIN stage_graph t ON t.vertex = e.{this}
            JOIN stage_graph o ON o.vertex = e.{other} WHERE {here} ORDER BY e.kind
            """,
            key,
        ).fetchall()
        for task, micro_batch, stage, rank, kind, latency_ns in rows:
            if kind == "send":
                way = f", sent in {format_duration(latency_ns)}" if latency_ns else ""
                yield says, f"{task} {micro_batch} on stage {stage}, rank {rank}{way}"
            else:
                yield says, f"{task} {micro_batch} on the same rank"


def _group(incident: Incident, key: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """The members of its tensor-parallel group in this task: own time, and who enters last."""
    rows = incident.con.execute(
        f"""
        SELECT rank, own_ns, late_ns, last_calls, calls FROM stage_work
        WHERE iteration = $iteration AND coalesce(replica, 0) = $replica AND stage = $stage
            AND coalesce(chunk, 0) = $chunk AND micro_batch = $micro_batch AND task = $task
        ORDER BY coalesce(own_ns, late_ns, 0) DESC, rank LIMIT {_MOST_MEMBERS}
        """,
        key,
    ).fetchall()
    for rank, own_ns, late_ns, last_calls, calls in rows if len(rows) > 1 else ():
        parts = [] if own_ns is None else [f"{format_duration(own_ns)} own time"]
        if late_ns and late_ns > 0:
            parts.append(f"{format_duration(late_ns)} late")
        if calls and last_calls is not None:
            parts.append(f"last in {last_calls} of {calls} calls")
        yield "tensor group", f"rank {rank}: {', '.join(parts) or 'unknown'}"


def _calls(incident: Incident, rank: int, box: Box) -> Table:
    """The rank's operations that began in the task, by start. Nodes' clocks are brought to common
    time, as the task's is."""
    rows = incident.con.execute(
        f"""
        WITH own AS (
            SELECT o.*, o.entered_ns - coalesce(c.offset_ns, 0) AS at_ns
            FROM operations o LEFT JOIN (SELECT DISTINCT ON (rank) rank, node FROM ranks) r
                USING (rank)
            LEFT JOIN clock_offsets c ON c.node = r.node
            WHERE o.rank = $rank),
        inside AS (
            FROM own WHERE at_ns >= $first AND ($last IS NULL OR at_ns < $last))
        SELECT i.op, i.peer, m.name, m.role, i.at_ns - $first, i.duration_ns, i.bytes, i.done,
            count(*) OVER ()
        FROM inside i LEFT JOIN (SELECT DISTINCT ON (comm) comm, name, role FROM members) m
            USING (comm)
        ORDER BY i.at_ns, i.seq LIMIT {_MOST_CALLS}
        """,
        {"rank": rank, "first": box.started_ns, "last": box.ended_ns},
    ).fetchall()
    lines = []
    for op, peer, name, role, after_ns, took_ns, size, done, _ in rows:
        took = "in it" if done is False else "" if took_ns is None else format_duration(took_ns)
        lines.append(
            (
                clean(str(op or "?")) + (f" with {peer}" if peer is not None else ""),
                clean(str(name or role or "")),
                format_duration(after_ns) if after_ns else "0",
                took,
                "" if size is None else format_bytes(size),
            )
        )
    return Table(_CALLS, tuple(lines), rows[0][-1] if rows else 0).filled()
