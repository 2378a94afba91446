"""Where only counters of calls are known (NCCL RAS): ranks that are ahead, or call differently.

Which communicator's and which rank's lag is exceptional, where only the number of calls of each
rank is known (NCCL RAS).

Members of many communicators differ at once: a rank that waits falls behind as well, ranks of a
pipeline call at different times, and a stopped job leaves all of them at different calls.
Communicators of the same shape do the same work. So a lag that most of them show follows from their
place in the job; a lag that hardly any other shows is where the hang began.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import duckdb

from oncall.evidence import Param, relation


@relation(
    "counted_ahead",
    reads=["frontier"],
    empty_without=["launches"],
    columns=[
        "job",
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
# Where the calls of all of them are recorded, these show more than their number.
_COUNTS = """
    WITH newest AS (
        SELECT DISTINCT ON (job, comm, rank, op) * FROM call_counts WHERE rank IS NOT NULL
        ORDER BY at_ns DESC NULLS LAST, launched DESC),
    members AS (
        SELECT job, comm, rank, list(op ORDER BY op) AS ops, list(launched ORDER BY op) AS counts
        FROM newest SEMI JOIN (FROM newest ANTI JOIN operations USING (job, rank)) USING (job, comm)
        GROUP BY ALL)
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
    optional=["operations"],
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


_CLEARLY = 2  # times as many calls behind
_MANY = 0.5  # of the communicators of a shape
_FEW = 2  # of them: that two stop at once may be
# The communicators whose members differ, by shape, and how many calls each member is behind.
_LAGS = """
    WITH counted AS (
        SELECT job, comm, rank, max(launched) AS launched FROM launches
        WHERE state IS NULL OR state NOT IN ('unresponsive', 'dead') GROUP BY ALL)
    SELECT c.job, c.comm, s.shape::VARCHAR, s.alike, c.rank,
        max(c.launched) OVER (PARTITION BY c.job, c.comm) - c.launched AS behind
    FROM counted c JOIN comm_shapes s USING (job, comm)
    SEMI JOIN (FROM counted_ahead ANTI JOIN heads USING (job)) a
        ON a.job = c.job AND a.comm = c.comm
    ORDER BY ALL
"""


@dataclass
class Lags:
    """Of one job: the shape of each communicator, how many have it, and how far members are
    behind in it."""

    shape: dict[int, tuple[str, int]] = field(default_factory=dict)
    behind: dict[tuple[int, int], int] = field(default_factory=dict)  # of communicator and rank

    def oddest(self, ends: Collection[object]) -> set[int]:
        """Communicators that lag because of ranks that wait for no other (`ends`): those of the
        shape that has the fewest of them; none if half of the communicators of a shape lag, as then
        the lag follows from where their ranks are."""
        lagging = {comm for (comm, rank), calls in self.behind.items() if calls and rank in ends}
        number: dict[str, int] = defaultdict(int)
        for comm in lagging:
            number[self.shape[comm][0]] += 1
        share = {comm: number[shape] / alike for comm, (shape, alike) in self.shape.items()}
        least = min((share[comm] for comm in lagging), default=1.0)
        odd = {comm for comm in lagging if share[comm] == least}
        return odd if least < _MANY or (len(odd) <= _FEW and least < 1) else set()

    def furthest(self, comms: Collection[int], ends: Collection[object]) -> set[int]:
        """Of the ranks behind in these communicators, those that are clearly the furthest behind:
        the host of a waiting rank has called ahead, the host of a stopped rank has not."""
        lags = {
            rank: calls
            for (comm, rank), calls in sorted(self.behind.items(), key=lambda pair: pair[1])
            if comm in comms and rank in ends
        }
        most = max(lags.values(), default=0)
        return {rank for rank, calls in lags.items() if _CLEARLY * calls >= most}


def lags_of(con: duckdb.DuckDBPyConnection) -> dict[str, Lags]:
    """The lags of each job of which only counters are known."""
    found: dict[str, Lags] = defaultdict(Lags)
    for job, comm, shape, alike, rank, behind in con.execute(_LAGS).fetchall():
        found[job].shape[comm] = shape, alike
        found[job].behind[comm, rank] = behind
    return found


@relation(
    "comm_shapes",
    reads=["members"],
    columns=[
        "job comm",
        ("shape", "INTEGER[]", "ranks", "distances of its members from the first"),
        ("alike", "BIGINT", "communicators", "those of that shape"),
    ],
    source="beyond CCL-D: like compared with like",
)
def comm_shapes() -> str:
    """The shape of each communicator: the distances between its ranks. Groups of one kind of
    parallelism have equal shapes."""
    return """
        SELECT job, comm, shape, count(*) OVER (PARTITION BY job, shape) AS alike
        FROM (
            SELECT job, comm, list(rank - first_rank ORDER BY rank) AS shape
            FROM (SELECT *, min(rank) OVER (PARTITION BY job, comm) AS first_rank FROM members)
            WHERE rank IS NOT NULL GROUP BY job, comm)
    """


@relation(
    "log_ends",
    reads=["call_fronts", "comm_shapes", "members"],
    empty_without=["call_fronts"],
    columns=[
        "job",
        ("groups", "BIGINT", "communicators", "those of the shape that calls most at the end"),
        ("lagging", "BIGINT", "communicators", "of them those whose members differ at the end"),
        ("evenness", "DOUBLE", "", "log odds: above 0 all end together, below 0 anywhere"),
        ("ragged", "BOOLEAN", "", "they end anywhere"),
    ],
    source="beyond VenusTrace",
    params={
        "fewest_alike": "lost_time.fewest",
        "at_the_end": Param(0.1, "of all calls: what is called in evaluations or at ends differs"),
        "apart": Param(0.5, "logs cut at different times leave as many groups apart, or more"),
        "stray": Param(0.05, "where one rank stopped, so many other groups are apart as well"),
    },
)
def log_ends() -> str:
    """Whether the logs of a job were cut anywhere, or end where all ranks stopped.

    Ranks that call most together, such as those of tensor parallelism, are at one call unless one
    of them stopped; what waits for that leaves the same members behind in all groups of a shape.
    Logs of a running job that are written from time to time end anywhere: most groups differ, some
    in one member and some in another. A group whose members all called a Send or Recv last is at
    one call wherever the logs end.
    """
    return """
        WITH late AS (
            SELECT job, quantile_cont(called_ns, 1 - $at_the_end) AS since_ns FROM joint_calls
            GROUP BY job),
        calls AS (
            SELECT job, comm, count(*) AS calls FROM joint_calls JOIN late USING (job)
            WHERE called_ns >= since_ns GROUP BY ALL),
        fronts AS (
            SELECT f.job, f.comm, s.shape, bool_or(behind) AS lags,
                bool_or(l.rank IS NOT NULL) AS calls_on,
                list(f.rank - m.first_rank ORDER BY f.rank) FILTER (behind) AS places
            FROM call_fronts f JOIN comm_shapes s USING (job, comm)
            JOIN (SELECT job, comm, min(rank) AS first_rank FROM members GROUP BY ALL) m
                USING (job, comm)
            LEFT JOIN (SELECT DISTINCT job, rank FROM last_calls WHERE joint) l
                ON l.job = f.job AND l.rank = f.rank
            GROUP BY ALL HAVING count(DISTINCT f.rank) > 1),
        alike AS (
            SELECT job, shape, places, count(*) AS groups FROM fronts WHERE lags GROUP BY ALL),
        -- Groups in which others are behind than in most of their shape.
        unlike AS (
            SELECT job, shape, sum(groups) - max(groups) AS unlike FROM alike
            GROUP BY job, shape),
        worst AS (SELECT job, max(unlike) AS unlike FROM unlike GROUP BY job),
        shapes AS (
            SELECT job, shape, count(*) AS groups, count(*) FILTER (lags) AS lagging,
                count(*) FILTER (calls_on AND NOT lags) AS together,
                median(calls) AS median_calls
            FROM fronts JOIN calls USING (job, comm) LEFT JOIN unlike USING (job, shape)
            GROUP BY job, shape HAVING groups >= $fewest_alike
                -- The same member behind in most groups: these wait, wherever the logs end.
                AND NOT (2 * lagging >= groups AND any_value(unlike) = 0)
            QUALIFY row_number() OVER (PARTITION BY job ORDER BY median_calls DESC, shape) = 1)
        SELECT *, evenness < 0 AS ragged FROM (
            SELECT job, groups, lagging, together * ln((1 - $stray) / (1 - $apart))
                + greatest(lagging - 1, u.unlike, 0) * ln($stray / $apart) AS evenness
            FROM shapes LEFT JOIN worst u USING (job))
    """
