"""Where the process of each rank runs, as commands name it."""

from __future__ import annotations

from oncall.evidence import relation


@relation(
    "process_places",
    reads=["members"],
    columns=[
        ("job", "VARCHAR", "", "the job"),
        ("rank", "INTEGER", "", "global rank"),
        ("node", "VARCHAR", "", "its host"),
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
