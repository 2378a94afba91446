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

from oncall.errors import UsageError
from oncall.evidence.incident import Incident
from oncall.report.stages.evidence import NO_STAGES, has_stages
from oncall.report.stages.timeline import COMPUTE, LETTERS
from oncall.report.words import clean

_PATHS_PROCESS = 0
# Chrome's names of colours, which Perfetto takes too where it honours them.
_COLOURS = {"forward": "rail_response", "backward": "good"}
_CRITICAL_COLOUR = "terrible"
_Event = dict[str, Any]


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
    for iteration in iterations:  # one at a time, so that not all are held
        yield from _tasks(incident, iteration, first_ns, processes)
        yield from _sends(incident, iteration, first_ns, processes)


def _processes(incident: Incident) -> dict[str | None, int]:
    """Node -> process number; ranks whose node is not known share one."""
    rows = incident.con.execute("SELECT DISTINCT node FROM stage_work ORDER BY node").fetchall()
    return {node: number for number, (node,) in enumerate(rows, _PATHS_PROCESS + 1)}


def _names(incident: Incident, processes: dict[str | None, int]) -> Iterator[_Event]:
    yield _name("process_name", _PATHS_PROCESS, 0, "critical path")
    for node, pid in processes.items():
        yield _name("process_name", pid, 0, clean(node) if node else "node not known")
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


def _tasks(
    incident: Incident, iteration: int, first_ns: int, processes: dict[str | None, int]
) -> Iterator[_Event]:
    # What is not over yet reaches to the last instant that is known. Of a thread's events one must
    # not reach into the next: clocks of calls and of computation differ by microseconds.
    found = incident.con.execute(
        f"""
        WITH seen AS (SELECT max(greatest(started_ns, ended_ns)) AS last_ns FROM stage_work),
        work AS (
            SELECT *, task LIKE '%!_send' ESCAPE '!' OR task LIKE '%!_recv' ESCAPE '!' AS moves,
                greatest(coalesce(ended_ns, last_ns), started_ns) AS until_ns
            FROM stage_work CROSS JOIN seen
            WHERE iteration = $iteration AND started_ns IS NOT NULL),
        placed AS (
            SELECT *, lead(started_ns) OVER next AS next_ns, lead(until_ns) OVER next AS after_ns
            FROM work
            WINDOW next AS (PARTITION BY rank, moves ORDER BY started_ns, until_ns DESC))
        SELECT w.node, w.rank, w.iteration, w.task, w.moves, w.chunk, w.micro_batch,
            w.started_ns - {first_ns}, CASE WHEN next_ns < until_ns AND until_ns < after_ns
                AND NOT moves THEN next_ns ELSE until_ns END - {first_ns},
            w.ended_ns IS NULL, coalesce(g.critical, false) AND g.rank = w.rank, w.replica,
            g.slack_ns, g.expected_ns::BIGINT
        FROM placed w LEFT JOIN stage_graph g
            ON (g.job, g.iteration, g.replica, g.stage, g.chunk, g.micro_batch, g.task)
            = (w.job, w.iteration, coalesce(w.replica, 0), w.stage, coalesce(w.chunk, 0),
               w.micro_batch, w.task)
        ORDER BY w.started_ns, w.rank, w.until_ns DESC
        """,
        {"iteration": iteration},
    ).fetchall()
    for number, row in enumerate(found):
        yield from _task(number, _Task(*row), processes)


def _task(number: int, row: _Task, processes: dict[str | None, int]) -> Iterator[_Event]:
    counted = row.task in COMPUTE and row.micro_batch is not None
    name = f"{LETTERS[row.task]}{row.micro_batch}" if counted else row.task.replace("_", " ")
    about = {
        "iteration": row.iteration,
        "task": row.task,
        "micro_batch": row.micro_batch,
        "chunk": row.chunk,
        "slack_us": None if row.slack_ns is None else row.slack_ns / 1000,
        "expected_us": None if row.expected_ns is None else row.expected_ns / 1000,
    }
    event: _Event = {
        "name": f"{name}, not over" if row.is_open else name,
        "cat": f"{row.task},critical" if row.critical else row.task,
        "pid": processes[row.node],
        "tid": row.rank,
        "ts": row.at_ns / 1000,
        "args": {key: value for key, value in about.items() if value is not None},
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
        path = {"pid": _PATHS_PROCESS, "tid": row.replica or 0}
        yield event | path | {"name": f"{name} rank {row.rank}"}
        event["cname"] = _CRITICAL_COLOUR
    elif row.task in _COLOURS:
        event["cname"] = _COLOURS[row.task]
    yield event


def _sends(
    incident: Incident, iteration: int, first_ns: int, processes: dict[str | None, int]
) -> Iterator[_Event]:
    """A flow from the end of the task that sends to the start of the one that waits for it."""
    key = ("stage", "chunk", "micro_batch", "task")
    joins = " ".join(
        f"JOIN stage_graph {alias} ON ({', '.join(f'{alias}.{name}' for name in key)}) = "
        f"({', '.join(f'e.{side}_{name}' for name in key)}) AND {alias}.iteration = e.iteration "
        f"AND {alias}.replica = e.replica"
        for alias, side in (("a", "from"), ("b", "to"))
    )
    found = incident.con.execute(
        f"SELECT a.node, a.rank, a.ended_ns - {first_ns}, b.node, b.rank, "
        f"b.started_ns - {first_ns}, e.from_task || ' ' || e.from_micro_batch FROM "
        f"(FROM stage_edges WHERE kind = 'send' AND iteration = $iteration) e {joins} "
        "WHERE a.ended_ns IS NOT NULL ORDER BY a.ended_ns, a.rank",
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
