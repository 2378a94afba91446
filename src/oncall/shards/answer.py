"""Answers to requests about evidence that one connection shows: the node's, or a part of it.

Digest and detail are one selection with two budgets: of a whole job to see what has started, then
of the communicators where something has. Small tables go whole. Values from a request are only
ever parameters, and tables only names of the schema.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from oncall.evidence.schema import BY_NAME
from oncall.shards.digest import IN_FLIGHT, measure_own_time, same, thin
from oncall.shards.wire import End, Part, Request, WireError

if TYPE_CHECKING:
    import duckdb

ROWS_IN_A_PART = 500_000
PARQUET = "FORMAT parquet, COMPRESSION zstd, PARQUET_VERSION v2"

# Tables that go whole, or as the newest row for each of these columns.
WHOLE = ("jobs", "ranks", "comms", "stacks", "recordings")
NEWEST = {
    "launches": ("job", "comm", "rank", "source"),
    "collectors": ("node", "source"),
}
EVENTS = ("host_events",)
TRACES = ("transfers", "op_channels")  # progress inside operations
DIGEST_TABLES = (*WHOLE, *NEWEST, *EVENTS, "ops", *TRACES)

_OPERATION = ("job", "comm", "seq", "rank")
_SEEN = "greatest(enqueued_ns, started_ns, ended_ns, observed_ns)"


def answer(con: duckdb.DuckDBPyConnection, request: Request) -> Iterator[Part | End]:
    """The parts of an answer, and its end. The connection is changed only in temporary tables.

    `con` shows every evidence table in its current schema, as tables or views. Raises WireError
    for what is not asked of evidence, or of tables that there are not.
    """
    if request.ask == "hello":
        yield End({"jobs": jobs_seen(con)})
        return
    if request.ask not in ("digest", "detail"):
        raise WireError(f"evidence does not answer `{request.ask}`", "request")
    unknown = [name for name in request.tables if name not in BY_NAME]
    if unknown:
        raise WireError(f"there is no table `{unknown[0]}`", "request")
    select_operations(con, request)
    rows = 0
    with tempfile.TemporaryDirectory(prefix="oncall-answer-") as folder:
        for table in request.tables or DIGEST_TABLES:
            for part in _parts(con, table, request, Path(folder, "part.parquet")):
                rows += part.rows
                yield part
    yield End({"rows": rows})


def jobs_seen(con: duckdb.DuckDBPyConnection, source: str = "ops") -> dict[str, Any]:
    """Each job with the last instant that it was seen and its ranks here."""
    rows = con.execute(
        f"SELECT job, max({_SEEN}), list(DISTINCT rank ORDER BY rank) FROM {source} "
        "WHERE job IS NOT NULL GROUP BY job"
    ).fetchall()
    return {job: {"last_ns": last_ns, "ranks": ranks} for job, last_ns, ranks in rows}


# ----------------------------------------------------------------- operations


def select_operations(con: duckdb.DuckDBPyConnection, request: Request) -> None:
    """Make the temporary table `digest_operations`: what goes of `ops`, with own times."""
    _remember(con, request)
    con.execute(
        """
        CREATE OR REPLACE TEMP VIEW digest_asked AS
        SELECT o.* FROM ops o, temp.digest_request r
        WHERE o.job = r.job AND (len(r.comms) = 0 OR list_contains(r.comms, o.comm))
            AND (r.first_seq IS NULL OR o.seq BETWEEN r.first_seq AND r.last_seq)
            AND (r.until_ns IS NULL OR coalesce(enqueued_ns, started_ns) <= r.until_ns)
        """
    )
    measure_own_time(con, "temp.digest_asked", "digest_measured")
    # What ended before the window tells where a rank stands, if it is the last it did.
    con.execute(
        f"""
        CREATE OR REPLACE TEMP VIEW digest_windowed AS
        SELECT m.* FROM temp.digest_measured m, temp.digest_request r
        WHERE r.since_ns IS NULL OR {_SEEN} >= r.since_ns OR {IN_FLIGHT}
            OR EXISTS (FROM (SELECT job, comm, rank, kind, max(seq) AS seq
                             FROM temp.digest_asked GROUP BY ALL) h
                       WHERE {same("h", "m", ("job", "comm", "rank", "kind", "seq"))})
        """
    )
    thin(con, "temp.digest_windowed", "digest_operations", request.budget_rows)


def _remember(con: duckdb.DuckDBPyConnection, request: Request) -> None:
    """The request as a table of one row, so that views can read it."""
    first, last = request.seqs or (None, None)
    con.execute(
        "CREATE OR REPLACE TEMP TABLE digest_request AS SELECT ?::VARCHAR AS job, "
        "?::BIGINT AS since_ns, ?::BIGINT AS until_ns, ?::UBIGINT[] AS comms, "
        "?::BIGINT AS first_seq, ?::BIGINT AS last_seq",
        [request.job, request.since_ns, request.until_ns, [*request.comms], first, last],
    )


# ---------------------------------------------------------------------- parts


def _parts(
    con: duckdb.DuckDBPyConnection, table: str, request: Request, path: Path
) -> Iterator[Part]:
    """The rows of one table that go, as Parquet of at most `ROWS_IN_A_PART` rows; none if none."""
    columns = ", ".join(f"t.{name}" for name in BY_NAME[table].column_names)
    select = f"SELECT {columns} FROM {_selection(table, request)}"
    con.execute(f"CREATE OR REPLACE TEMP TABLE digest_part AS {select}")
    ((rows,),) = con.execute("SELECT count(*) FROM temp.digest_part").fetchall()
    for first in range(0, rows, ROWS_IN_A_PART):
        piece = f"LIMIT {ROWS_IN_A_PART} OFFSET {first}" if rows > ROWS_IN_A_PART else ""
        con.execute(f"COPY (FROM temp.digest_part {piece}) TO '{path}' ({PARQUET})")
        yield Part(table, min(rows - first, ROWS_IN_A_PART), path.read_bytes())


def _selection(table: str, request: Request) -> str:
    """What follows FROM for the rows of `table` (as `t`) that go."""
    if table == "ops":
        return "temp.digest_operations t ORDER BY t.job, t.comm, t.kind, t.rank, t.seq"
    asked = "(SELECT job FROM temp.digest_request)"
    of_job = f"t.job = {asked}" if "job" in BY_NAME[table].column_names else "true"
    if table in TRACES:
        return f"{table} t WHERE {of_job} AND {_trace(table)}"
    if table in NEWEST:
        key = ", ".join(NEWEST[table])
        return (
            f"{table} t WHERE {of_job} "
            f"QUALIFY row_number() OVER (PARTITION BY {key} ORDER BY at_ns DESC NULLS LAST) = 1"
        )
    if table in WHOLE:
        return f"(SELECT DISTINCT * FROM {table}) t WHERE {of_job}"
    if "at_ns" in BY_NAME[table].column_names:
        return (
            f"{table} t, temp.digest_request r WHERE {of_job} "
            "AND coalesce(t.at_ns >= r.since_ns, true) AND coalesce(t.at_ns <= r.until_ns, true)"
        )
    return f"{table} t WHERE {of_job}"


def _trace(table: str) -> str:
    """SQL: progress inside an operation goes if it is in flight, or was sampled with its
    operation."""
    if table == "op_channels":
        return (
            "EXISTS (FROM temp.digest_operations o "
            f"WHERE {same('o', 't', _OPERATION)} AND o.ended_ns IS NULL)"
        )
    return (
        "(ended_ns IS NULL OR EXISTS (FROM temp.digest_operations o "
        f"WHERE {same('o', 't', (*_OPERATION, 'kind'))} AND o.stands_for > 0))"
    )
