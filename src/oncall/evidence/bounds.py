"""Bounds of the values in evidence, and the removal of impossible values.

A clock in the year 2126, a counter of -1 or a NaN comes from a damaged ring, a firmware's bug or
an uninitialised field. Arithmetic on it overflows, or is quietly wrong. So before a table is read,
a value beyond its bounds becomes NULL, which is how evidence says "unknown"; where it is part of
what identifies the row (its rank, its number), the row is removed. What was removed is counted and
reported: it is evidence that cannot be trusted, not evidence of health.

The bounds leave room for the arithmetic: the difference of two instants, an instant plus such a
difference, and the sum of a thousand durations all fit in 63 bits.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, TypeAlias

from oncall.evidence.statements import execute
from oncall.evidence.table import Column, Table

if TYPE_CHECKING:
    import duckdb

Bounds: TypeAlias = tuple[int, int]  # the least and the greatest value that can be

INSTANT_NS: Bounds = (0, 2**62 - 1)  # 1970 to 2116
DURATION_NS: Bounds = (0, 2**53)  # 104 days
LATENESS_NS: Bounds = (-(2**53), 2**53)  # against a median: earlier is below zero
CLOCK_OFFSET_NS: Bounds = (-(2**62), 2**62)
SIZE_BYTES: Bounds = (0, 2**50)  # a pebibyte in one operation
COUNTER: Bounds = (0, 2**62)  # since a device or a process was started
NUMBER: Bounds = (-1, 2**53)  # of an operation on its communicator, or how many there are
RANK: Bounds = (0, 2**20)  # as a world size beyond a million is not believed either
SMALL: Bounds = (-(2**30), 2**30)
FINITE = 1e18  # a rate, share or reading beyond is a bit pattern, not a measurement

_INSTANTS = {"at_ns", "created_ns", "ended_ns", "end_ns", "enqueued_ns", "first_call_ns"}
_INSTANTS |= {
    "before_ns",
    "last_call_ns",
    "found_ns",
    "last_ns",
    "observed_ns",
    "since_ns",
    "sort_ns",
    "started_ns",
    "start_ns",
}
_RANKS = {"rank", "peer", "peer_rank", "comm_rank", "comm_peer", "root", "src", "dst", "size"}
_RANKS |= {"world_size", "tp", "pp", "dp", "ep", "cp", "micro_batches", "chunks", "layers"}
# Counted by hardware or the kernel from their own beginning on.
_COUNTING = {"nics", "nic_priorities", "gpus", "hosts", "host_processes", "collectors"}
_COUNTING |= {"switch_ports", "switch_flows", "switch_meters", "recordings", "wr_windows"}
_IDENTIFIERS = {"pid", "flow", "waits_for_flow", "group_id"}  # any bit pattern
# Without these nobody knows what a row is about, except where a rank may be unknown.
_KEYS = {"rank", "seq", "src", "dst", "step", "iteration"}
_KEYLESS = {"recordings", "epochs", "op_traffic", "flows", "wr_windows", "qps"}
_KEYLESS |= {"log_events", "watchdog_reports"}


@dataclass(frozen=True)
class Disbelief:
    """Values of one column that cannot be. `dropped`: their rows went, else they are NULL now."""

    table: str
    column: str
    count: int
    example: str
    dropped: bool


def strip_impossible(con: duckdb.DuckDBPyConnection, table: Table) -> tuple[Disbelief, ...]:
    """Remove from the table the values that cannot be, and say which they were."""
    beyond = _beyond(table)
    # One question first: mostly there is nothing to find, and the columns' statistics tell it.
    anywhere = " OR ".join(beyond.values()) or "false"
    if not execute(con, f'SELECT 1 FROM "{table.name}" WHERE {anywhere} LIMIT 1').fetchall():
        return ()
    _copy_view(con, table)
    found = []
    # Keys first: with their rows goes what else is wrong in them.
    for name in sorted(beyond, key=lambda name: name not in _KEYS):
        ((count, example),) = con.execute(
            f'SELECT count(*), min("{name}")::VARCHAR FROM "{table.name}" WHERE {beyond[name]}'
        ).fetchall()
        if count:
            dropped = name in _KEYS and table.name not in _KEYLESS
            change = (
                f'DELETE FROM "{table.name}"'
                if dropped
                else f'UPDATE "{table.name}" SET "{name}" = NULL'
            )
            con.execute(f"{change} WHERE {beyond[name]}")
            found.append(Disbelief(table.name, name, count, example, dropped))
    return tuple(found)


def _copy_view(con: duckdb.DuckDBPyConnection, table: Table) -> None:
    """A table that is a view of a saved one becomes one that can be changed."""
    views = con.execute("SELECT 1 FROM duckdb_views() WHERE view_name = ?", [table.name])
    if views.fetchall():
        columns = ", ".join(f'"{column.name}"' for column in table.columns)
        con.execute(
            f'CREATE TABLE "{table.name}_changed" AS SELECT {columns} FROM "{table.name}";'
            f'DROP VIEW "{table.name}";'
            f'ALTER TABLE "{table.name}_changed" RENAME TO "{table.name}"'
        )


@cache
def _beyond(table: Table) -> Mapping[str, str]:
    """For each column that has bounds, SQL that is true of a value beyond them."""
    found = {}
    for column in table.columns:
        if column.type == "DOUBLE":  # statistics, which may answer a comparison, leave NaN out
            found[column.name] = (
                f'(NOT isfinite("{column.name}") OR abs("{column.name}") > {FINITE})'
            )
        elif (bounds := bounds_of(table.name, column)) is not None:
            found[column.name] = f'"{column.name}" NOT BETWEEN {bounds[0]} AND {bounds[1]}'
    return found


def bounds_of(table: str, column: Column) -> Bounds | None:
    """Between which values a whole number of that column lies; None if any can be."""
    name = column.name
    if column.type not in ("INTEGER", "BIGINT") or name in _IDENTIFIERS:
        return None
    if column.type == "INTEGER":
        return RANK if name in _RANKS else SMALL
    if name in _INSTANTS:
        return INSTANT_NS
    if name == "offset_ns":
        return CLOCK_OFFSET_NS
    if name == "late_ns":
        return LATENESS_NS
    if table in _COUNTING or name.startswith("rate_"):
        return COUNTER
    if column.unit == "ns":
        return DURATION_NS
    return SIZE_BYTES if column.unit == "bytes" else NUMBER
