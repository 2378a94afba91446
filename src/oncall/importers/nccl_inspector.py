"""NCCL Inspector: completed operations as JSON lines (formats v4.0 to v5.x), or as OTLP JSON.

Only operations that completed are in these files, and by default they are written at the end of
the job: they show stragglers, never hangs.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import numpy as np

from oncall.core.errors import BadInput, Unreadable
from oncall.evidence.coverage import NUMBERED_BY_HOST
from oncall.evidence.incident import Incident, Words
from oncall.importers import files, nccl_inspector_otlp
from oncall.importers.process_ranks import Members, Numbering, Process, number, write_members
from oncall.importers.recordings import append_recording
from oncall.importers.tables import Database, json_lines, reason

KIND = "nccl_inspector"

_MOST_RANKS = 1 << 17
_MOST_HEAD_BYTES = 4096

_CHANNELS = "STRUCT(kernel_start_ts BIGINT, kernel_stop_ts BIGINT)[]"
_SHAPE = {
    "header": "STRUCT(id VARCHAR, comm_name VARCHAR, rank BIGINT, n_ranks BIGINT)",
    "metadata": "STRUCT(inspector_output_format_version VARCHAR, dump_timestamp_us BIGINT, "
    "hostname VARCHAR, pid BIGINT)",
    "coll_perf": "STRUCT(coll VARCHAR, coll_algo VARCHAR, coll_proto VARCHAR, coll_sn BIGINT, "
    "coll_msg_size_bytes BIGINT, coll_exec_time_us BIGINT, "
    f"event_trace_ts STRUCT(coll_start_ts BIGINT, kernel_events {_CHANNELS}))",
    "p2p_perf": "STRUCT(p2p VARCHAR, p2p_sn BIGINT, p2p_peer BIGINT, p2p_msg_size_bytes BIGINT, "
    "p2p_exec_time_us BIGINT, "
    f"event_trace_ts STRUCT(p2p_start_ts BIGINT, kernel_events {_CHANNELS}))",
    "dump_stats": "STRUCT(coll_dropped_total BIGINT, p2p_dropped_total BIGINT, "
    "coll_records BIGINT, p2p_records BIGINT, proxy_records BIGINT)",
    "proxy_trace": "VARCHAR",
}
_PROMETHEUS = re.compile(
    rb"(?:#[^\n]*\n|\s)*nccl_(?:p2p_)?(?:bus_bandwidth|\w{0,60}exec_time)\w*\{"
)
_NO_OPERATIONS = (
    "NCCL Inspector's text for Prometheus: it has the newest mean of each size of message, and "
    "neither operations nor ranks; record JSON instead (NCCL_INSPECTOR_PROM_DUMP=0)"
)

# Microseconds that stay below 2**63 as nanoseconds; 0 is how Inspector writes "not recorded".
_SETUP = f"""
    CREATE MACRO ns(us) AS CASE WHEN us BETWEEN 1 AND 9000000000000000 THEN us * 1000 END;
    CREATE MACRO hash_of(id) AS try_cast(id AS UBIGINT);
    CREATE MACRO known(name) AS CASE WHEN name NOT IN ('', 'unknown') THEN name END;
    CREATE TABLE line (
        file INTEGER, number BIGINT, comm UBIGINT, name VARCHAR, place INTEGER, size INTEGER,
        host VARCHAR, pid BIGINT, version VARCHAR, observed_ns BIGINT, kind VARCHAR, op VARCHAR,
        sn BIGINT, peer INTEGER, bytes BIGINT, duration_ns BIGINT, algo VARCHAR, proto VARCHAR,
        enqueued_ns BIGINT, started_ns BIGINT, ended_ns BIGINT, lost BIGINT, gpu INTEGER);
    CREATE MACRO small(n) AS CASE WHEN n BETWEEN 0 AND {_MOST_RANKS} THEN n END;
    CREATE MACRO positive(n) AS CASE WHEN n >= 0 THEN n END;
"""
_LOAD = """
    WITH numbered AS (SELECT ?::INTEGER AS file, *, row_number() OVER () AS place FROM {rows}),
    -- Since v4.3 the marker of a dump tells whose it is, for as many lines as it says.
    marked AS (
        SELECT *, last_value(CASE WHEN dump_stats IS NOT NULL AND header IS NOT NULL THEN
                struct_pack(header := header, metadata := metadata, until := place
                    + coalesce(dump_stats.coll_records, 0) + coalesce(dump_stats.p2p_records, 0)
                    + coalesce(dump_stats.proxy_records, 0)) END
            IGNORE NULLS) OVER (ORDER BY place ROWS UNBOUNDED PRECEDING) AS marker
        FROM numbered),
    completed AS (
        SELECT * REPLACE (
            CASE WHEN header IS NULL AND place <= marker.until THEN marker.header
                ELSE header END AS header,
            CASE WHEN header IS NULL AND place <= marker.until THEN marker.metadata
                ELSE metadata END AS metadata)
        FROM marked)
    SELECT file, place, hash_of(header.id), known(header.comm_name),
        small(header.rank), small(header.n_ranks), known(metadata.hostname),
        positive(metadata.pid), metadata.inspector_output_format_version,
        ns(metadata.dump_timestamp_us),
        CASE WHEN c IS NOT NULL THEN 'coll' WHEN p IS NOT NULL THEN 'p2p'
             WHEN dump_stats IS NOT NULL OR proxy_trace IS NOT NULL THEN 'stats' END,
        coalesce(c.coll, p.p2p), positive(coalesce(c.coll_sn, p.p2p_sn)), small(p.p2p_peer),
        positive(coalesce(c.coll_msg_size_bytes, p.p2p_msg_size_bytes)),
        ns(coalesce(c.coll_exec_time_us, p.p2p_exec_time_us)),
        known(c.coll_algo), known(c.coll_proto),
        ns(coalesce(c.event_trace_ts.coll_start_ts, p.event_trace_ts.p2p_start_ts)),
        list_min([ns(e.kernel_start_ts) FOR e IN events]),
        list_max([ns(e.kernel_stop_ts) FOR e IN events]),
        coalesce(dump_stats.coll_dropped_total, 0) + coalesce(dump_stats.p2p_dropped_total, 0),
        NULL
    FROM (SELECT *, coll_perf AS c, p2p_perf AS p, coalesce(
              coll_perf.event_trace_ts.kernel_events,
              p2p_perf.event_trace_ts.kernel_events) AS events
          FROM completed)
"""
_GOOD = "kind IN ('coll', 'p2p') AND comm IS NOT NULL AND place < size AND sn IS NOT NULL"

# NCCL numbers operations for each function apart (comm->seqNumber[func]). Where two functions of a
# communicator share a number, its collectives are numbered anew in the order they completed,
# which is the same on all members.
_NUMBERED = f"""
    CREATE TABLE numbered AS
    WITH shared AS (
        SELECT DISTINCT comm FROM line WHERE kind = 'coll' AND {_GOOD}
        GROUP BY comm, place, sn HAVING count(DISTINCT op) > 1),
    once AS (
        SELECT comm, op, sn, min(coalesce(ended_ns, observed_ns)) AS at_ns, min(number) AS number
        FROM line WHERE kind = 'coll' AND {_GOOD} GROUP BY comm, op, sn)
    SELECT comm, op, sn, CASE WHEN shared.comm IS NULL THEN sn
        ELSE row_number() OVER (PARTITION BY comm ORDER BY at_ns, number, op, sn) - 1 END AS seq
    FROM once LEFT JOIN shared USING (comm)
"""
_OPS = f"""
    SELECT comm, coalesce(n.seq, l.sn) AS seq, r.rank, p.rank AS peer, bytes, duration_ns,
        enqueued_ns, started_ns, ended_ns, observed_ns,
        list_position($kinds::VARCHAR[], kind) - 1 AS kind,
        coalesce(list_position($ops::VARCHAR[], op), 0) - 1 AS op,
        coalesce(list_position($algos::VARCHAR[], algo), 0) - 1 AS algo,
        coalesce(list_position($protos::VARCHAR[], proto), 0) - 1 AS proto
    FROM line l
    LEFT JOIN numbered n USING (comm, op, sn)
    LEFT JOIN ranks r USING (comm, place)
    LEFT JOIN ranks p ON p.comm = l.comm AND p.place = l.peer
    WHERE {_GOOD.replace("comm IS", "l.comm IS").replace("place <", "l.place <")}
"""


def recognises(path: Path, head: bytes) -> bool:  # noqa: ARG001 - content alone decides
    """Whether `head` starts like Inspector's JSON lines, or its text for Prometheus."""
    if head.lstrip()[:1] != b"{":
        return _PROMETHEUS.match(head) is not None
    return (
        b'"inspector_output_format_version"' in head
        or nccl_inspector_otlp.recognises(head)
        or (b'"header"' in head and (b'"coll_perf"' in head or b'"p2p_perf"' in head))
    )


def read(paths: Sequence[Path], incident: Incident, job: str) -> None:
    """Add the completed operations of all `paths` as evidence of `job`.

    Fills jobs, ranks, comms, ops and recordings. Lines that cannot be read are counted in the
    recording's problem; the rest is kept.
    """
    with Database() as db:
        db.con.execute(_SETUP + nccl_inspector_otlp.SETUP)
        problems = [_load(db, file, path) for file, path in enumerate(paths)]
        try:
            with db.deadline(*paths):
                _write(db, incident, job, paths, problems)
        except (Unreadable, duckdb.Error) as error:
            raise BadInput(str(paths[0].parent), reason(error)) from error


def _load(db: Database, file: int, path: Path) -> str | None:
    """Put one file's lines into `line`; returns why it could not be read at all, if so."""
    try:
        head = files.head(path, _MOST_HEAD_BYTES)
        if _PROMETHEUS.match(head):
            return _NO_OPERATIONS
        if nccl_inspector_otlp.recognises(head):
            shape, select = json_lines(nccl_inspector_otlp.SHAPE), nccl_inspector_otlp.LOAD
            problem = db.load("line", path, shape, select, [file])
            means = "SELECT 1 FROM line WHERE file = ? AND kind = 'mean' LIMIT 1"
            found = db.con.execute(means, [file]).fetchone()
            return nccl_inspector_otlp.MEANS if found else problem
        return db.load("line", path, json_lines(_SHAPE), _LOAD, [file])
    except Unreadable as error:
        return str(error)


def _write(
    db: Database, incident: Incident, job: str, paths: Sequence[Path], problems: list[str | None]
) -> None:
    of_devices = nccl_inspector_otlp.place_devices(db.con)
    db.con.execute(_NUMBERED)
    comms = _members(db.con)
    numbering = number(comms)
    if of_devices:
        numbering = replace(numbering, note=NUMBERED_BY_HOST)
    write_members(incident, job, comms, numbering)
    _write_ops(db, incident, job, numbering)
    for file, path in enumerate(paths):
        _write_recording(db.con, incident, job, file, path, problems[file], numbering)


def _members(con: duckdb.DuckDBPyConnection) -> dict[int, Members]:
    rows = con.execute(
        f"""SELECT comm, place, max(size), arg_max(host, number), arg_max(pid, number), max(name),
                any_value(gpu)
            FROM line WHERE {_GOOD} GROUP BY comm, place ORDER BY comm, place"""
    ).fetchall()
    comms: dict[int, Members] = {}
    for comm, place, size, host, pid, name, gpu in rows:
        members = comms.setdefault(comm, Members(size, name=name))
        if host is not None or pid is not None:
            members.processes[place] = Process(host, pid, gpu)
    return comms


def _write_ops(db: Database, incident: Incident, job: str, numbering: Numbering) -> None:
    """ops, column by column; strings go as codes into a vocabulary."""
    con = db.con
    places = [(comm, place, rank) for (comm, place), rank in numbering.ranks.items()]
    con.execute("CREATE TABLE ranks (comm UBIGINT, place INTEGER, rank INTEGER)")
    if not places:
        return
    con.register("placed", dict(zip(("comm", "place", "rank"), _columns(places), strict=True)))
    con.execute("INSERT INTO ranks SELECT comm, place, rank FROM placed")
    con.unregister("placed")
    words = {
        name: [
            row[0]
            for row in con.execute(f"SELECT DISTINCT {name} FROM line ORDER BY 1").fetchall()
            if row[0]
        ]
        for name in ("kind", "op", "algo", "proto")
    }
    columns = db.columns(_OPS, {f"{name}s": vocabulary for name, vocabulary in words.items()})
    for name, vocabulary in words.items():
        columns[name] = Words(np.asarray(columns[name], dtype=np.int32), vocabulary)
    incident.append("ops", {"job": job, "done": True, **columns})


def _columns(rows: list[tuple[int, int, int]]) -> list[np.ndarray[Any, Any]]:
    comm, place, rank = zip(*rows, strict=True)
    return [np.array(comm, dtype=np.uint64), np.array(place), np.array(rank)]


def _write_recording(
    con: duckdb.DuckDBPyConnection,
    incident: Incident,
    job: str,
    file: int,
    path: Path,
    problem: str | None,
    numbering: Numbering,
) -> None:
    row = con.execute(
        f"""SELECT count(*) FILTER ({_GOOD}) AS good,
                count(*) FILTER (NOT coalesce({_GOOD} OR kind = 'stats', false)) AS bad,
                max(version), list(DISTINCT (comm, place)) FILTER ({_GOOD}),
                (SELECT sum(lost) FROM (SELECT max(lost) AS lost FROM line WHERE file = $file
                                        GROUP BY comm, place, host, gpu, op))
            FROM line WHERE file = $file""",
        {"file": file},
    ).fetchone()
    good, bad, version, places, lost = row if row else (0, 0, None, None, None)
    ranks = {numbering.ranks.get(tuple(place)) for place in places or ()}
    if not problem and not good:
        problem = (
            f"no operation in it ({bad} lines could not be read)" if bad else "no operation in it"
        )
    elif not problem and bad:
        problem = f"{bad} of {good + bad} lines could not be read"
    append_recording(
        incident,
        job,
        KIND,
        path,
        int(good),
        problem,
        [numbering.note if good else None],
        rank=ranks.pop() if len(ranks) == 1 else None,
        version=version,
        holes=int(lost) if lost else None,
    )
