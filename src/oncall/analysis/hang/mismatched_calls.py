"""Where calls alone are recorded: the round in which members stopped calling the same.

NCCL neither refuses nor survives it: the members wait for ever, or for each other's next calls. So
the round is the last one, but for what hosts called ahead. A recorder that lost a call makes all
later rounds differ, and whoever counts otherwise makes all of them differ.
"""

from __future__ import annotations

from oncall.analysis.common.operations import CALL
from oncall.evidence import Param, relation


@relation(
    "mismatched_calls",
    reads=["call_fronts"],
    optional=["operations", "even_sizes"],
    empty_without=["call_fronts"],
    columns=[
        ("job", "VARCHAR", "", "a job of which only calls are recorded"),
        ("comm", "UBIGINT", "", "communicator"),
        ("seq", "BIGINT", "", "the first collective there that its members call differently"),
        ("ranks", "BIGINT", "ranks", "members that made the call"),
    ],
    source="CCL-D 4.1.2 (Operation Type Set)",
    params={
        "agreed": Param(3, "rounds before, in which all called the same: they count alike"),
        "ahead": Param(16, "rounds that hosts may call ahead of their devices"),
        "differing": Param(1, "round of these: more, and the recorder lost calls"),
    },
)
def mismatched_calls() -> str:
    """Rounds at the end of a log that members call differently, after many that they did not."""
    return f"""
        WITH calls AS (
            SELECT o.job, o.comm, o.seq, o.rank, {CALL} AS call FROM operations o
            SEMI JOIN call_fronts USING (job) WHERE o.kind = 'coll'),
        rounds AS (
            SELECT job, comm, seq, count(DISTINCT call) > 1 AS differs,
                count(DISTINCT rank) AS ranks FROM calls GROUP BY job, comm, seq),
        counted AS (
            SELECT *, min(seq) FILTER (differs) OVER c AS first_seq,
                count(*) FILTER (differs) OVER c AS differing, max(seq) OVER c AS last_seq,
                count(*) FILTER (NOT differs) OVER (
                    PARTITION BY job, comm ORDER BY seq) AS agreed
            FROM rounds WHERE ranks > 1
            WINDOW c AS (PARTITION BY job, comm))
        SELECT job, comm, seq, ranks FROM counted
        WHERE seq = first_seq AND differing <= $differing AND agreed >= $agreed
            AND last_seq - seq <= $ahead
    """
