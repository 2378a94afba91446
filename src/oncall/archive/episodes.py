"""Episodes: one fault at one component, however often somebody looked at it meanwhile.

Each partition gives partial episodes, which are merged by the same SELECT: what is computed on one
machine and on many is the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from oncall.archive.layout import FINDINGS, NOTES, newest, scan

# Looks at one fault are minutes apart; a job that is restarted hangs again after loading, later.
SAME_EPISODE_NS = 3600 * 10**9

COLUMNS = (
    ("cluster", "VARCHAR"),
    ("rulebook", "VARCHAR"),
    ("verdict", "VARCHAR"),
    ("title", "VARCHAR"),
    ("kind", "VARCHAR"),
    ("node", "VARCHAR"),
    ("component", "VARCHAR"),
    ("job", "VARCHAR"),
    ("first_ns", "BIGINT"),
    ("last_ns", "BIGINT"),
    ("incidents", "VARCHAR[]"),
)
_NAMES = ", ".join(name for name, _ in COLUMNS)
# What is blamed, where it is hardware; else the job that it was.
_KEY = "cluster, rulebook, verdict, coalesce(component, '\\0' || job)"


@dataclass(frozen=True)
class Episode:
    """One fault at one component. `component` is None where no hardware is blamed; `fixed_by` is
    empty if nobody noted what fixed it."""

    cluster: str
    rulebook: str
    verdict: str
    title: str
    kind: str | None
    node: str | None
    component: str | None
    job: str
    first_ns: int
    last_ns: int
    incidents: Sequence[str]
    fixed_by: str = ""


def partial(files: Sequence[str], where: str, names: Mapping[str, str]) -> str:
    """A SELECT of the episodes of these files: root causes that are faults, each by the name in
    `names` that took the place of its `rulebook.VERDICT`."""
    listed = ", ".join(
        f"({quoted(former)}, {', '.join(map(quoted, today.split('.')))})"
        for former, today in ({"": "."} | dict(names)).items()
    )
    blamed = f"""
        SELECT * EXCLUDE incident, at_ns AS first_ns, at_ns AS last_ns, [incident] AS incidents
        FROM (
          SELECT found.* REPLACE (coalesce(today.rulebook, found.rulebook) AS rulebook,
            coalesce(today.verdict, found.verdict) AS verdict)
          FROM ({newest(FINDINGS, scan(FINDINGS, files))}) found
          LEFT JOIN (VALUES {listed}) today(former, rulebook, verdict)
            ON former = found.rulebook || '.' || found.verdict)
        WHERE explained_by IS NULL AND severity <> 'info' AND ({where})"""
    return merged(f"({blamed})")


def merged(source: str) -> str:
    """A SELECT that makes one of episodes that are less than an hour apart."""
    return f"""
        WITH marked AS (
          SELECT *, first_ns <= max(last_ns) OVER (PARTITION BY {_KEY} ORDER BY first_ns, last_ns
            ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) + {SAME_EPISODE_NS} AS goes_on
          FROM {source}),
        numbered AS (
          SELECT *, count(*) FILTER (goes_on IS NOT true) OVER (PARTITION BY {_KEY}
            ORDER BY first_ns, last_ns ROWS UNBOUNDED PRECEDING) AS number
          FROM marked),
        one AS (
          SELECT any_value(cluster) AS cluster, any_value(rulebook) AS rulebook,
            any_value(verdict) AS verdict, max(title) AS title, max(kind) AS kind,
            max(node) AS node, any_value(component) AS component, arg_max(job, last_ns) AS job,
            min(first_ns) AS first_ns, max(last_ns) AS last_ns,
            list_sort(list_distinct(flatten(list(incidents)))) AS incidents
          FROM numbered GROUP BY {_KEY}, number)
        SELECT {_NAMES} FROM one
    """


def summary(files: Sequence[str], where: str = "true") -> str:
    """A SELECT of how many incidents each job has, and from when to when; an incident lies in one
    partition, so partial counts add up."""
    return (
        "SELECT cluster, job, count(DISTINCT incident) AS incidents, "
        "count(DISTINCT incident) FILTER (result = 'fault') AS faults, "
        "min(until_ns) AS first_ns, max(until_ns) AS last_ns "
        f"FROM ({newest(FINDINGS, scan(FINDINGS, files))}) WHERE {where} GROUP BY ALL "
        "HAVING first_ns IS NOT NULL"
    )


def notes(files: Sequence[str]) -> str:
    """A SELECT of the last note of each incident."""
    return f"SELECT incident, fixed_by, written_ns FROM ({newest(NOTES, scan(NOTES, files))})"


def quoted(value: str) -> str:
    """A text as SQL."""
    return "'" + value.replace("'", "''").replace("\0", "") + "'"
