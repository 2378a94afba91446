"""What a cumulative counter grew by between two readings, as SQL.

Counters start anywhere, wrap, are set back and vanish. A counter that fell has wrapped if it stood
in the upper half of a 32-bit range and now stands in the lower; else it was set back, and what it
counted meanwhile is unknown: NULL. Devices count bytes in words of four: bytes may wrap at 2^34.

And drivers answer with garbage now and then: all zeros, or all ones while a device is reset. A
single reading that its neighbours belie is none, and a growth that no port can count is unknown.
"""

from __future__ import annotations

from collections.abc import Sequence

WRAPS = (2**32,)
BYTE_WRAPS = (2**32, 2**34)

# What a port counts in a nanosecond at most: 8 Tb/s are ten times the fastest there is, and no
# packet, pause or error takes less than its 64 bytes at that rate.
MOST_BYTES_PER_NS = 1000
MOST_EVENTS_PER_NS = 16


def readings(table: str, counters: Sequence[str], device: str) -> str:
    """SQL: the rows of `table` with `since_ns`, when the same `device` (its columns) was read
    before, and `<counter>_0`, what each counter was then. A counter is NULL where it lies outside
    the readings around it while these agree that it only grew."""
    around = "".join(
        f", lag({name}) OVER w AS {name}_0, lag({name}, 2) OVER w AS {name}_before_0, "
        f"lead({name}) OVER w AS {name}_next"
        for name in counters
    )
    # What stood before is believed as what stands now is, in the same pass over the readings.
    sound = ", ".join(
        f"{_unless_belied(name, f'{name}_0', f'{name}_next')} AS {name}, "
        f"{_unless_belied(f'{name}_0', f'{name}_before_0', name)} AS {name}_0"
        for name in counters
    )
    left_out = ", ".join(f"{name}_before_0, {name}_next" for name in counters)
    return (
        f"SELECT * EXCLUDE ({left_out}) REPLACE ({sound}) FROM ("
        f"SELECT *, lag(at_ns) OVER w AS since_ns{around} FROM {table} "
        f"WINDOW w AS (PARTITION BY {device} ORDER BY at_ns))"
    )


def _unless_belied(value: str, earlier: str, later: str) -> str:
    return (
        f"CASE WHEN {earlier} <= {later} AND {value} NOT BETWEEN {earlier} AND {later} "
        f"THEN NULL ELSE {value} END"
    )


def before(column: str) -> str:
    """The column's value in the reading before, as SQL within a window `w`."""
    return f"lag({column}) OVER w"


def increase(column: str, wraps: Sequence[int] = WRAPS, most_per_ns: int | None = None) -> str:
    """The column's growth since `<column>_0`, its value in the reading before; NULL if unknown, or
    more than `most_per_ns` of `took_ns`."""
    fell = " ".join(
        f"WHEN {column}_0 BETWEEN {wrap // 2} AND {wrap - 1} AND {column} < {wrap // 2} "
        f"THEN {column} + {wrap} - {column}_0"
        for wrap in wraps
    )
    grown = f"CASE WHEN {column} >= {column}_0 THEN {column} - {column}_0 {fell} END"
    if most_per_ns is None:
        return grown
    return f"CASE WHEN ({grown}) <= {most_per_ns}::HUGEINT * took_ns THEN {grown} END"


def per_second(amount: str, took_ns: str = "took_ns") -> str:
    """A rate of `amount` in `took_ns`; NULL over spans longer than the parameter `longest`."""
    return f"CASE WHEN {took_ns} BETWEEN 1 AND $longest THEN ({amount}) * 1e9 / {took_ns} END"


def share(amount_ns: str, took_ns: str = "took_ns") -> str:
    """The part of `took_ns` that a time counter grew by, at most 1; NULL if unknown."""
    # least() would take an unknown amount for a whole one.
    return (
        f"CASE WHEN {took_ns} BETWEEN 1 AND $longest AND ({amount_ns}) IS NOT NULL "
        f"THEN least(1.0, ({amount_ns}) / {took_ns}) END"
    )
