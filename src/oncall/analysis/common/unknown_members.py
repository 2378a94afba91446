"""Members that a communicator must have and that nothing names."""

from __future__ import annotations

from oncall.evidence import relation
from oncall.evidence.coverage import GATHERED


@relation(
    "unknown_members",
    reads=["members"],
    optional=["comms"],
    columns=[
        ("job", "VARCHAR", "", "the job"),
        ("comm", "UBIGINT", "", "communicator"),
        ("size", "INTEGER", "ranks", "its size"),
        ("unknown", "INTEGER", "ranks", "how many members no record names"),
    ],
    source="DESIGN 1: missing data is evidence, never health",
)
def unknown_members() -> str:
    """Communicators larger than what is known of them: who is missing there left no evidence."""
    return """
        SELECT job, comm, max(size) AS size, max(size) - count(DISTINCT rank) AS unknown
        FROM members GROUP BY ALL HAVING max(size) > count(DISTINCT rank)
    """


@relation(
    "silent_hosts",
    reads=["ops|launches|collectors"],
    optional=["ranks"],
    columns=[
        ("node", "VARCHAR", "", "a host that was queried"),
        ("error", "VARCHAR", "", "why it gave no evidence"),
        ("named", "BOOLEAN", "", "which ranks run there is known"),
    ],
    source="DESIGN 1: missing data is evidence, never health",
)
def silent_hosts() -> str:
    """Hosts that were asked for evidence and gave none."""
    return f"""
        SELECT node, any_value(error) AS error,
            node IN (SELECT node FROM ranks WHERE node IS NOT NULL) AS named
        FROM collectors WHERE source = '{GATHERED}' AND error IS NOT NULL AND node IS NOT NULL
        GROUP BY node
    """
