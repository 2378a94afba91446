"""What a cumulative counter grew by between two readings, as SQL.

Counters start anywhere, wrap, are set back and vanish. A counter that fell has wrapped if it stood
in the upper half of a 32-bit range and now stands in the lower; else it was set back, and what it
counted meanwhile is unknown: NULL. Devices count bytes in words of four: bytes may wrap at 2^34.
"""

from __future__ import annotations

from collections.abc import Sequence

WRAPS = (2**32,)
BYTE_WRAPS = (2**32, 2**34)

# A reading so long after the one before tells how much, not how fast: no rate is made of it.
LONGEST_NS = 30 * 10**9


def before(column: str) -> str:
    """The column's value in the reading before, as SQL within a window `w`."""
    return f"lag({column}) OVER w"


def increase(column: str, wraps: Sequence[int] = WRAPS) -> str:
    """The column's growth since `<column>_0`, its value in the reading before; NULL if unknown."""
    fell = " ".join(
        f"WHEN {column}_0 BETWEEN {wrap // 2} AND {wrap - 1} AND {column} < {wrap // 2} "
        f"THEN {column} + {wrap} - {column}_0"
        for wrap in wraps
    )
    return f"CASE WHEN {column} >= {column}_0 THEN {column} - {column}_0 {fell} END"


def per_second(amount: str, took_ns: str = "took_ns") -> str:
    """A rate of `amount` in `took_ns`; NULL over spans that tell none."""
    return f"CASE WHEN {took_ns} BETWEEN 1 AND {LONGEST_NS} THEN ({amount}) * 1e9 / {took_ns} END"


def share(amount_ns: str, took_ns: str = "took_ns") -> str:
    """The part of `took_ns` that a time counter grew by, at most 1; NULL if unknown."""
    # least() would take an unknown amount for a whole one.
    return (
        f"CASE WHEN {took_ns} BETWEEN 1 AND {LONGEST_NS} AND ({amount_ns}) IS NOT NULL "
        f"THEN least(1.0, ({amount_ns}) / {took_ns}) END"
    )
