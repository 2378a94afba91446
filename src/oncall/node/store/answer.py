"""Answers to requests about evidence that one connection shows: the node's, or a part of it.

Digest and detail are one selection with two budgets: of a whole job to see what has started, then
of the communicators where something has. Readings of devices are thinned by time (measured.py), and
small tables go whole. Values from a request are only
ever parameters, and tables only names of the schema.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import duckdb

from oncall.core.errors import short_reason
from oncall.evidence.schema import BY_NAME
from oncall.evidence.training_tables import IN_FLIGHT
from oncall.node.store.digest import measure_own_time, same, thin, thin_transfers
from oncall.node.store.measured import READ, select_measured
from oncall.node.store.parts import PARQUET, ROWS_IN_A_PART
from oncall.node.store.shard_digest import CANDIDATES, shows
from oncall.node.store.traffic import THINNED, thinned_traffic
from oncall.node.store.wire import End, Part, Request, WireError

TRANSFERS_PART = 2  # so many rows for operations are one for transfers

# Tables that go whole, or as the newest row for each of these columns.
WHOLE = ("jobs", "ranks", "comms", "stacks", "recordings", "links", "qps")
NEWEST = {
    "launches": ("job", "comm", "rank", "source"),
    "collectors": ("node", "source"),
    "devices": ("node", "kind", "device"),
}
# Of traffic and stages only the newest rows of the window go: by which instant, and how many.
TRAFFIC = {
    "epochs": ("start_ns", 100_000),
    "wr_windows": ("end_ns", 20_000),
    "op_traffic": ("started_ns", 20_000),
    "stage_tasks": ("started_ns", 20_000),
}
MEASURED = (*READ, "host_events", "pings")
DIGEST_TABLES = (*WHOLE, *NEWEST, *MEASURED, *TRAFFIC, "ops", "transfers", "op_channels")

_SELECTED = ("ops", "transfers", "op_channels")  # what `select_operations` chooses from

_OPERATION = ("job", "comm", "seq", "rank")
_SEEN = "greatest(enqueued_ns, started_ns, ended_ns, observed_ns)"
# Seen in flight after the window, an operation was in flight at its end. Of some communicators
# alone a later look would tell that all else is over.
_OBSERVED = (
    "CASE WHEN observed_ns > (SELECT until_ns FROM temp.digest_request) "
    "THEN (SELECT until_ns FROM temp.digest_request) ELSE observed_ns END AS observed_ns"
)
_SO_FAR = "coalesce(t.at_ns <= (SELECT until_ns FROM temp.digest_request), true)"
_IN_WINDOW = f"coalesce(t.at_ns >= (SELECT since_ns FROM temp.digest_request), true) AND {_SO_FAR}"
_ASKED = (
    "(SELECT len(comms) = 0 OR list_contains(comms, t.comm) FROM temp.digest_request) AND "
    "(ended_ns IS NULL OR coalesce(ended_ns >= (SELECT since_ns FROM temp.digest_request), true))"
)


def answer(con: duckdb.DuckDBPyConnection, request: Request) -> Iterator[Part | End]:
    """The parts of an answer, and its end. The connection is changed only in temporary tables.
    What cannot be computed is left out, and named in the end's `gaps`.

    `con` shows every evidence table in its current schema, as tables or views. Raises WireError
    for what is not asked of evidence, or of tables that there are not.
    """
    if request.ask not in ("digest", "detail"):
        raise WireError(f"evidence cannot answer `{request.ask}`", "request")
    unknown = [name for name in request.tables if name not in BY_NAME]
    if unknown:
        raise WireError(f"there is no table `{unknown[0]}`", "request")
    gaps: list[str] = []
    with _gap("operations", gaps):
        select_operations(con, request)
    left_out = _SELECTED if gaps else ()
    rows = 0
    with tempfile.TemporaryDirectory(prefix="oncall-answer-") as folder:
        for table in request.tables or DIGEST_TABLES:
            if table in left_out:
                continue
            with _gap(table, gaps):
                for part in _parts(con, table, request, Path(folder, "part.parquet")):
                    rows += part.rows
                    yield part
    yield End({"rows": rows, "gaps": gaps})


@contextmanager
def _gap(what: str, gaps: list[str]) -> Iterator[None]:
    """What cannot be computed of the evidence becomes a gap of the answer. Damage that shows in
    reading is left to who opened the shards, and knows which can be left out."""
    try:
        yield
    except (duckdb.DataError, ArithmeticError, LookupError, TypeError, ValueError) as error:
        gaps.append(f"{what} could not be computed: {short_reason(error)}")


def jobs_seen(con: duckdb.DuckDBPyConnection, source: str = "ops") -> dict[str, Any]:
    """Each job with the last instant that it was seen and its ranks here."""
    rows = con.execute(
        f"SELECT job, max({_SEEN}), list(DISTINCT rank ORDER BY rank) FROM {source} "
        "WHERE job IS NOT NULL GROUP BY job"
    ).fetchall()
    return {job: {"last_ns": last_ns, "ranks": ranks} for job, last_ns, ranks in rows}


# ----------------------------------------------------------------- operations


def select_operations(con: duckdb.DuckDBPyConnection, request: Request) -> None:
    """Make the temporary tables `digest_operations`, what goes of `ops`, with own times, and
    `digest_moved`, what goes of `transfers`."""
    _remember(con, request)
    con.execute(
        "CREATE OR REPLACE TEMP VIEW digest_job AS "
        "SELECT o.* FROM ops o, temp.digest_request r WHERE o.job = r.job"
    )
    if request.ask == "detail" and shows(con, CANDIDATES["ops"]):
        # Of some communicators alone own times cannot be measured, but of some rounds they were.
        con.execute(
            "CREATE OR REPLACE TEMP VIEW digest_measured AS "
            "SELECT j.* REPLACE (coalesce(j.own_ns, d.own_ns) AS own_ns) FROM temp.digest_job j "
            f"LEFT JOIN (FROM {CANDIDATES['ops']} WHERE own_ns IS NOT NULL) d "
            f"ON {same('j', 'd', (*_OPERATION, 'kind'))}"
        )
    else:
        measure_own_time(con, "temp.digest_job", "digest_measured")
    # What ended before the window gives a rank's position, if it is the last it did.
    con.execute(
        f"""
        CREATE OR REPLACE TEMP VIEW digest_asked AS
        WITH heads AS (
            SELECT job, comm, rank, kind, max(seq) AS seq FROM temp.digest_job GROUP BY ALL)
        SELECT m.* REPLACE ({_OBSERVED}) FROM temp.digest_measured m, temp.digest_request r
        WHERE (len(r.comms) = 0 OR list_contains(r.comms, m.comm))
            AND (r.first_seq IS NULL OR m.seq BETWEEN r.first_seq AND r.last_seq)
            AND (r.until_ns IS NULL OR coalesce(enqueued_ns, started_ns) <= r.until_ns)
            AND (r.since_ns IS NULL OR {_SEEN} >= r.since_ns OR {IN_FLIGHT} OR EXISTS (
                FROM heads h WHERE {same("h", "m", (*_OPERATION, "kind"))}))
        """
    )
    thin(con, "temp.digest_asked", "TEMP TABLE digest_operations", request.budget_rows)
    con.execute(
        f"CREATE OR REPLACE TEMP VIEW digest_moving AS SELECT t.* REPLACE ({_OBSERVED}) "
        "FROM transfers t WHERE t.job = (SELECT job FROM temp.digest_request) "
        f"AND {_SO_FAR.replace('at_ns', 'started_ns')} AND {_ASKED}"
    )
    thin_transfers(
        con, "temp.digest_moving", "TEMP TABLE digest_moved", request.budget_rows // TRANSFERS_PART
    )


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
    if not con.execute(f"SELECT 1 FROM {table} LIMIT 1").fetchall():
        return  # most are empty, and selecting nothing costs as much as selecting something
    selection = _selection(table, request)
    if table in MEASURED:
        con.execute(f"CREATE OR REPLACE TEMP TABLE digest_readings AS {selection}")
        budget = request.budget_rows if request.ask == "detail" else None
        selection = select_measured(con, table, "temp.digest_readings", budget)
    con.execute(f"CREATE OR REPLACE TEMP TABLE digest_part AS {selection}")
    ((rows,),) = con.execute("SELECT count(*) FROM temp.digest_part").fetchall()
    for first in range(0, rows, ROWS_IN_A_PART):
        piece = f"LIMIT {ROWS_IN_A_PART} OFFSET {first}" if rows > ROWS_IN_A_PART else ""
        con.execute(f"COPY (FROM temp.digest_part {piece}) TO '{path}' ({PARQUET})")
        yield Part(table, min(rows - first, ROWS_IN_A_PART), path.read_bytes())


def _selection(table: str, request: Request) -> str:
    """The rows of `table` that go, as SQL."""
    names = BY_NAME[table].column_names
    columns = ", ".join(f"t.{name}" for name in names)
    of_job = "t.job = (SELECT job FROM temp.digest_request)" if "job" in names else "true"
    if table == "ops":
        return (
            f"SELECT {columns} FROM temp.digest_operations t "
            "ORDER BY t.job, t.comm, t.kind, t.rank, t.seq"
        )
    if table == "transfers":
        return f"SELECT {columns} FROM temp.digest_moved t"
    if table == "op_channels":
        return (
            f"SELECT {columns} FROM op_channels t WHERE EXISTS (FROM temp.digest_operations o "
            f"WHERE {same('o', 't', _OPERATION)} AND o.ended_ns IS NULL)"
        )
    if table in NEWEST:
        key = ", ".join(NEWEST[table])
        # Where a device is does not change; a state of after the window is not of its time.
        until = "true" if table == "devices" else _SO_FAR
        return (
            f"SELECT {columns} FROM {table} t WHERE {of_job} AND {until} "
            f"QUALIFY row_number() OVER (PARTITION BY {key} ORDER BY at_ns DESC NULLS LAST) = 1"
        )
    if table == "qps" or table in TRAFFIC:  # a NIC does not know whose its queue pairs are
        of_job = f"coalesce({of_job}, true)"
    if table in TRAFFIC:
        instant, most = TRAFFIC[table]
        in_window = _IN_WINDOW.replace("at_ns", instant)
        all_of_it = f"SELECT {columns} FROM {table} t WHERE {of_job} AND {in_window}"
        if request.ask == "digest" and table in THINNED:
            return thinned_traffic(table, all_of_it)
        return f"{all_of_it} ORDER BY t.{instant} DESC NULLS LAST LIMIT {most}"
    in_window = _IN_WINDOW if "at_ns" in names else "true"
    return f"SELECT DISTINCT {columns} FROM {table} t WHERE {of_job} AND {in_window}"
