"""Rows of causes: what every cause states, and the first of those that repeat one another."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from oncall.analysis.faults.lines import Row
from oncall.core.nodeset import fold_ranks

Cause = dict[str, Any]


def caused(name: str, reason: str, row: Row, **more: Any) -> Cause:
    """A cause that a row states, with where it states it."""
    columns: tuple[str, ...] = (
        "place",
        "at_ns",
        "path",
        "line",
        "rank",
        "node",
        "text",
        "seq",
        "process_group",
    )
    columns += ("before_ns",) if "before_ns" in row else ()
    return {"cause": name, "reason": reason, **{one: row[one] for one in columns}, **more}


def once(rows: Iterable[Row], *names: str) -> list[Row]:
    """The first row of each value of these columns."""
    seen: dict[tuple[Any, ...], Row] = {}
    for row in rows:
        seen.setdefault(tuple(row[name] for name in names), row)
    return list(seen.values())


def once_known(rows: Sequence[Row], name: str = "rank") -> list[Row]:
    """The first row of each known value, else the first row."""
    return once([row for row in rows if row[name] is not None], name) or list(rows[:1])


def link(row: Row) -> str | None:
    """Both ends of a connection, as host and the peer that it names."""
    return f"{row['node']} - {row['peer_host']}" if row["node"] and row["peer_host"] else None


def ranks_of(ranks: Iterable[int]) -> str:
    """`rank 3`, `ranks 0-7`."""
    named = sorted(ranks)
    return f"{'rank' if len(named) == 1 else 'ranks'} {fold_ranks(named)}"
