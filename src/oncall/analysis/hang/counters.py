"""Where only counters of calls are known (NCCL RAS): ranks that are ahead, or call differently."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import duckdb

from oncall.evidence import relation


@relation(
    "counted_ahead",
    reads=["frontier"],
    empty_without=["launches"],
    columns=[
        ("job", "VARCHAR", "", "the job"),
        ("comm", "UBIGINT", "", "communicator without a recorded operation"),
        ("rank", "INTEGER", "", "a rank that has called what another member has not"),
        ("launched", "BIGINT", "", "the first such operation's number"),
        ("unchanged_ns", "BIGINT", "ns", "for how long it has been seen there"),
    ],
    source="CCL-D 5.1 (operation counter)",
)
def counted_ahead() -> str:
    """Ranks ahead on communicators that are known only by launch counters, where these differ."""
    return """
        WITH counted AS (
            SELECT job, comm, rank, max(launched) AS launched,
                max(at_ns) - min(at_ns) FILTER (launched = newest) AS unchanged_ns,
                -- Boards are kept of running jobs, too: one look at them shows nothing yet.
                bool_or(source = 'board') AS live
            FROM (SELECT *, max(launched) OVER (PARTITION BY job, comm, rank) AS newest
                  FROM launches ANTI JOIN heads USING (job, comm)
                  WHERE state IS NULL OR state NOT IN ('unresponsive', 'dead'))
            GROUP BY ALL),
        ahead AS (
            SELECT *, max(launched) OVER (PARTITION BY job, comm) AS highest,
                min(launched) OVER (PARTITION BY job, comm) AS lowest,
                count(*) OVER (PARTITION BY job, comm) AS reporting
            FROM counted),
        known AS (SELECT job, comm, count(*) AS size FROM frontier GROUP BY ALL)
        SELECT a.job, a.comm, a.rank,
            CASE WHEN a.lowest < a.highest THEN a.lowest + 1 ELSE a.highest END AS launched,
            CASE WHEN a.live THEN a.unchanged_ns ELSE nullif(a.unchanged_ns, 0) END AS unchanged_ns
        FROM ahead a JOIN known k USING (job, comm)
        WHERE CASE WHEN a.lowest < a.highest THEN a.launched > a.lowest
            ELSE a.reporting < k.size END
    """


_MISMATCH_COLUMNS = [
    ("job", "VARCHAR", "", "the job"),
    ("comm", "UBIGINT", "", "communicator"),
    ("seq", "BIGINT", "", "the newest call of any member"),
    ("rank", "INTEGER", "", "a member that called differently, or one of a tie"),
    ("op", "VARCHAR", "", "what it called more often than another member"),
    ("others", "VARCHAR", "", "what that member called more often"),
    ("judged_by", "VARCHAR", "", "majority, siblings, or tie: nothing distinguishes them"),
]

# Members of one communicator that counted alike, where not all did; counts in the order of `ops`.
_COUNTS = """
    WITH newest AS (
        SELECT DISTINCT ON (job, comm, rank, op) * FROM call_counts WHERE rank IS NOT NULL
        ORDER BY at_ns DESC NULLS LAST, launched DESC),
    members AS (
        SELECT job, comm, rank, list(op ORDER BY op) AS ops, list(launched ORDER BY op) AS counts
        FROM newest GROUP BY ALL)
    SELECT job, comm, ops, counts, list(rank ORDER BY rank) AS ranks FROM members
    GROUP BY job, comm, ops, counts
    QUALIFY count(*) OVER (PARTITION BY job, comm, ops) > 1 ORDER BY ALL
"""
# By how many other communicators of its shape each operation is called.
_ELSEWHERE = """
    WITH shapes AS (
        SELECT job, comm, list(DISTINCT rank - first_rank ORDER BY rank - first_rank) AS shape
        FROM (SELECT *, min(rank) OVER (PARTITION BY job, comm) AS first_rank FROM call_counts)
        WHERE rank IS NOT NULL GROUP BY job, comm)
    SELECT op, count(DISTINCT comm) FROM call_counts JOIN shapes USING (job, comm)
    WHERE job = $job AND comm <> $comm AND launched > 0
        AND shape = (SELECT shape FROM shapes WHERE job = $job AND comm = $comm)
    GROUP BY op
"""


@dataclass(frozen=True, eq=False)
class _Alike:
    """Members of a communicator that counted alike: their calls by operation."""

    ranks: tuple[int, ...]
    calls: Mapping[str, int]

    def more(self, other: _Alike) -> list[str]:
        """The operations that they called more often than the others."""
        return [op for op, calls in self.calls.items() if calls > other.calls[op]]

    def differ(self, other: _Alike) -> bool:
        return bool(self.more(other) and other.more(self))


@relation(
    "mismatched_counts",
    reads=["call_counts"],
    columns=_MISMATCH_COLUMNS,
    source="CCL-D 4.1.2 (Operation Type Set)",
)
def mismatched_counts(con: duckdb.DuckDBPyConnection) -> Mapping[str, Any]:
    """Members that called another operation than the rest, rather than being behind them.

    All members make the same calls in the same order. So of two members, the one that is behind has
    called no operation more often than the other. If each called some operation more often, they
    called differently.
    """
    groups: dict[tuple[Any, ...], list[_Alike]] = defaultdict(list)
    for job, comm, ops, counts, ranks in con.execute(_COUNTS).fetchall():
        # Processes that count other operations, as another NCCL does, are not compared.
        alike = groups[job, comm, *ops]
        alike.append(_Alike(tuple(ranks), dict(zip(ops, counts, strict=True))))
    rows = [
        (job, comm, max(sum(one.calls.values()) for one in alike), rank, *said)
        for (job, comm, *_), alike in groups.items()
        for one, *said in _odd_members(con, job, comm, alike)
        for rank in one.ranks
    ]
    names = [column[0] for column in _MISMATCH_COLUMNS]
    return {name: [row[i] for row in rows] for i, name in enumerate(names)}


def _odd_members(
    con: duckdb.DuckDBPyConnection, job: str, comm: int, groups: Sequence[_Alike]
) -> Iterator[tuple[_Alike, str, str, str]]:
    """Members that called differently, their operation, the others' operation and what decided."""
    against = {one: [other for other in groups if one.differ(other)] for one in groups}
    against = {one: others for one, others in against.items() if others}
    size = sum(len(one.ranks) for one in groups)
    odd = [one for one, others in against.items() if 2 * sum(len(o.ranks) for o in others) > size]
    judged_by = "majority"
    if not odd:
        known = dict(con.execute(_ELSEWHERE, {"job": job, "comm": comm}).fetchall())
        strange = [
            one
            for one, others in against.items()
            if known and not any(op in known for other in others for op in one.more(other))
        ]
        judged_by = "siblings" if len(strange) == 1 else "tie"
        odd = strange if len(strange) == 1 else list(against)
    for one in odd:
        other = max(against[one], key=lambda group: len(group.ranks))
        yield one, one.more(other)[0], other.more(one)[0], judged_by
