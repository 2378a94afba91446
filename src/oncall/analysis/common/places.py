"""Where the members of a communicator are, on one node or many; and where the process of each rank
runs, as commands name it.
"""

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


@relation(
    "process_places",
    reads=["members"],
    columns=[
        "job rank node",
        ("host", "VARCHAR", "", "the same; HOSTS where it is not known"),
        ("process", "VARCHAR", "", "its process id; PID where it is not known"),
        ("reach", "VARCHAR", "", "what a command begins with to run there; empty if not known"),
    ],
    source="beyond the papers: what an engineer types next",
)
def process_places() -> str:
    """One row for each rank. A name that no shell takes as one word is no host to log in to."""
    return """
        SELECT job, rank, node, coalesce(node, 'HOSTS') AS host,
            coalesce(pid::VARCHAR, 'PID') AS process,
            CASE WHEN regexp_full_match(node, '[A-Za-z0-9][A-Za-z0-9._-]*')
                THEN 'ssh ' || node || ' ' ELSE '' END AS reach
        FROM (SELECT DISTINCT ON (job, rank) job, rank, node, pid FROM members ORDER BY ALL)
    """
