"""Faults of former incidents, timed from this one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from oncall.evidence import relation
from oncall.evidence.relations import Param
from oncall.evidence.window import span

if TYPE_CHECKING:
    import duckdb


@relation(
    "past_findings",
    reads=["archived_findings"],
    columns=[
        "cluster past_job rulebook verdict title kind node component",
        ("ago_ns", "BIGINT", "ns", "how long before the end of this incident's evidence"),
        ("days_ago", "DOUBLE", "d", "the same in days"),
        "fixed_by",
    ],
    params={
        "same_incident": Param("1 h", "an earlier look at this very fault is not a former one")
    },
    source="oncall archive",
)
def past_findings(con: duckdb.DuckDBPyConnection, *, same_incident: int) -> Mapping[str, Any]:
    """One fault at one component in former incidents: what the archive knew before this incident,
    whenever it is diagnosed. Empty where this incident's evidence has no times."""
    _, end_ns = span(con)
    names = "cluster, past_job, rulebook, verdict, title, kind, node, component, fixed_by"
    found = con.execute(
        f"SELECT {names}, $end - found_ns AS ago_ns, ago_ns / 86400e9 AS days_ago "
        "FROM archived_findings WHERE last_ns < $end - $same ORDER BY ago_ns, component",
        {"end": end_ns, "same": same_incident},
    )
    rows = found.fetchall()
    return {
        column[0]: [row[place] for row in rows] for place, column in enumerate(found.description)
    }
