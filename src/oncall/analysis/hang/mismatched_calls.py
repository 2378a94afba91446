"""The round in which members stopped calling the same operation, where calls alone are recorded.

NCCL neither refuses mismatched calls nor completes them: the members wait forever, or for each
other's next calls. So the mismatch is in the last round, apart from what hosts called ahead. If all
later rounds differ as well, the recorder lost a call; if all rounds differ, it counts calls in
another way.
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
    """Rounds at the end of a log in which members call differently, after many rounds in which they
    agreed."""
    return f"""
        WITH made AS (
            SELECT job, comm, seq, op, dtype, bytes, count, root,
                min(rank) AS low, max(rank) AS high
            FROM operations SEMI JOIN call_fronts USING (job) WHERE kind = 'coll' GROUP BY ALL),
        calls AS (SELECT *, {CALL} AS call FROM made o),
        rounds AS (
            SELECT job, comm, seq, min(call) < max(call) AS differs
            FROM calls GROUP BY job, comm, seq HAVING min(low) < max(high)),
        differing AS (
            SELECT job, comm, min(seq) FILTER (differs) AS seq FROM rounds GROUP BY job, comm
            HAVING count(*) FILTER (differs) <= $differing
                AND max(seq) - min(seq) FILTER (differs) <= $ahead),
        last AS (
            SELECT d.job, d.comm, d.seq FROM differing d JOIN rounds r USING (job, comm)
            GROUP BY ALL HAVING count(*) FILTER (NOT r.differs AND r.seq < d.seq) >= $agreed)
        SELECT job, comm, seq, count(DISTINCT rank) AS ranks
        FROM operations JOIN last USING (job, comm, seq) WHERE kind = 'coll'
        GROUP BY job, comm, seq
    """
