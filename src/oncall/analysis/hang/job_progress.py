"""Whether a job with waiting ranks is stopped: the symptoms of progress, summed up.

Symptoms are log odds and taken as independent, so their sum gives a probability.

For how long nothing has completed, and how often as many ranks as now waited at once while the job
still ran, are two of them. Some rank waits in almost every running job, in some jobs all but one do
for half of the time. What a dump at any earlier instant would have shown is known from its own
calls: from a rank's call of a collective to the last member's it waited for that member.
"""

from __future__ import annotations

from oncall.evidence import Param, relation


@relation(
    "job_quiet",
    reads=["ops|launches"],
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
    "shared_waits",
    reads=["hang_roots", "front", "job_quiet"],
    empty_without=["front"],
    columns=[
        ("job", "VARCHAR", "", "a job with waiting ranks, looked at nobody knows when"),
        ("waiting", "BIGINT", "ranks", "blocked in a call"),
        ("ranks", "BIGINT", "ranks", "those with data"),
        ("missing", "BIGINT", "ranks", "those that may be waited for"),
        ("before", "DOUBLE", "0..1", "of the recorded time, that in which as many waited"),
        ("share", "DOUBLE", "0..1", "the same to be expected, with one more such wait"),
    ],
    source="beyond CCL-D",
)
def shared_waits() -> str:
    """How many ranks of each job wait, and for how much of the time before as many did."""
    return """
        WITH seats AS (SELECT job, comm, rank FROM members SEMI JOIN witnesses USING (job, rank)),
        sizes AS (SELECT job, comm, count(*) AS size FROM seats GROUP BY ALL),
        -- `joined`: all members called what does not end, some `members` of the job's ranks.
        jobs AS (
            SELECT job, bool_and(how = 'together') AS joined, any_value(comm) AS place,
                max(CASE kind WHEN 'p2p' THEN 2 ELSE size END) FILTER (how = 'together') AS members,
                any_value(greatest(coalesce(longest_gap_ns, 0), 1)) AS pause_ns
            FROM hang_roots LEFT JOIN job_quiet USING (job) LEFT JOIN sizes USING (job, comm)
            WHERE quiet_ns IS NULL GROUP BY job),
        crowd AS (
            SELECT job, count(DISTINCT rank) AS waiting FROM front SEMI JOIN jobs USING (job)
            GROUP BY job),
        -- Transfers are counted from the last that ended: rings lose the first of either end.
        calls AS (
            SELECT job, comm, kind, -1::BIGINT AS ends, seq, rank, min(called_ns) AS called_ns,
                max(ended_ns) AS ended_ns
            FROM operations SEMI JOIN jobs USING (job)
            WHERE called_ns IS NOT NULL AND kind = 'coll' GROUP BY ALL
            UNION ALL
            SELECT job, comm, kind,
                if(op = 'Send', rank::BIGINT << 32 | p, p << 32 | rank::BIGINT) AS ends,
                row_number() OVER (
                    PARTITION BY job, comm, rank, peer, op ORDER BY called_ns DESC, seq DESC),
                rank, called_ns, ended_ns
            FROM (SELECT *, coalesce(peer, 2147483647)::BIGINT AS p FROM operations)
            SEMI JOIN jobs USING (job)
            WHERE called_ns IS NOT NULL AND kind = 'p2p' AND done),
        world AS (SELECT job, count(DISTINCT rank) AS ranks FROM seats GROUP BY job),
        recorded AS (
            SELECT job, max(first_ns) AS since_ns, min(last_ns) AS until_ns,
                greatest(until_ns - since_ns, 0) AS span_ns
            FROM (SELECT job, rank, min(called_ns) AS first_ns, max(called_ns) AS last_ns
                  FROM calls GROUP BY ALL)
            GROUP BY job),
        -- Ranks wait for a member until all have called; where all have, for the operation to end,
        -- which the member that discovers it first shows best. Watchdogs see ends late: they count
        -- for a transfer of which only one end is recorded.
        met AS (
            SELECT job, comm, kind, ends, seq, max(called_ns) AS met_ns, min(ended_ns) AS first_ns,
                count(*) AS callers
            FROM calls GROUP BY ALL),
        waits AS (
            SELECT job, c.rank, if(joined, met_ns, called_ns) AS called_ns,
                CASE WHEN callers < CASE kind WHEN 'p2p' THEN 2 ELSE size END
                    THEN CASE kind WHEN 'p2p' THEN ended_ns END
                    WHEN joined THEN first_ns ELSE met_ns END AS over_ns
            FROM calls c JOIN met USING (job, comm, kind, ends, seq)
            JOIN jobs USING (job) JOIN sizes USING (job, comm)
            WHERE NOT joined OR (comm = place AND kind = 'coll')),
        -- Each rank's waits without what an earlier one covers.
        apart AS (
            SELECT job, least(over_ns, until_ns) AS until_ns,
                greatest(called_ns, since_ns, max(over_ns) OVER (
                    PARTITION BY job, rank ORDER BY called_ns, over_ns
                    ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)) AS since_ns
            FROM waits JOIN recorded USING (job) WHERE over_ns > called_ns),
        turns AS (
            SELECT job, since_ns AS at_ns, 1 AS more FROM apart WHERE since_ns < until_ns
            UNION ALL SELECT job, until_ns, -1 FROM apart WHERE since_ns < until_ns),
        levels AS (
            SELECT job, sum(more) OVER (PARTITION BY job ORDER BY at_ns, more) AS waiting,
                lead(at_ns) OVER (PARTITION BY job ORDER BY at_ns, more) - at_ns AS lasted_ns
            FROM turns),
        shares AS (
            SELECT job, sum(l.lasted_ns) FILTER (l.waiting >= c.waiting) AS waited_ns
            FROM levels l JOIN crowd c USING (job) GROUP BY job)
        -- One more pause is assumed, as long as the job's longest, in which each rank, or each
        -- group that all wait for, may be missing: all that is known of a job without a past.
        SELECT job, c.waiting, w.ranks,
            greatest(w.ranks - c.waiting, coalesce(members, 1)) AS missing,
            waited_ns / span_ns AS before,
            CASE WHEN span_ns IS NULL OR (joined AND members < w.ranks) THEN missing / w.ranks
                WHEN NOT joined OR waited_ns IS NOT NULL
                THEN (coalesce(waited_ns, 0) + pause_ns * missing)
                    / (span_ns + pause_ns * w.ranks) END AS share
        FROM crowd c JOIN jobs USING (job) JOIN world w USING (job)
        LEFT JOIN recorded r USING (job) LEFT JOIN shares s USING (job)
        WHERE share IS NOT NULL
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
        ("why", "VARCHAR", "", "the reasons, the weightiest first"),
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
                    string_agg(s.but || s.why, '; ' ORDER BY abs(s.weight) DESC, s.name)
                        FILTER (s.weight <> 0),
                    string_agg(s.why, '; ' ORDER BY s.name),
                    'nothing shows when it was recorded') AS why
            FROM (SELECT DISTINCT job FROM hang_roots) r
            LEFT JOIN (
                SELECT *, CASE WHEN weight * sum(weight) OVER j < 0 THEN 'but ' ELSE '' END AS but
                FROM progress_symptoms WINDOW j AS (PARTITION BY job)) s USING (job)
            GROUP BY r.job)
    """
