"""Narrow the evidence to one job and a time window.

Every function narrows the incident's tables in memory; a saved file is never changed.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from oncall.core.errors import UsageError
from oncall.core.printable import short
from oncall.evidence.schema import TABLES

if TYPE_CHECKING:
    import duckdb

# The columns that say when a row happened. Births of processes and queue pairs, and when a device
# was found, are no part of a window.
_INSTANTS = ("at_ns", "enqueued_ns", "start_ns", "started_ns", "ended_ns", "end_ns", "observed_ns")
_TIMELESS = ("ranks", "qps", "clocks", "devices")
TIMED = {
    table.name: tuple(name for name in _INSTANTS if name in table.column_names)
    for table in TABLES
    if table.name not in _TIMELESS and set(_INSTANTS) & set(table.column_names)
}
_OF_A_JOB = tuple(table.name for table in TABLES if "job" in table.column_names)

_IN_FLIGHT = "(ended_ns IS NULL AND coalesce(done = false, observed_ns IS NOT NULL))"


def jobs(con: duckdb.DuckDBPyConnection) -> tuple[str, ...]:
    """The names of all jobs that left evidence, in order."""
    union = " UNION ".join(f"SELECT job FROM {table}" for table in _with_rows(con, _OF_A_JOB))
    if not union:
        return ()
    rows = con.execute(
        f"SELECT DISTINCT job FROM ({union}) WHERE job IS NOT NULL ORDER BY job"
    ).fetchall()
    return tuple(row[0] for row in rows)


def keep_job(con: duckdb.DuckDBPyConnection, job: str | None) -> str:
    """Drop the evidence of all other jobs and return the job's name.

    Without `job` there must be one only. Raises UsageError if the job left no evidence, or if
    there are several to choose from.
    """
    found = jobs(con)
    if job is None and len(found) > 1:
        raise UsageError(
            f"this evidence is of {len(found)} jobs; choose one with --job: {_list(found)}"
        )
    if job is not None and job not in found:
        known = f"it is of {_list(found)}" if found else "it names no job"
        raise UsageError(f"no evidence of job `{short(job)}` here; {known}")
    if len(found) > 1:
        for table in _OF_A_JOB:
            con.execute(f"DELETE FROM {table} WHERE job <> ?", [job])
    return job or (found[0] if found else "")


def span(con: duckdb.DuckDBPyConnection) -> tuple[int | None, int | None]:
    """First and last instant of the evidence, Unix time in ns; None if it has no times."""
    parts = " UNION ALL ".join(
        f"SELECT least({_each('min', columns)}) AS low, greatest({_each('max', columns)}) AS high"
        f" FROM {table}"
        for table, columns in ((table, TIMED[table]) for table in _with_rows(con, TIMED))
    )
    if not parts:
        return None, None
    ((first, last),) = con.execute(f"SELECT min(low), max(high) FROM ({parts})").fetchall()
    return first, last


def _with_rows(con: duckdb.DuckDBPyConnection, tables: Iterable[str]) -> list[str]:
    """The tables (or views) that may have rows: a query over all would mostly be planned for none.

    DuckDB counts deleted rows, too, so 0 is certain.
    """
    known = con.execute(
        "SELECT table_name FROM duckdb_tables() WHERE estimated_size = 0 "
        "AND database_name = current_database() AND NOT temporary"
    )
    empty = {name for (name,) in known.fetchall()}
    return [table for table in tables if table not in empty]


def cut_after(con: duckdb.DuckDBPyConnection, until_ns: int) -> None:
    """Show the evidence as of `until_ns`: remove what began later; an operation, task or flow that
    ended later becomes in flight, its progress unknown."""
    for table, columns in TIMED.items():
        con.execute(
            f"DELETE FROM {table} WHERE least({', '.join((*columns, 'NULL'))}) > ?", [until_ns]
        )
    con.execute(
        "UPDATE ops SET ended_ns = NULL, duration_ns = NULL, done = false, sends = NULL, "
        "recvs = NULL, send_rate = NULL, recv_rate = NULL, observed_ns = $at WHERE ended_ns > $at",
        {"at": until_ns},
    )
    con.execute("UPDATE ops SET observed_ns = $at WHERE observed_ns > $at", {"at": until_ns})
    con.execute(
        "UPDATE stage_tasks SET ended_ns = NULL, own_ns = NULL, whole = false, "
        "last_call_ns = CASE WHEN last_call_ns <= $at THEN last_call_ns END WHERE ended_ns > $at",
        {"at": until_ns},
    )
    for table in ("flow_steps", "flows"):
        con.execute(f"UPDATE {table} SET ended_ns = NULL WHERE ended_ns > ?", [until_ns])
    # Counts and stacks without an instant describe the end of the recording, which is cut off.
    con.execute("DELETE FROM launches WHERE at_ns IS NULL")
    con.execute(
        "DELETE FROM stacks s WHERE seq IS NOT NULL AND NOT EXISTS "
        "(FROM ops o WHERE (o.rank, o.comm, o.seq, o.kind) = (s.rank, s.comm, s.seq, s.kind))"
    )


def cut_before(con: duckdb.DuckDBPyConnection, since_ns: int) -> None:
    """Drop what ended before `since_ns`, but keep what is still in flight and each rank's last
    operation on each communicator: they show what every rank was doing when the window began."""
    for table, columns in TIMED.items():
        if table != "ops":
            con.execute(
                f"DELETE FROM {table} WHERE greatest({', '.join((*columns, 'NULL'))}) < ?",
                [since_ns],
            )
    con.execute(
        f"""
        DELETE FROM ops USING
            (SELECT comm, rank, kind, max(seq) AS seq FROM ops GROUP BY ALL) AS final
        WHERE NOT {_IN_FLIGHT}
        AND (final.comm, final.rank, final.kind) = (ops.comm, ops.rank, ops.kind)
        AND ops.seq < final.seq AND coalesce(ended_ns, greatest(enqueued_ns, started_ns)) < ?
        """,
        [since_ns],
    )


def _each(function: str, columns: tuple[str, ...]) -> str:
    return ", ".join((*(f"{function}({column})" for column in columns), "NULL"))


def _list(names: tuple[str, ...], most: int = 12) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(map(short, names[:most])) + more
