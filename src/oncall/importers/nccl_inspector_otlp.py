"""NCCL Inspector's metrics as OTLP JSON (NCCL_INSPECTOR_OTEL_EXPORT), as a collector of
OpenTelemetry writes them into a file: a request a line.

With NCCL_INSPECTOR_OTEL_VERBOSE a point is an operation; it names host and GPU, and no rank.
"""

from __future__ import annotations

import duckdb

from oncall.importers.process_ranks import Process, by_host

MEANS = (
    "NCCL Inspector's means by size of message: they name neither operations nor ranks; "
    "have it send operations for a while (NCCL_INSPECTOR_OTEL_VERBOSE=1)"
)
_ATTRIBUTES = 'attributes STRUCT("key" VARCHAR, "value" STRUCT("stringValue" VARCHAR))[]'
_POINT = f'STRUCT({_ATTRIBUTES}, "timeUnixNano" VARCHAR, "asDouble" DOUBLE)'
_METRIC = f'STRUCT("name" VARCHAR, gauge STRUCT("dataPoints" {_POINT}[]))'
SHAPE = {"resourceMetrics": f'STRUCT("scopeMetrics" STRUCT(metrics {_METRIC}[])[])[]'}

SETUP = """
    CREATE MACRO stated(attributes, wanted) AS
        [one.value.stringValue FOR one IN attributes IF one.key = wanted][1];
    CREATE MACRO stated_number(attributes, wanted) AS
        try_cast(stated(attributes, wanted) AS BIGINT);
"""
# The rows of `line`; which member of its communicator a device is, `place_devices` says.
LOAD = """
    WITH metric AS (SELECT ?::INTEGER AS file, unnest(flatten([scope.metrics FOR scope IN flatten(
            [one.scopeMetrics FOR one IN resourceMetrics])])) AS m FROM {rows}),
    point AS (
        SELECT file, row_number() OVER () AS number, m.name, unnest(m.gauge.dataPoints) AS p
        FROM metric WHERE m.name IN ('nccl_collective_exec_time_microseconds',
            'nccl_p2p_exec_time_microseconds', 'nccl_collectives_dropped_total',
            'nccl_p2p_dropped_total')),
    named AS (SELECT *, p.attributes AS a, try_cast(p.timeUnixNano AS BIGINT) AS at_ns,
            coalesce(stated_number(a, 'coll_sn'), stated_number(a, 'p2p_sn')) AS sn FROM point)
    SELECT file, number, hash_of(stated(a, 'comm_id')), known(stated(a, 'comm_name')),
        NULL, small(stated_number(a, 'nranks')), known(stated(a, 'node')), NULL,
        stated(a, 'version'), CASE WHEN at_ns > 0 THEN at_ns END,
        CASE WHEN name LIKE '%dropped_total' THEN 'stats' WHEN sn IS NULL THEN 'mean'
            WHEN name LIKE 'nccl_p2p%' THEN 'p2p' ELSE 'coll' END AS kind,
        CASE kind WHEN 'stats' THEN name
            ELSE coalesce(stated(a, 'collective'), stated(a, 'p2p_operation')) END,
        positive(sn), NULL, positive(coalesce(stated_number(a, 'coll_msg_size_bytes'),
            stated_number(a, 'p2p_msg_size_bytes'))),
        ns(try_cast(p.asDouble AS BIGINT)),
        known(regexp_extract(stated(a, 'algo_proto'), '(.*)_', 1)),
        known(regexp_extract(stated(a, 'algo_proto'), '[^_]*$')),
        NULL, NULL, NULL, CASE kind WHEN 'stats' THEN positive(try_cast(p.asDouble AS BIGINT)) END,
        small(try_cast(regexp_extract(stated(a, 'gpu'), '[0-9]+$') AS BIGINT))
    FROM named
"""


def recognises(head: bytes) -> bool:
    """Whether a file with this head holds a request of Inspector's."""
    return b'"resourceMetrics"' in head and b'"nccl-inspector"' in head


def place_devices(con: duckdb.DuckDBPyConnection) -> bool:
    """Number the devices of each communicator in `line` by host and GPU; whether there are any."""
    rows = con.execute(
        "SELECT DISTINCT comm, host, gpu FROM line WHERE place IS NULL AND comm IS NOT NULL "
        "AND host IS NOT NULL AND gpu IS NOT NULL"
    ).fetchall()
    members: dict[int, list[Process]] = {}
    for comm, host, gpu in rows:
        members.setdefault(comm, []).append(Process(host, None, gpu))
    con.execute("CREATE TABLE device (comm UBIGINT, host VARCHAR, gpu INTEGER, place INTEGER)")
    placed = [
        (comm, one.host, one.gpu, place)
        for comm, processes in members.items()
        for place, one in enumerate(sorted(processes, key=by_host))
    ]
    if placed:
        con.executemany("INSERT INTO device VALUES (?, ?, ?, ?)", placed)
        con.execute(
            "UPDATE line SET place = d.place FROM device d WHERE line.place IS NULL "
            "AND (line.comm, line.host, line.gpu) = (d.comm, d.host, d.gpu)"
        )
    return bool(placed)
