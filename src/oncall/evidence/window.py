"""Narrow the evidence to one job and a time window.

Every function narrows the incident's tables in memory; a saved file is never changed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from oncall.core.errors import UsageError
from oncall.core.printable import named, short
from oncall.evidence.schema import TABLES
from oncall.evidence.training_tables import IN_FLIGHT

if TYPE_CHECKING:
    import duckdb

# The columns that say when a row happened, in the order of its life. Births of processes and queue
# pairs, and when a device was found, are no part of a window.
_INSTANTS = ("at_ns", "enqueued_ns", "start_ns", "started_ns", "ended_ns", "end_ns", "observed_ns")
_TIMELESS = ("ranks", "qps", "clocks", "devices")
TIMED = {
    table.name: tuple(name for name in _INSTANTS if name in table.column_names)
    for table in TABLES
    if table.name not in _TIMELESS and set(_INSTANTS) & set(table.column_names)
}
_OF_A_JOB = tuple(table.name for table in TABLES if "job" in table.column_names)


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
    if job is not None:
        wanted, job = job, named(job, found)
        if job is None:
            known = f"it is of {_list(found)}" if found else "it names no job"
            raise UsageError(f"no evidence of job `{short(wanted)}` here; {known}")
    if len(found) > 1:
        of_others = f"job <> '{str(job).replace(chr(39), 2 * chr(39))}'"
        views = _views(con)
        for table in _OF_A_JOB:
            _remove(con, table, of_others, views)
    return job or (found[0] if found else "")


# Readings that files may show. Of one without a time in its text they lie before its own time, and
# closer to it than a day: when a file was written is not when its evidence is of.
_OF_FILES = ("gpus", "nics", "nic_priorities")
_STATED = (
    "WHERE NOT EXISTS (FROM recordings f WHERE f.undated "
    f"AND at_ns BETWEEN f.written_ns - {86_400 * 10**9} AND f.written_ns)"
)


def span(con: duckdb.DuckDBPyConnection) -> tuple[int | None, int | None]:
    """First and last instant of the evidence, Unix time in ns; None if it has no times."""
    parts = " UNION ALL ".join(
        f"SELECT least({_each('min', columns)}) AS low, greatest({_each('max', columns)}) AS high"
        f" FROM {table} {_STATED if table in _OF_FILES else ''}"
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
    at = int(until_ns)
    views = _views(con)
    for table, columns in TIMED.items():
        # The first instant that is known: which comes first of them is not asked of every row.
        _remove(con, table, f"coalesce({', '.join((*columns, 'NULL'))}) > {at}", views)
    _change(con, "ops", "observed_ns > $at", {"observed_ns": "$at"}, at, views)
    for table, unknown in _UNENDED.items():
        _change(con, table, "ended_ns > $at", unknown, at, views)
    # Counts and stacks without an instant describe the end of the recording, which is cut off.
    _remove(con, "launches", "at_ns IS NULL", views)
    _remove(
        con,
        "stacks",
        "seq IS NOT NULL AND NOT EXISTS (FROM ops o "
        "WHERE (o.rank, o.comm, o.seq, o.kind)"
        " = (stacks.rank, stacks.comm, stacks.seq, stacks.kind))",
        views,
    )


# What becomes of a row whose end is still to come. `ops` first loses what was observed later.
_UNENDED = {
    "ops": {
        "observed_ns": "$at",
        "done": "false",
        **dict.fromkeys(
            ("duration_ns", "sends", "recvs", "send_rate", "recv_rate", "ended_ns"), "NULL"
        ),
    },
    "stage_tasks": {
        "own_ns": "NULL",
        "whole": "false",
        "last_call_ns": "CASE WHEN last_call_ns <= $at THEN last_call_ns END",
        "ended_ns": "NULL",
    },
    "flow_steps": {"ended_ns": "NULL"},
    "flows": {"ended_ns": "NULL"},
}


def _views(con: duckdb.DuckDBPyConnection) -> set[str]:
    """The evidence tables that are read in place: views of a saved incident."""
    rows = con.execute("SELECT view_name FROM duckdb_views() WHERE NOT internal").fetchall()
    return {name for (name,) in rows} & {table.name for table in TABLES}


def _remove(con: duckdb.DuckDBPyConnection, table: str, where: str, views: set[str]) -> None:
    """Remove rows; a view shows the others from here on."""
    if table in views:
        _view_again(
            con, table, f"SELECT * FROM $before AS {table} WHERE NOT coalesce({where}, false)"
        )
    else:
        con.execute(f"DELETE FROM {table} WHERE {where}")


def _change(
    con: duckdb.DuckDBPyConnection,
    table: str,
    where: str,
    changes: Mapping[str, str],
    at_ns: int,
    views: set[str],
) -> None:
    """Give columns of some rows another value; `$at` is the instant."""
    if table in views:
        values = ", ".join(
            f"CASE WHEN {where} THEN {value} ELSE {column} END AS {column}"
            for column, value in changes.items()
        )
        sql = f"SELECT * REPLACE ({values}) FROM $before"
        _view_again(con, table, sql.replace("$at", str(at_ns)))
    else:
        values = ", ".join(f"{column} = {value}" for column, value in changes.items())
        con.execute(f"UPDATE {table} SET {values} WHERE {where}".replace("$at", str(at_ns)))


def _view_again(con: duckdb.DuckDBPyConnection, table: str, sql: str) -> None:
    """Put another view in the place of one, which `sql` reads as `$before`."""
    ((number,),) = con.execute(
        "SELECT count(*) FROM duckdb_views() WHERE starts_with(view_name, ?)", [f"{table}_before"]
    ).fetchall()
    before = f"{table}_before{number}"
    con.execute(f"ALTER VIEW {table} RENAME TO {before}")
    con.execute(f"CREATE VIEW {table} AS {sql.replace('$before', before)}")


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
        WHERE NOT {IN_FLIGHT}
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
