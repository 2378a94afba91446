"""Hourly roll-ups of what collectors measured: about one row an hour of each GPU, NIC and host."""

from __future__ import annotations

import duckdb

from oncall.archive.layout import DEVICES, Device, Measure

_HOUR_NS = 3600 * 10**9
_HOW = {"mean": "avg", "max": "max", "min": "min", "gained": "sum"}


def hours_of(con: duckdb.DuckDBPyConnection, cluster: str, job: str, written_ns: int) -> str:
    """A SELECT, for the connection of an incident, of the hours that it measured."""
    name = {"cluster": cluster, "job": job}
    for part in name:
        con.execute(f"SET VARIABLE archived_{part} = ?", [name[part]])
    return " UNION ALL BY NAME ".join(_hours(device, written_ns) for device in DEVICES)


def _hours(device: Device, written_ns: int) -> str:
    gained = [one for one in device.measures if one.how == "gained"]
    deltas = ", ".join(f"{_gained(one.source)} AS {one.source}" for one in gained)
    others = ", ".join(one.source for one in device.measures if one.how != "gained")
    columns = ", ".join(part for part in (others, deltas) if part)
    port = ", port" if device.kind == "nic" else ""
    return f"""
        SELECT {written_ns}::BIGINT AS written_ns, getvariable('archived_cluster') AS cluster,
          getvariable('archived_job') AS job, at_ns - at_ns % {_HOUR_NS} AS hour_ns, node,
          '{device.kind}' AS kind, device, count(*) AS readings,
          {", ".join(map(_aggregate, device.measures))}
        FROM (SELECT node, at_ns, ({device.device})::VARCHAR AS device, {columns}
              FROM {device.table} WHERE at_ns IS NOT NULL AND node IS NOT NULL
              WINDOW in_time AS (PARTITION BY node, {device.device}{port} ORDER BY at_ns))
        GROUP BY ALL
    """


def _gained(counter: str) -> str:
    """What a counter gained since the reading before; unknown if it was reset meanwhile."""
    delta = f"{counter} - lag({counter}) OVER in_time"
    return f"CASE WHEN {delta} >= 0 THEN {delta} END"


def _aggregate(measure: Measure) -> str:
    column = measure.column
    return f"{_HOW[measure.how]}({measure.source})::{column.type} AS {column.name}"
