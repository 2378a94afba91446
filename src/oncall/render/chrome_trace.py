"""Iterations as a trace for Perfetto or chrome://tracing: a process a node, a thread a rank.

The format is Chrome's Trace Event Format (JSON), times in microseconds since the first task:
complete events `X` for tasks, asynchronous ones `b`, `e` for sends and receives, which overlap,
flow events `s`, `f` from each task to the one on another stage that works on what it sent. The
critical path has tracks of its own, one a pipeline, so that it is seen whatever a viewer colours.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

from oncall.core.errors import UsageError
from oncall.core.printable import clean
from oncall.evidence.incident import Incident
from oncall.views.stages.iterations import NO_STAGES, has_stages
from oncall.views.stages.timeline import COMPUTE, LETTERS

_PATHS_PROCESS = 0
# Chrome's names of colours, which Perfetto takes too where it honours them.
_COLOURS = {"forward": "rail_response", "backward": "good"}
_CRITICAL_COLOUR = "terrible"
_Event = dict[str, Any]
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


class _Task(NamedTuple):
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


def chrome_trace(incident: Incident, iteration: int | None = None) -> Iterator[str]:
    """The pieces of the JSON text, of one iteration or all. Raises UsageError at the first."""
    if not has_stages(incident):
        raise UsageError(NO_STAGES)
    incident.provide(["stage_edges"])
    wanted = [
        number
        for (number,) in incident.con.execute(
            "SELECT DISTINCT iteration FROM stage_work WHERE started_ns IS NOT NULL "
            "AND iteration IS NOT NULL AND ($only IS NULL OR iteration = $only) ORDER BY iteration",
            {"only": iteration},
        ).fetchall()
    ]
    if not wanted:
        raise UsageError(f"there is no iteration {iteration}")
    ((first_ns, job),) = incident.con.execute(
        "SELECT min(started_ns), any_value(job) FROM stage_work "
        "WHERE list_contains(?::BIGINT[], iteration)",
        [wanted],
    ).fetchall()
    about = {"job": clean(job or ""), "origin_unix_ns": first_ns}
    yield f'{{"displayTimeUnit": "ms", "otherData": {json.dumps(about)},\n"traceEvents": [\n'
    separator = ""
    for event in _events(incident, wanted, first_ns):
        yield f"{separator}{json.dumps(event)}"
        separator = ",\n"
    yield "\n]}\n"


def _events(incident: Incident, iterations: list[int], first_ns: int) -> Iterator[_Event]:
    processes = _processes(incident)
    yield from _names(incident, processes)
    ended_ns: dict[int, int] = {}
    for iteration in iterations:  # one at a time, so that not all are held
        rows = _tasks(incident, iteration, first_ns)
        yield from _paths(rows, ended_ns)
        for number, row in enumerate(rows):
            yield from _task(number, row, processes)
        yield from _sends(incident, iteration, first_ns, processes)


def _processes(incident: Incident) -> dict[str | None, int]:
    """Node -> process number; ranks whose node is not known share one."""
    rows = incident.con.execute("SELECT DISTINCT node FROM stage_work ORDER BY node").fetchall()
    return {node: number for number, (node,) in enumerate(rows, _PATHS_PROCESS + 1)}


def _names(incident: Incident, processes: dict[str | None, int]) -> Iterator[_Event]:
    yield _name("process_name", _PATHS_PROCESS, 0, "critical path")
    for node, pid in processes.items():
        yield _name("process_name", pid, 0, clean(node) if node else "node unknown")
    for (replica,) in incident.con.execute(
        "SELECT DISTINCT replica FROM stage_graph ORDER BY replica"
    ).fetchall():
        yield _name("thread_name", _PATHS_PROCESS, replica, f"pipeline {replica}")
    ranks = incident.con.execute(
        "SELECT node, rank, any_value(stage), any_value(replica) FROM stage_work "
        "GROUP BY node, rank ORDER BY any_value(replica), any_value(stage), rank"
    ).fetchall()
    for place, (node, rank, stage, replica) in enumerate(ranks):
        pid, pipeline = processes[node], "" if replica is None else f", pipeline {replica}"
        yield _name("thread_name", pid, rank, f"rank {rank}: stage {stage}{pipeline}")
        order = {"sort_index": place}
        yield {"ph": "M", "name": "thread_sort_index", "pid": pid, "tid": rank, "args": order}


def _name(kind: str, pid: int, tid: int, name: str) -> _Event:
    return {"ph": "M", "name": kind, "pid": pid, "tid": tid, "args": {"name": name}}


def _tasks(incident: Incident, iteration: int, first_ns: int) -> list[_Task]:
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
    return [_Task(*row) for row in found]


def _of(alias: str) -> str:
    """What tells a task of an iteration, of a table's alias."""
    return ", ".join(f"{alias}.{name}" for name in _KEY.split(", "))


def _paths(rows: list[_Task], ended_ns: dict[int, int]) -> Iterator[_Event]:
    """The critical path of each pipeline. Its tasks are of several ranks, and one begins after the
    other; `ended_ns` is where the path of each pipeline has come to so far."""
    by_replica: dict[int, list[_Task]] = {}
    for row in rows:
        if row.critical:
            by_replica.setdefault(row.replica or 0, []).append(row)
    for replica, path in by_replica.items():
        for row in path:
            at_ns = max(row.at_ns, ended_ns.get(replica, 0))
            if row.until_ns <= at_ns:
                continue
            ended_ns[replica] = row.until_ns
            yield _event(row) | {
                "name": f"{_name_of(row)} rank {row.rank}",
                "pid": _PATHS_PROCESS,
                "tid": replica,
                "ph": "X",
                "ts": at_ns / 1000,
                "dur": (row.until_ns - at_ns) / 1000,
            }


def _name_of(row: _Task) -> str:
    counted = row.task in COMPUTE and row.micro_batch is not None
    return f"{LETTERS[row.task]}{row.micro_batch}" if counted else row.task.replace("_", " ")


def _event(row: _Task) -> _Event:
    """What all events of a task have."""
    about = {
        "iteration": row.iteration,
        "task": row.task,
        "micro_batch": row.micro_batch,
        "chunk": row.chunk,
        "slack_us": None if row.slack_ns is None else row.slack_ns / 1000,
        "expected_us": None if row.expected_ns is None else row.expected_ns / 1000,
    }
    return {
        "cat": f"{row.task},critical" if row.critical else row.task,
        "ts": row.at_ns / 1000,
        "args": {key: value for key, value in about.items() if value is not None},
    }


def _task(number: int, row: _Task, processes: dict[str | None, int]) -> Iterator[_Event]:
    name = _name_of(row)
    event = _event(row) | {
        "name": f"{name}, not finished" if row.is_open else name,
        "pid": processes[row.node],
        "tid": row.rank,
    }
    if row.moves:
        event |= {
            "id": f"{row.iteration}.{row.rank}.{row.task}.{number}",
            "name": f"rank {row.rank} {name}",
        }
        yield event | {"ph": "b"}
        yield event | {"ph": "e", "ts": row.until_ns / 1000}
        return
    event |= {"ph": "X", "dur": (row.until_ns - row.at_ns) / 1000}
    if row.critical:
        event["cname"] = _CRITICAL_COLOUR
    elif row.task in _COLOURS:
        event["cname"] = _COLOURS[row.task]
    yield event


def _sends(
    incident: Incident, iteration: int, first_ns: int, processes: dict[str | None, int]
) -> Iterator[_Event]:
    """A flow from the end of the task that sends to the start of the one that waits for it."""
    joins = " ".join(
        f"JOIN graph g{side} ON (g{side}.replica, "
        + ", ".join(f"g{side}.{name}" for name in ("stage", "chunk", "micro_batch", "task"))
        + ") = (e.replica, "
        + ", ".join(f"e.{side}_{name}" for name in ("stage", "chunk", "micro_batch", "task"))
        + f") JOIN placed p{side} ON p{side}.rank = g{side}.rank "
        + f"AND ({_of(f'p{side}')}) = ({_of(f'g{side}')})"
        for side in ("from", "to")
    )
    found = incident.con.execute(
        f"""
        WITH {_PLACED}, graph AS (FROM stage_graph WHERE iteration = $iteration)
        SELECT pfrom.node, pfrom.rank, pfrom.until_ns - {first_ns}, pto.node, pto.rank,
            pto.started_ns - {first_ns}, e.from_task || ' ' || e.from_micro_batch
        FROM (FROM stage_edges WHERE kind = 'send' AND iteration = $iteration) e {joins}
        WHERE pfrom.ended_ns IS NOT NULL ORDER BY pfrom.until_ns, pfrom.rank, pto.rank
        """,
        {"iteration": iteration},
    ).fetchall()
    for number, (node, rank, sent_ns, to_node, to_rank, got_ns, name) in enumerate(found):
        flow = {"cat": "send", "name": f"send of {name}", "id": f"{iteration}.{number}"}
        # A flow begins within its slice, the last nanosecond of it; and it ends at one's start.
        yield flow | {
            "ph": "s",
            "pid": processes[node],
            "tid": rank,
            "ts": (sent_ns - 1) / 1000,
        }
        yield flow | {
            "ph": "f",
            "bp": "e",
            "pid": processes[to_node],
            "tid": to_rank,
            "ts": max(got_ns, sent_ns) / 1000,
        }
