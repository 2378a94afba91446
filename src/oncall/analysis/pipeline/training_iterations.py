"""Iterations of the training, and which of them took longer than the baseline.

The duration is measured on each rank's own clock, so clocks need not agree. The baseline is the
lower quartile: if a job was slow for most of the recording, the median would be slow, too.
"""

from __future__ import annotations

from oncall.evidence import Param, relation


def _measured() -> str:
    """Each iteration as each rank measured it, and whether it warms up or is recorded whole."""
    return """
        by_rank AS (
            SELECT job, iteration, rank, min(started_ns) AS started_ns, max(ended_ns) AS ended_ns,
                max(ended_ns) - min(started_ns) AS duration_ns,
                count(DISTINCT micro_batch) AS micro_batches,
                count(*) FILTER (task NOT LIKE '%_recv' AND task NOT LIKE '%_send') AS tasks,
                bool_and(coalesce(whole, true) AND ended_ns IS NOT NULL)
                    FILTER (task NOT LIKE '%_recv' AND task NOT LIKE '%_send') AS ended
            FROM stage_work
            WHERE iteration IS NOT NULL AND task NOT IN ('evaluation', 'checkpoint')
            GROUP BY job, iteration, rank),
        -- Recorded from the job's first collective on, as a rule over ranks.
        from_start AS (
            SELECT job FROM (
                SELECT job, rank, arg_min(seq, called_ns) AS seq FROM operations
                WHERE kind = 'coll' GROUP BY ALL)
            GROUP BY job HAVING median(seq) <= 1),
        shape AS (
            SELECT job, iteration, max(micro_batches) AS micro_batches,
                min(started_ns) AS started_ns, max(ended_ns) AS ended_ns,
                row_number() OVER (PARTITION BY job ORDER BY iteration) <= $warm_up
                    AND (count(*) OVER (PARTITION BY job) > 2 * $warm_up
                        OR job IN (SELECT job FROM from_start)) AS warm_up
            FROM by_rank GROUP BY job, iteration),
        timed AS (
            SELECT s.*, max(duration_ns) FILTER (ended AND tasks = all_tasks) AS duration_ns
            FROM shape s JOIN (
                SELECT *, max(tasks) OVER (PARTITION BY job, rank, micro_batches) AS all_tasks
                FROM by_rank) USING (job, iteration, micro_batches)
            GROUP BY ALL)
    """


def _compared() -> str:
    """Each iteration against the baseline of those of as many micro-batches, and their scatter."""
    return """
        counted AS (
            SELECT job, micro_batches, duration_ns, row_number() OVER (
                PARTITION BY job, micro_batches ORDER BY iteration) <= $few AS opens
            FROM timed WHERE duration_ns IS NOT NULL AND NOT warm_up),
        -- What began soon and never ended is most of the recording: the first ones know better.
        baselines AS (
            SELECT job, micro_batches, median(duration_ns) AS median_ns,
                quantile_cont(duration_ns, 0.25) AS calm_ns,
                least(calm_ns, max(duration_ns) FILTER (opens)) AS baseline_ns
            FROM counted GROUP BY ALL HAVING count(*) >= $few),
        spreads AS (
            SELECT job, micro_batches, baseline_ns,
                median(abs(duration_ns - baseline_ns)) AS spread_ns
            FROM counted JOIN baselines USING (job, micro_batches)
            WHERE duration_ns <= if(baseline_ns < calm_ns, baseline_ns, median_ns) GROUP BY ALL),
        compared AS (
            SELECT *, duration_ns IS NOT NULL AS whole, duration_ns - baseline_ns AS excess_ns,
                coalesce(excess_ns > greatest($slow_share * baseline_ns,
                    $slow_spreads * spread_ns), false) AS slow
            FROM timed LEFT JOIN spreads USING (job, micro_batches))
    """


def _warming_up() -> str:
    """Slow iterations at the start that may still be warm-up."""
    return """
        -- Until the first that is not slow a training may still be warming up.
        calm AS (
            SELECT job, min(iteration) FILTER (NOT slow AND NOT warm_up) AS calm,
                min(iteration) AS first, count(*) > 2 * $warm_up_most AS long
            FROM compared GROUP BY job),
        judged_from AS (
            SELECT c.*, warm_up OR coalesce(long AND calm - first <= $warm_up_most
                AND iteration < calm, false) AS early
            FROM compared c JOIN calm USING (job))
    """


@relation(
    "training_iterations",
    reads=["stage_work"],
    empty_without=["stage_work"],
    columns=[
        "job iteration",
        ("micro_batches", "INTEGER", "", "micro-batches of each pipeline in it"),
        ("started_ns", "BIGINT", "ns", "its first task began, common time"),
        ("ended_ns", "BIGINT", "ns", "its last task ended, common time"),
        ("duration_ns", "BIGINT", "ns", "the longest that a rank took, on that rank's clock"),
        ("baseline_ns", "DOUBLE", "ns", "of as many micro-batches; NULL: too few"),
        ("spread_ns", "DOUBLE", "ns", "by how much the faster ones differ from that"),
        ("excess_ns", "DOUBLE", "ns", "duration beyond the baseline"),
        ("slow", "BOOLEAN", "", "beyond the baseline by more than scatter"),
        ("whole", "BOOLEAN", "", "the recording holds all of it for some rank"),
        ("warm_up", "BOOLEAN", "", "one of the first: not judged"),
    ],
    source="VenusTrace 3.3, Algorithm 2 (line 1)",
    params={
        "slow_share": Param("3 %", "beyond the baseline by this share: less is not worth a look"),
        "slow_spreads": Param(5, "and by this many times the scatter of the faster iterations"),
        "warm_up_most": Param(8, "caches may take longer; more slow ones in a row are a slow job"),
        "few": "lost_time.few",
        "warm_up": Param(2, "iterations allocate and compile (VenusTrace 3.3: from the third)"),
    },
)
def training_iterations() -> str:
    """Each iteration with its time against the baseline."""
    return f"""
        WITH {_measured()}, {_compared()}, {_warming_up()}
        SELECT * EXCLUDE (early) REPLACE (early AS warm_up, slow AND NOT early AS slow)
        FROM judged_from
    """
