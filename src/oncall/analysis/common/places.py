"""Where the members of a communicator are, on one node or many."""

from __future__ import annotations

from oncall.evidence import relation


@relation(
    "group_places",
    reads=["members"],
    columns=[
        "job comm role name size",
        ("nodes", "INTEGER", "", "nodes that its members run on; NULL if some are unknown"),
        ("across", "BOOLEAN", "", "its data crosses the network; NULL if unknown"),
    ],
    source="TFD 2.1-2.2",
)
def group_places() -> str:
    """Each communicator, and whether it stays within a node."""
    return """
        SELECT job, comm, any_value(role) AS role, any_value(name) AS name,
            coalesce(any_value(size), count(*)) AS size,
            CASE WHEN count(node) = count(*) THEN count(DISTINCT node) END AS nodes,
            -- Two known nodes are enough; one is only if all members are known to be there.
            CASE WHEN count(DISTINCT node) > 1 THEN true
                 WHEN count(node) = count(*) AND count(*) >= coalesce(any_value(size), 1)
                 THEN false END AS across
        FROM members GROUP BY job, comm
    """
