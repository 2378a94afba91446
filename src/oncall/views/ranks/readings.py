"""What was measured last of a rank's GPU, NIC, host and process, and what its node said of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import duckdb

from oncall.core.printable import clean
from oncall.core.units import format_bytes, format_number, format_rate
from oncall.views.words import instant

RELATIONS = ("gpu_states", "nic_rates", "host_states", "process_rates", "node_events")
MOST_EVENTS = 3

Row: TypeAlias = dict[str, Any]
_Shown = tuple[str, Callable[[Any], str]]  # what stands before a value, and how that is written


def _percent(share: float) -> str:
    return f"{format_number(round(100 * share, 1))} %"


# Columns in the order of reading; what is NULL is left out.
_GPU: dict[str, _Shown] = {
    "utilisation": ("busy", _percent),
    "sm_clock_mhz": ("at", lambda mhz: f"{format_number(mhz)} MHz"),
    "power_w": ("", lambda watts: f"{format_number(round(watts))} W"),
    "temp_c": ("", lambda degrees: f"{format_number(degrees)} °C"),
    "memory_share": ("memory", _percent),
    "throttled_by": ("throttled by", clean),
}
_NIC: dict[str, _Shown] = {
    "tx_bytes_per_s": ("sends", format_rate),
    "rx_bytes_per_s": ("receives", format_rate),
    "link_bytes_per_s": ("of", format_rate),
    "rx_paused": ("paused", _percent),
    "down": ("", str),
}
_HOST: dict[str, _Shown] = {
    "cpu_busy": ("CPUs busy", _percent),
    "cpu_pressure": ("waiting for a CPU", _percent),
    "memory_pressure": ("for memory", _percent),
    "io_pressure": ("for storage", _percent),
    "memory_available_share": ("memory available", _percent),
}
_PROCESS: dict[str, _Shown] = {
    "cpus_used": ("uses", lambda cpus: f"{format_number(round(cpus, 1))} CPUs"),
    "cpu_quota": ("of quota", format_number),
    "throttled": ("throttled", _percent),
    "waiting": ("waiting for a CPU", _percent),
    "rss_bytes": ("", format_bytes),
    "read_bytes_per_s": ("reads", format_rate),
}
_SHOWN_IF_SOME = {  # hindrances: shown only above a small value
    *("throttled", "waiting", "rx_paused"),
    *("cpu_pressure", "memory_pressure", "io_pressure"),
}
_SOME = 0.001


def readings(con: duckdb.DuckDBPyConnection, rank: int) -> Iterator[tuple[str, str]]:
    """(label, text) of the newest reading of each, and of the newest events. What was not measured
    has no line. `RELATIONS` must be ready."""
    placed = con.execute(
        "SELECT node, gpu, nic, pid FROM ranks WHERE rank = ? "
        "ORDER BY started_ns DESC NULLS LAST LIMIT 1",
        [rank],
    ).fetchall()
    for node, gpu, nic, pid in placed:
        yield from _line(
            "GPU now",
            _GPU,
            _newest(
                con,
                "*, CASE WHEN throttled THEN array_to_string(reasons, ', ') END AS throttled_by",
                "gpu_states WHERE node = ? AND gpu = ?",
                [node, gpu],
            ),
        )
        yield from _line(
            "NIC now",
            _NIC,
            _newest(
                con,
                "*, CASE WHEN NOT link_up THEN 'link down' END AS down",
                "nic_rates WHERE node = ? AND nic = ?",
                [node, nic],
            ),
        )
        yield from _line("host now", _HOST, _newest(con, "*", "host_states WHERE node = ?", [node]))
        yield from _line(
            "process now",
            _PROCESS,
            _newest(con, "*", "process_rates WHERE rank = ? AND pid = ?", [rank, pid]),
        )
        yield from _events(con, node, gpu, nic)


def _newest(
    con: duckdb.DuckDBPyConnection, columns: str, source: str, parameters: list[Any]
) -> Row | None:
    con.execute(f"SELECT {columns} FROM {source} ORDER BY at_ns DESC LIMIT 1", parameters)
    names = [name for name, *_ in con.description or ()]
    row = con.fetchone()
    return None if row is None else dict(zip(names, row, strict=True))


def _line(label: str, counts: dict[str, _Shown], row: Row | None) -> Iterator[tuple[str, str]]:
    if row is None:
        return
    parts = [
        f"{before} {written(row[name])}".strip()
        for name, (before, written) in counts.items()
        if row[name] is not None and not (name in _SHOWN_IF_SOME and row[name] < _SOME)
    ]
    if parts:
        yield label, f"{', '.join(parts)} ({instant(row['at_ns'], date=False)})"


def _events(
    con: duckdb.DuckDBPyConnection, node: str | None, gpu: int | None, nic: str | None
) -> Iterator[tuple[str, str]]:
    """What was said of its GPU and NIC, or of the node as a whole; the newest first."""
    rows = con.execute(
        f"""
        SELECT at_ns, text FROM node_events WHERE node = ?
            AND (gpu = ? OR nic = ? OR (gpu IS NULL AND nic IS NULL))
        ORDER BY at_ns DESC LIMIT {MOST_EVENTS}
        """,
        [node, gpu, nic],
    ).fetchall()
    for at_ns, text in rows:
        when = "" if at_ns is None else f"{instant(at_ns, date=False)} "
        yield "event", f"{when}{clean(str(text or ''))}"
