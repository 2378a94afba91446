"""Which rank lags, where only the number of calls of each rank is known (NCCL RAS).

Members of many communicators differ at once, since a rank that waits falls behind as well.
Communicators of one shape do the same work: a lag that all of them show is a consequence.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection
from dataclasses import dataclass, field

import duckdb

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
