"""Log lines as the functions of this room read them, in the order in which they were written; what
every cause states of its line; and which errors only follow from another.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import duckdb

Row = Mapping[str, Any]
# A folder of torchrun's --log-dir, of any start but the first.
_RESTARTED = re.compile(r"attempt_[1-9]\d*/\d+/std(?:out|err)\.log$")


@dataclass(frozen=True)
class Attempt:
    """What the logs say of one start of a job. Each row has its place in `order`."""

    job: str
    number: int
    events: Sequence[Row]
    reports: Sequence[Row]
    steps: Sequence[Row]
    world: int | None

    @cached_property
    def least(self) -> int:
        """How many ranks the job has at least: those that lines name, tasks that Slurm names, or a
        host's processes that write."""
        named = [
            row["rank"] + 1 for row in (*self.events, *self.reports) if row["rank"] is not None
        ]
        tasks = [row["number"] for row in self.of("world") if row["code"] == "least"]
        local = [
            row["local_rank"] + 1 for row in self.of("process") if row["local_rank"] is not None
        ]
        return max((*named, *tasks, *local), default=0)

    @cached_property
    def is_restart(self) -> bool:
        """Whether a launcher or the scheduler made this start after the one before ended."""
        paths = {row["path"] for row in (*self.events, *self.reports, *self.steps)}
        return bool(self.of("attempt")) or any(_RESTARTED.search(path) for path in paths)

    def went_on_after(self, row: Row, steps: int = 3) -> bool:
        """Whether the same log shows that many steps, or answers of a server, after the row:
        the job outlived it."""
        lines = self._step_lines.get(row["path"], [])
        return len(lines) - bisect_right(lines, row["line"]) >= steps

    def finished_before(self, row: Row) -> bool:
        """Whether a line before the row says that the job is done, and no step came between."""
        ends = [
            one["place"]
            for one in self.of("phase")
            if one["code"] in ("finished", "passed") and one["place"] < row["place"]
        ]
        return bool(ends) and not any(ends[-1] < one["place"] < row["place"] for one in self.steps)

    def started_before(self, row: Row) -> bool:
        """Whether the job took steps, or agents kept alive in its rendezvous, and a line after them
        does not begin anew: a connection that then fails lost a peer. Whose line stands first says
        nothing across ranks."""
        joined = any(one["code"] == "rendezvous" for one in self.of("echo"))
        return (bool(self.steps) or joined) and not self.finished_before(row)

    @cached_property
    def _step_lines(self) -> Mapping[str, list[int]]:
        """Where the steps of each log are, and the answers of a server."""
        lines: dict[str, list[int]] = defaultdict(list)
        for step in (*self.steps, *self.of("served")):
            lines[step["path"]].append(step["line"])
        return {path: sorted(found) for path, found in lines.items()}

    def of(self, *kinds: str) -> list[Row]:
        """Events of these kinds, in order."""
        return [row for row in self.events if row["kind"] in kinds]

    def fatal(self, *kinds: str) -> list[Row]:
        """Events of these kinds that the job did not outlive, in order."""
        return [row for row in self.of(*kinds) if not self.went_on_after(row)]


# A file without stamps has an order of its own only; the others follow their clocks.
_LINES = """
    CREATE OR REPLACE TEMP TABLE lines AS
    WITH steps AS (  -- of those that repeat an iteration, the first
      SELECT job, attempt, path, min(line) AS line, min(at_ns) AS at_ns, iteration,
        any_value(of_iterations) AS of_iterations
      FROM logged_steps GROUP BY job, attempt, path, iteration),
    said AS (
      SELECT 'event' AS of_table, * FROM log_events
      UNION ALL BY NAME SELECT 'report' AS of_table, * FROM watchdog_reports
      UNION ALL BY NAME SELECT 'step' AS of_table, *, at_ns AS sort_ns FROM steps),
    stamped AS (
      SELECT *, coalesce(sort_ns, min(sort_ns) OVER (PARTITION BY path)) AS sorted_ns FROM said)
    SELECT *, row_number() OVER (ORDER BY sorted_ns NULLS FIRST, path, line) AS place
    FROM stamped"""
_STEP = "job, attempt, path, line, at_ns, iteration, of_iterations, place"


def attempts(con: duckdb.DuckDBPyConnection) -> list[Attempt]:
    """Every start of the job that left lines, the first one first."""
    con.execute(_LINES)
    try:
        found = {
            of: _by_attempt(con, f"SELECT {what} FROM lines WHERE of_table = '{of}' ORDER BY place")
            for of, what in (("event", "*"), ("report", "*"), ("step", _STEP))
        }
    finally:
        con.execute("DROP TABLE lines")
    worlds = dict(con.execute("SELECT job, max(world_size) FROM jobs GROUP BY job").fetchall())
    return [
        Attempt(
            job,
            number,
            found["event"].get((job, number), []),
            found["report"].get((job, number), []),
            found["step"].get((job, number), []),
            worlds.get(job),
        )
        for job, number in sorted({key for each in found.values() for key in each})
    ]


def _by_attempt(con: duckdb.DuckDBPyConnection, sql: str) -> dict[tuple[str, int], list[Row]]:
    cursor = con.execute(sql)
    names = [column[0] for column in cursor.description or ()]
    found: dict[tuple[str, int], list[Row]] = defaultdict(list)
    for values in cursor.fetchall():
        row = dict(zip(names, values, strict=True))
        found[row["job"], row["attempt"]].append(row)
    return found


Cause = dict[str, Any]


def caused(name: str, reason: str, row: Row, **more: Any) -> Cause:
    """A cause that a row states, with where it states it."""
    columns: tuple[str, ...] = (
        "place",
        "at_ns",
        "path",
        "line",
        "rank",
        "node",
        "text",
        "seq",
        "process_group",
    )
    columns += ("before_ns",) if "before_ns" in row else ()
    return {"cause": name, "reason": reason, **{one: row[one] for one in columns}, **more}


def once(rows: Iterable[Row], *names: str) -> list[Row]:
    """The first row of each value of these columns."""
    seen: dict[tuple[Any, ...], Row] = {}
    for row in rows:
        seen.setdefault(tuple(row[name] for name in names), row)
    return list(seen.values())


def once_known(rows: Sequence[Row], name: str = "rank") -> list[Row]:
    """The first row of each known value, else the first row."""
    return once([row for row in rows if row[name] is not None], name) or list(rows[:1])


def link(row: Row) -> str | None:
    """Both ends of a connection, as host and the peer that it names."""
    return f"{row['node']} - {row['peer_host']}" if row["node"] and row["peer_host"] else None


# Types that nothing but an echo has.
_TYPES = {
    *("DistBackendError", "ChildFailedError", "DistNetworkError", "ConnectionResetError"),
    *("BrokenPipeError", "EOFError", "SignalException", "KeyboardInterrupt", "ConnectionError"),
    *(
        "RayActorError",
        "ActorDiedError",
        "ActorUnavailableError",
        "RayTaskError",
        "ProcessExitedException",
        "DistError",
    ),
    *("WorkerCrashedError", "ConnectionRefusedError", "CancelledError", "CalledProcessError"),
    *(
        "RendezvousConnectionError",
        "RendezvousTimeoutError",
        "SystemExit",
        "ProcessRaisedException",
        "CheckpointException",
    ),
    *("RendezvousClosedError", "ConnectionAbortedError", "DistStoreError", "TimeoutExpired"),
    *("TimeoutError", "GetTimeoutError", "EngineDeadError", "AsyncEngineDeadError"),
}
_SAID = re.compile(
    r"NCCL|HCCL|[Hh]ccl|"
    r"ncclUnhandled|ncclSystemError|ncclInternalError|Watchdog caught|ProcessGroup|"
    r"[Cc]onnection (?:reset|closed|refused)|Socket [Tt]imeout|Broken pipe|remote peer|"
    r"Pin memory thread exited|store->get|TCPStore|Timed out waiting|[Gg]loo|Detected mismatch|"
    r"process \d+ terminated|SIGTERM|SIGABRT|Aborted|monitoredBarrier|rendezvous|"
    r"[Ee]ngine ?[Cc]ore (?:initialization failed|encountered an issue)|"
    r"exited unexpectedly|closing signal|"
    r"^(?:DEADLINE_EXCEEDED|UNAVAILABLE|ABORTED|CANCELLED): |[Cc]oordination ?[Ss]ervice"
)
# Errors that are named after NCCL and are a process's own all the same.
_OWN = re.compile(r"ncclInvalidUsage|Duplicate GPU detected|invalid usage|NCCL library not found")
ENDED_BY_OTHERS = {"-6", "-15", "134", "143", "N/A"}


def is_echo(row: Mapping[str, Any]) -> bool:
    """Whether an exception is one that a process raises because another failed or did not come."""
    text = row["text"] or ""
    if _OWN.search(text):
        return False
    return row["code"] in _TYPES or bool(_SAID.search(text))
