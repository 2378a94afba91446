"""Readings of devices and hosts, thinned: what a console needs of ten minutes at 4 Hz.

Of each device the first and the newest reading are kept, one in each stretch of time, and where
something happens: both readings around the highest rate of a minute, around a change of state and
around a counter that was set back, and each minute's extremes. Counters are cumulative, so what
happened between two kept readings is known exactly however many there were between.

Stretches are 250 ms times a power of two on a fixed grid: what is kept coarsely is also kept
finely, whoever thins first.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from oncall.evidence.schema import BY_NAME
from oncall.node.store.digest import same

if TYPE_CHECKING:
    import duckdb

READINGS = 160  # of each device in a digest: ten minutes at one in 4 s
FINEST_NS = 250_000_000
DIGEST_STRETCH_NS = 16 * FINEST_NS
ROWS_A_DEVICE = 48  # rows of operations in a budget for each reading of a device in a detail
EVENTS = 50  # of each code and device, the newest
PINGS = 4_096
MINUTE_NS = 60 * 10**9


@dataclass(frozen=True)
class Readings:
    """How one table is thinned: the columns that name a device, the cumulative counters whose
    highest rate is kept, the columns whose extremes are, and those whose changes are."""

    device: tuple[str, ...]
    rates: tuple[str, ...] = ()
    highest: tuple[str, ...] = ()
    lowest: tuple[str, ...] = ()
    changes: tuple[str, ...] = ()
    # Counters of devices that may do nothing at all: then their first and newest reading show it.
    idle_unless: tuple[str, ...] = ()


_PRIORITY_COUNTERS = ("tx_bytes", "rx_bytes", "rx_pause", "tx_pause", "discards")

READ = {
    "nics": Readings(
        ("node", "nic", "port"),
        rates=("tx_bytes", "rx_bytes"),
        changes=("link_up", "rate_bytes_per_s", "link_downs", "pcie_gen", "pcie_width"),
    ),
    "nic_priorities": Readings(
        ("node", "nic", "port", "priority"),
        rates=("tx_bytes",),
        idle_unless=_PRIORITY_COUNTERS,
    ),
    "gpus": Readings(
        ("node", "gpu"),
        highest=("temp_c", "memory_used_bytes"),
        lowest=("sm_clock_mhz",),
        changes=("xid", "remap_failed", "nvlinks_up", "pcie_width", "ecc_uncorrected"),
    ),
    "hosts": Readings(
        ("node",),
        highest=("cpu_busy", "cpu_pressure", "io_pressure", "memory_pressure"),
        lowest=("memory_available_bytes",),
        changes=("governor", "memory_uncorrected"),
    ),
    "host_processes": Readings(
        ("job", "rank", "node", "pid"),
        highest=("still_ns",),
        changes=("cpu_quota", "cpus_allowed"),
    ),
}


def stretch_ns(span_ns: int, readings: int, least_ns: int = FINEST_NS) -> int:
    """The shortest stretch of at least `least_ns`, 250 ms times a power of two, of which no more
    than `readings` fill `span_ns`."""
    stretch = FINEST_NS
    while stretch < least_ns or stretch * readings < span_ns:
        stretch *= 2
    return stretch


def thinned(table: str, source: str, stretch: int, readings: int) -> str:
    """SQL: the rows of `source`, shaped as `table`, that are kept at that stretch; at most
    `readings` changes of a device are."""
    how = READ[table]
    device = ", ".join(how.device)
    minute = max(MINUTE_NS, 16 * stretch)
    olds = "".join(f", lag({name}) OVER w AS {name}_0" for name in (*how.rates, *how.changes))
    changed = " OR ".join(
        (
            *(f"{name} IS DISTINCT FROM {name}_0" for name in how.changes),
            *(f"{name} < {name}_0" for name in how.rates),
            "false",
        )
    )
    of_a_minute = [f"arg_max(at_ns, {name})" for name in how.highest]
    of_a_minute += [f"arg_min(at_ns, {name})" for name in how.lowest]
    for name in how.rates:
        rate = f"({name} - {name}_0) / nullif(at_ns - at_ns_0, 0)"
        of_a_minute += [f"arg_max(at_ns, {rate})", f"arg_max(at_ns_0, {rate})"]
    active = " OR ".join(f"coalesce(max({c}) > min({c}), false)" for c in how.idle_unless)
    return f"""
        WITH devices AS (
            SELECT {device}, unnest([min(at_ns), max(at_ns)]) AS at_ns, {active or "true"} AS active
            FROM {source} GROUP BY {device}),
        readings AS (
            SELECT *, lag(at_ns) OVER w AS at_ns_0{olds} FROM {source} t
            WHERE EXISTS (FROM devices d WHERE {same("t", "d", how.device)} AND active)
            WINDOW w AS (PARTITION BY {device} ORDER BY at_ns)),
        kept AS (
            SELECT {device}, at_ns FROM devices
            UNION SELECT {device}, min(at_ns) FROM readings GROUP BY {device}, at_ns // {stretch}
            UNION SELECT {device}, unnest([{", ".join(("min(at_ns)", *of_a_minute))}])
            FROM readings GROUP BY {device}, at_ns // {minute}
            UNION SELECT {device}, unnest([at_ns_0, at_ns]) FROM (
                SELECT * FROM readings WHERE at_ns_0 IS NOT NULL AND ({changed})
                QUALIFY row_number() OVER (PARTITION BY {device} ORDER BY at_ns) <= {readings}))
        SELECT DISTINCT {", ".join(f"t.{name}" for name in BY_NAME[table].column_names)}
        FROM {source} t JOIN kept k ON {same("t", "k", (*how.device, "at_ns"))}
    """


def thinned_events(source: str) -> str:
    """SQL: of each code of each device the newest rows of `source`, host_events."""
    return (
        f"SELECT DISTINCT * FROM {source} QUALIFY row_number() OVER "
        f"(PARTITION BY node, source, code, device ORDER BY at_ns DESC NULLS LAST) <= {EVENTS}"
    )


def thinned_pings(source: str, rows: int) -> str:
    """SQL: about `PINGS` of the `rows` pings of `source`, chosen by their instants alone, so that
    the lost are kept as often as the answered; and the newest of each kind to each target."""
    step = 1
    while rows > PINGS * step:
        step *= 2
    newest = "row_number() OVER (PARTITION BY node, nic, target_node, target_nic, kind "
    return (
        f"SELECT DISTINCT * FROM {source} "
        f"QUALIFY hash(at_ns) % {step} = 0 OR {newest} ORDER BY at_ns DESC) = 1"
    )


def select_measured(
    con: duckdb.DuckDBPyConnection, table: str, source: str, budget_rows: int | None
) -> str:
    """SQL of what goes of `source`, a table shaped as `table`: of a digest (no budget) about
    `READINGS` of each device, of a detail as many more as `budget_rows` allows."""
    ((rows, first_ns, last_ns),) = con.execute(
        f"SELECT count(*), min(at_ns), max(at_ns) FROM {source}"
    ).fetchall()
    if table == "pings":
        return thinned_pings(source, rows)
    if table == "host_events":
        return thinned_events(source)
    if not rows or first_ns is None:
        return f"FROM {source}"
    readings = READINGS if budget_rows is None else max(READINGS, budget_rows // ROWS_A_DEVICE)
    least_ns = DIGEST_STRETCH_NS if budget_rows is None else FINEST_NS
    return thinned(table, source, stretch_ns(last_ns - first_ns, readings, least_ns), readings)
