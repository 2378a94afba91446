"""Which communicator's and which rank's lag is exceptional, where only the number of calls of each
rank is known (NCCL RAS).

Members of many communicators differ at once: a rank that waits falls behind as well, ranks of a
pipeline call at different times, and a stopped job leaves all of them at different calls.
Communicators of the same shape do the same work. So a lag that most of them show follows from their
place in the job; a lag that hardly any other shows is where the hang began.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection
from dataclasses import dataclass, field

import duckdb

from oncall.evidence import Param, relation

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
        ("job", "VARCHAR", "", "the job"),
        ("comm", "UBIGINT", "", "communicator"),
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
        ("job", "VARCHAR", "", "a job of which calls alone are recorded"),
        ("groups", "BIGINT", "communicators", "those of the shape that calls most at the end"),
        ("lagging", "BIGINT", "communicators", "of them those whose members differ at the end"),
        ("evenness", "DOUBLE", "", "log odds: above 0 all end together, below 0 anywhere"),
        ("ragged", "BOOLEAN", "", "they end anywhere"),
    ],
    source="beyond VenusTrace",
    params={
        "fewest_alike": "lost_time.fewest",
        "at_the_end": Param(
            0.1, "of all calls: what is called in evaluations, or once an iteration, differs"
        ),
        "apart": Param(
            0.5, "logs cut at different times leave the members of as many groups apart, or more"
        ),
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
