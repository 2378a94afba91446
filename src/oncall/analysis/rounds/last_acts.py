"""When each rank last did anything: one that is gone was gone from then on."""

from __future__ import annotations

from oncall.evidence import relation


@relation(
    "last_acts",
    reads=["launches"],
    optional=["ops"],
    columns=[
        ("job", "VARCHAR", "", "the job"),
        ("rank", "INTEGER", "", "a rank that is known to run, or to have run"),
        ("act_ns", "BIGINT", "ns", "when it last began or ended an operation; NULL: not recorded"),
    ],
    source="CCL-D 2.2: a rank that is gone is one that does not enter",
)
def last_acts() -> str:
    """Of each rank with a recorded process, the newest call or completion."""
    return """
        WITH acts AS (
            SELECT job, rank, max(greatest(enqueued_ns, started_ns, ended_ns)) AS act_ns
            FROM ops GROUP BY job, rank)
        SELECT l.job, l.rank, any_value(a.act_ns) AS act_ns
        FROM launches l LEFT JOIN acts a USING (job, rank)
        WHERE l.rank IS NOT NULL GROUP BY l.job, l.rank
    """
