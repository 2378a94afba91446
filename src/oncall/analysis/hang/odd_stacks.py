"""The few processes that do something of their own, while all others wait."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import duckdb

from oncall.analysis.hang.main_threads import (
    COLLECTIVE,
    COMPUTING,
    OCCUPIED,
    OTHER,
    RENDEZVOUS,
    TOGETHER,
    WAITING,
)
from oncall.evidence import relation
from oncall.evidence.relations import Param

_Row = dict[str, Any]
_BARRIER = re.compile(r"[\w.]{0,200}barrier at ")
# Of stages that pass on what they compute, most wait for whose turn it is.
_IN_TURN = re.compile(
    _BARRIER.pattern + r"|_wait_batch_p2p at |^(?>.* at )\S*(?:p2p_communication|pipe/p2p)\.py"
)
_PROCESSES = """
    WITH dumped AS (SELECT DISTINCT job FROM recordings WHERE kind = 'flight_recorder')
    SELECT *, job IN (FROM dumped) AND job NOT IN (SELECT job FROM unmet_calls) AS uncalled,
        job IN (SELECT job FROM log_causes WHERE NOT outlived
            UNION SELECT job FROM log_progress WHERE stopped) AS stopped,
        job IN (SELECT job FROM logged_steps) AS stepped
    FROM main_threads m WHERE looks <> 1
        OR job NOT IN (SELECT job FROM job_progress WHERE state = 'moving')
"""
_COLUMNS = (
    "job process rank node pid at_ns",
    ("activity", "VARCHAR", "", "what it does"),
    "frame",
    ("others", "BIGINT", "processes", "those that are not among the few"),
    ("waiting", "BIGINT", "processes", "of the others, how many wait for others or for a GPU"),
    ("processes", "BIGINT", "processes", "those whose stack is known"),
    ("elsewhere", "VARCHAR", "", "where most of the others are"),
    ("moved", "BOOLEAN", "", "its own stack changed between the looks; NULL: one look"),
    ("looks", "INTEGER", "", "how often each of the others was looked at, at least"),
    ("once", "BOOLEAN", "", "no process was looked at more than once: who waits may go on"),
    (
        "doubted",
        "BOOLEAN",
        "",
        "... and more than one is alone, or others compute, or they wait in a barrier, as they "
        "do while one saves, or for a stage that computes, or dumps show no call whose wait is "
        "rather a stop, or the log shows steps and no end of them, or it is one of few, and no log "
        "shows that the job stopped",
    ),
    ("stopped", "BOOLEAN", "", "the job's logs show that it stopped"),
    ("others_moved", "BIGINT", "processes", "of the others, whose stack changed"),
    (
        "reason",
        "VARCHAR",
        "",
        "waiting: all others are seen to wait; alike: they compute, which may be a wait; "
        "computing: it computes itself, and they wait; alone: the stacks of others are not known",
    ),
)


@relation(
    "odd_stacks",
    reads=["main_threads"],
    optional=[
        *("job_progress", "unmet_calls", "recordings"),
        *("logged_steps", "log_causes", "log_progress"),
    ],
    columns=_COLUMNS,
    source="the odd one out among equal stacks",
    params={
        "few": "lost_time.mostly",
        "few_computing": Param(
            "12.5 %",
            "one of eight; of fewer, who is elsewhere may only be the last to reach the call",
        ),
    },
)
def odd_stacks(
    con: duckdb.DuckDBPyConnection, *, few: float, few_computing: float
) -> Mapping[str, Any]:
    """One row for each process that is alone, or among few, in what it does. None where all are
    alike, and none where the job moves: the stacks of most changed between two looks, or after one
    the calls show it."""
    cursor = con.execute(_PROCESSES)
    names = [column[0] for column in cursor.description or ()]
    jobs: dict[str, list[_Row]] = defaultdict(list)
    for values in cursor.fetchall():
        row = dict(zip(names, values, strict=True))
        row["stepping"] = row["stepped"] and not row["stopped"]
        jobs[row["job"]].append(row)
    rows = [row for processes in jobs.values() for row in _odd(processes, few, few_computing)]
    return {one.name: [row[one.name] for row in rows] for one in odd_stacks.columns}


def _odd(processes: Sequence[_Row], few: float, few_computing: float) -> Sequence[_Row]:
    if len(processes) == 1 and processes[0]["activity"] in (COLLECTIVE, RENDEZVOUS):
        return [_alone(processes[0])] if processes[0]["looks"] else []
    processes = _together(processes)
    odd = _of(processes, OCCUPIED) or _of_their_own(processes)
    others = [one for one in processes if one not in odd]
    waiting = _of(others, WAITING)
    once = all(one["looks"] <= 1 for one in processes)
    reason, most = "waiting" if len(waiting) == len(others) else "alike", few
    if not odd:
        odd = [one for one in _of(processes, COMPUTING | OTHER) if one["looks"]]
        others = waiting = _of(processes, WAITING)
        # In one look at a job that runs somebody always comes last.
        reason, most = "computing", few if once else few_computing
    held = [one for one in others if one["activity"] in WAITING | COMPUTING]
    moved = [one for one in others if one["moved"]]
    if not odd or len(odd) > most * len(processes) or 2 * len(held) <= len(others):
        return []
    if 2 * len(moved) > len(others):
        return []
    running = reason == "computing" and not processes[0]["stopped"]
    rightly = _IN_TURN if running else _BARRIER
    barred = [one for one in others if rightly.match(one["frame"] or "")]
    doubted = len(odd) > 1 or reason == "alike" or processes[0]["uncalled"]
    doubted = doubted or 2 * len(barred) > len(others) or processes[0]["stepping"]
    many = len(odd) > few_computing * len(processes)
    doubted = doubted or (many and not processes[0]["stopped"])
    about = {
        "once": once,
        "doubted": once and doubted,
        "others": len(others),
        "waiting": len(waiting),
        "processes": len(processes),
        "reason": reason,
        "elsewhere": _elsewhere(others),
        "looks": min((one["looks"] for one in others), default=0),
        "others_moved": len(moved),
    }
    return [{**one, **about} for one in odd]


def _together(processes: Sequence[_Row]) -> Sequence[_Row]:
    """Most that rest at one line of the program's own code may wait there: not all that waits has a
    frame of its own."""
    places = [None if one["busy"] is not False else one["frame"] for one in _of(processes, OTHER)]
    frame, number = Counter(places).most_common(1)[0] if places else (None, 0)
    if frame is None or 2 * number <= len(processes):
        return processes
    here = {"activity": TOGETHER}
    return [one | here if one["frame"] == frame and not one["busy"] else one for one in processes]


def _alone(process: _Row) -> _Row:
    """The only process whose stack is known: for whom it waits, nothing shows."""
    about = {"others": 0, "waiting": 0, "processes": 1, "reason": "alone", "elsewhere": None}
    once = process["looks"] <= 1
    counts = {"looks": process["looks"], "others_moved": 0}
    return {**process, **about, **counts, "once": once, "doubted": once and process["stepping"]}


def _of(processes: Sequence[_Row], activities: frozenset[str]) -> list[_Row]:
    return [one for one in processes if one["activity"] in activities]


def _of_their_own(processes: Sequence[_Row]) -> list[_Row]:
    """Those in the program's own code. In one look these may be steps of a job that runs: of ranks
    that compute there, or came there by several ways, none stays."""
    odd = _of(processes, OTHER)
    if any(one["looks"] > 1 for one in odd):
        return odd
    ways = {_way(one["frames"], one["frame"] or "") for one in odd}
    return [] if len(ways) > 1 or any(one["busy"] for one in odd) else odd


def _way(frames: Sequence[str], frame: str) -> tuple[str, ...]:
    """How it came to this function, whose own line may differ: what called it, with lines."""
    below = frames[frames.index(frame) + 1 :] if frame in frames else ()
    return frame.rpartition(":")[0], *below


def _elsewhere(others: Sequence[_Row]) -> str:
    """`3 of 3 in a collective (all_reduce at distributed_c10d.py:1316)`."""
    (activity, frame), count = Counter(
        (one["activity"], one["frame"]) for one in others
    ).most_common(1)[0]
    return f"{count} in {activity} ({frame})"
