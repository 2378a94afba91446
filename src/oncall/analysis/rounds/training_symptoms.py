"""What training shows at each rank, to set beside what was measured of its device."""

from __future__ import annotations

from oncall.analysis.devices.host_symptoms import MEASURED
from oncall.evidence import relation


@relation(
    "training_symptoms",
    reads=[MEASURED, "ranks"],
    optional=["late_ranks", "members", "slowed_groups"],
    columns=[
        ("job", "VARCHAR", "", "the job"),
        ("rank", "INTEGER", "", "global rank"),
        ("waited", "DOUBLE", "ratio", "share of time that others wait for it, since it is late"),
        ("ratio", "DOUBLE", "ratio", "least bandwidth of its groups that slowed, of normal"),
        ("role", "VARCHAR", "", "what that group is for"),
        ("across", "BOOLEAN", "", "that group's data crosses the network"),
    ],
    source="TFD 3.3",
)
def training_symptoms() -> str:
    """What training shows at each rank: that others wait for it, that its groups slowed."""
    return """
        WITH slowed AS (
            SELECT m.job, m.rank, min(g.ratio) AS ratio,
                arg_min(g.role, (g.ratio, g.role)) AS role,
                arg_min(g.across, (g.ratio, g.role, g.across)) AS across
            FROM members m JOIN slowed_groups g USING (job, comm) WHERE g.slowed GROUP BY ALL)
        SELECT r.job, r.rank, l.lost_share AS waited, s.ratio, s.role, s.across
        FROM (SELECT DISTINCT job, rank FROM ranks) r
        LEFT JOIN late_ranks l USING (job, rank) LEFT JOIN slowed s USING (job, rank)
    """
