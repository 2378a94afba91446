"""For how long nothing has completed in a job, and the longest such gap before."""

from __future__ import annotations

from oncall.evidence import relation


@relation(
    "job_quiet",
    reads=["ops|launches"],
    optional=["operations"],
    columns=[
        ("job", "VARCHAR", "", "the job"),
        ("looked_ns", "BIGINT", "ns", "when it was last looked at; NULL: not recorded"),
        ("newest_ns", "BIGINT", "ns", "when anything last happened: a call, or an end"),
        ("quiet_ns", "BIGINT", "ns", "for how long nothing had ended then; NULL: not recorded"),
        ("longest_gap_ns", "BIGINT", "ns", "the longest that nothing ended before"),
    ],
    source="beyond CCL-D: when a recording was made",
)
def job_quiet() -> str:
    """For how long no operation of a job has completed on any rank, and the longest gap before."""
    return """
        WITH polls AS (
            SELECT job, at_ns, sum(launched) AS launched FROM launches
            WHERE at_ns IS NOT NULL AND launched IS NOT NULL AND source IS DISTINCT FROM 'board'
            GROUP BY job, at_ns),
        counted AS (
            SELECT job, max(at_ns) AS looked_ns, max(at_ns) - min(at_ns) FILTER (same) AS quiet_ns
            FROM (SELECT *, launched = last(launched) OVER (PARTITION BY job ORDER BY at_ns
                      ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING) AS same
                  FROM polls)
            GROUP BY job HAVING count(*) > 1),
        boards AS (
            SELECT job, max(at_ns) AS looked_ns FROM launches WHERE source = 'board' GROUP BY job),
        happened AS (
            SELECT job, called_ns AS at_ns, false AS ends FROM operations WHERE called_ns > 0
            UNION ALL SELECT job, ended_ns, true FROM operations WHERE ended_ns > 0),
        -- By the millisecond: a pause within one is the longest of no job, and millions are sorted.
        ticks AS (
            SELECT job, ends, min(at_ns) AS first_ns, max(at_ns) AS last_ns FROM happened
            GROUP BY job, ends, at_ns // 1000000),
        -- Where no end is recorded, a call is the only thing that shows progress.
        progress AS (
            FROM ticks QUALIFY ends = bool_or(ends) OVER (PARTITION BY job)),
        gaps AS (
            SELECT job, max(last_ns) AS last_ns, max(gap_ns) AS longest_gap_ns
            FROM (SELECT job, last_ns, first_ns - lag(last_ns)
                      OVER (PARTITION BY job ORDER BY first_ns) AS gap_ns FROM progress)
            GROUP BY job),
        seen AS (
            SELECT job, max(observed_ns) AS looked_ns,
                max(greatest(called_ns, ended_ns, observed_ns)) AS newest_ns
            FROM operations GROUP BY job)
        SELECT job, coalesce(greatest(s.looked_ns, b.looked_ns), c.looked_ns) AS looked_ns,
            s.newest_ns,
            coalesce(c.quiet_ns, greatest(s.looked_ns, b.looked_ns) - g.last_ns) AS quiet_ns,
            g.longest_gap_ns
        FROM seen s FULL JOIN counted c USING (job) FULL JOIN boards b USING (job)
        LEFT JOIN gaps g USING (job)
    """
