"""Whether a job with waiting ranks is stopped: the symptoms of progress, summed up.

Symptoms are log odds and taken as independent, so their sum gives a probability.

For how long nothing has completed, and how often as many ranks as now waited at once while the job
still ran (shared_waits), are two of them.
"""

from __future__ import annotations

from oncall.evidence import Param, relation


@relation(
    "job_quiet",
    reads=["ops|launches"],
    columns=[
        "job",
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


@relation(
    "dump_times",
    reads=["recordings", "job_quiet"],
    empty_without=["recordings"],
    columns=[
        ("job", "VARCHAR", "", "a job that left Flight Recorder dumps"),
        ("later_ns", "BIGINT", "ns", "its files were written so long after its last operation"),
        ("normal_ns", "BIGINT", "ns", "the longest that nothing ended before"),
        ("dated", "BOOLEAN", "", "they were written when the dumps were made"),
        ("silent", "BOOLEAN", "", "by then nothing had happened for longer than ever"),
    ],
    source="beyond CCL-D: when a recording was made",
    params={
        "blink": "progress_symptoms.blink",
        "written_in": Param("5 s", "symbols of stacks are looked up while a dump is written"),
        "copied_after": Param("1 h", "later than that, a file's time is rather when it was copied"),
        "copying": Param("1 ms", "a file: times of files copied at once are so near"),
    },
)
def dump_times() -> str:
    """How long after its last operation each job's dumps were written."""
    return """
        -- A file is no older than its dump, and may be a copy, made at any time since. So that it
        -- was written shortly after the last operation shows that the job moved, and that it was
        -- written later shows something only where the times differ as those of dumps do: copies
        -- are made at once, or in the order of names or ranks.
        WITH orders AS (
            SELECT job, written_ns, max(written_ns) OVER (PARTITION BY job ORDER BY path)
                    - written_ns AS by_name,
                max(written_ns) OVER (PARTITION BY job ORDER BY rank) - written_ns AS by_rank
            FROM recordings WHERE kind = 'flight_recorder'),
        files AS (
            SELECT job, median(written_ns) - any_value(newest_ns) AS later_ns,
                greatest(any_value(longest_gap_ns), $blink) AS normal_ns,
                least(max(by_name), max(by_rank)) > $copying * count(*) AS differ
            FROM job_quiet JOIN orders USING (job) GROUP BY job)
        SELECT job, later_ns, normal_ns,
            coalesce(later_ns <= $written_in OR (differ AND later_ns < $copied_after), false)
                AS dated,
            dated AND later_ns > normal_ns + $written_in AS silent
        FROM files
    """


@relation(
    "job_progress",
    reads=["hang_roots"],
    empty_without=["hang_roots"],
    columns=[
        ("job", "VARCHAR", "", "a job with waiting ranks"),
        ("stopped", "DOUBLE", "0..1", "the probability that it is stopped"),
        ("state", "VARCHAR", "", "stopped, unclear or moving"),
        ("moved", "BOOLEAN", "", "whether it was recorded that the job went on"),
        ("undated", "BOOLEAN", "", "nothing shows when its dumps were made"),
        ("why", "VARCHAR", "", "the reasons for it, then those against, the weightiest first"),
    ],
    source="beyond CCL-D",
    params={
        "stopped_above": Param(0.9, "one false alarm in ten is what an on-call engineer bears"),
        "likely": "progress_symptoms.likely",
    },
)
def job_progress() -> str:
    """Whether each job that ranks wait in is stopped."""
    return """
        SELECT job, stopped, CASE WHEN stopped >= $stopped_above THEN 'stopped'
            WHEN stopped <= 1 - $stopped_above THEN 'moving' ELSE 'unclear' END AS state, moved,
            undated, why
        FROM (
            SELECT r.job, 1 / (1 + exp(-coalesce(sum(s.weight), 0))) AS stopped,
                coalesce(bool_or(s.weight <= -$likely AND s.name IN (
                    'time', 'same place', 'file times', 'contradiction')), false) AS moved,
                -- Neither its files nor what the watchdog had seen by then.
                coalesce(bool_or(s.name = 'undated') AND bool_and(s.name <> 'watchdog'), false)
                    AS undated,
                -- What says nothing either way is no reason, unless there is no other.
                coalesce(
                    nullif(concat_ws('; but ',
                        string_agg(s.why, '; ' ORDER BY abs(s.weight) DESC, s.name)
                            FILTER (s.weight <> 0 AND NOT s.against),
                        string_agg(s.why, '; ' ORDER BY abs(s.weight) DESC, s.name)
                            FILTER (s.against)), ''),
                    string_agg(s.why, '; ' ORDER BY s.name),
                    'nothing shows when it was recorded') AS why
            FROM (SELECT DISTINCT job FROM hang_roots) r
            LEFT JOIN (
                SELECT *, weight * sum(weight) OVER j < 0 AS against
                FROM progress_symptoms WINDOW j AS (PARTITION BY job)) s USING (job)
            GROUP BY r.job)
    """
