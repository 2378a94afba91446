"""Evidence as a test asks for it: rows of a query, and of a relation that is made first."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from oncall.evidence import Incident

Rows = list[tuple[Any, ...]]


def rows(incident: Incident, sql: str, *values: object) -> Rows:
    return incident.con.execute(sql, list(values)).fetchall()


def found(incident: Incident, relation: str, columns: str, where: str = "true") -> Rows:
    """Rows of a relation, sorted; its evidence has to be there."""
    incident.require([relation])
    return rows(incident, f"SELECT {columns} FROM {relation} WHERE {where} ORDER BY ALL")


def derived(
    table: str, evidence: Mapping[str, Any], relation: str, columns: str, where: str = "true"
) -> Rows:
    """Rows of a relation, sorted, where one table holds all the evidence."""
    with Incident.empty() as incident:
        incident.append(table, dict(evidence))
        return found(incident, relation, columns, where)
