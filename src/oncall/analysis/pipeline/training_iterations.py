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
        candidates AS (
            SELECT s.*, r.rank, r.duration_ns, ended AND tasks >= $complete * max(tasks) OVER (
                    PARTITION BY job, r.rank, micro_batches) AS whole
            FROM shape s JOIN by_rank r USING (job, iteration, micro_batches))
    """


def _baselines() -> str:
    """What each rank's iterations of as many micro-batches take, and their scatter."""
    return """
        -- What began soon and never ended is most of the recording: the first ones know better.
        opening AS (
            SELECT job, rank, micro_batches, median(duration_ns) AS early_ns
            FROM (FROM candidates WHERE whole AND NOT warm_up QUALIFY row_number() OVER (
                PARTITION BY job, rank, micro_batches ORDER BY iteration) <= $opening)
            GROUP BY ALL HAVING count(*) = $opening
                AND max(duration_ns) - min(duration_ns) < $slow_share * early_ns),
        baseline AS (
            SELECT job, rank, micro_batches, median(duration_ns) AS median_ns,
                quantile_cont(duration_ns, 0.25) AS calm_ns,
                CASE WHEN any_value(early_ns) < (1 - $slow_share) * calm_ns
                    THEN any_value(early_ns) ELSE calm_ns END AS baseline_ns
            FROM candidates LEFT JOIN opening USING (job, rank, micro_batches)
            WHERE whole AND NOT warm_up GROUP BY ALL HAVING count(*) >= $fewest),
        spread AS (
            SELECT job, rank, micro_batches, median(abs(duration_ns - baseline_ns)) AS spread_ns
            FROM candidates JOIN baseline USING (job, rank, micro_batches)
            WHERE whole AND NOT warm_up AND duration_ns <= CASE WHEN baseline_ns < calm_ns
                THEN (1 + $slow_share) * baseline_ns ELSE median_ns END GROUP BY ALL)
    """


def _compared() -> str:
    """Each iteration against the baseline of the rank that was latest in it."""
    return """
        -- An iteration is as late as the rank that it made latest, against that rank's baseline.
        judged AS (
            SELECT t.job, t.iteration, max(duration_ns) AS duration_ns,
                max(duration_ns - baseline_ns) AS excess_ns,
                arg_max(spread_ns, (duration_ns - baseline_ns, -spread_ns)) AS spread_ns
            FROM candidates t LEFT JOIN baseline USING (job, rank, micro_batches)
            LEFT JOIN spread USING (job, rank, micro_batches)
            WHERE t.whole GROUP BY t.job, t.iteration),
        -- Of many ranks one is always late by chance; the second calmest iteration shows how late.
        calmest AS (
            SELECT job, micro_batches,
                greatest(list_sort(list(excess_ns))[2], 0) AS chance_ns
            FROM judged JOIN shape USING (job, iteration)
            WHERE NOT warm_up AND excess_ns IS NOT NULL GROUP BY ALL),
        evened AS (
            SELECT j.* REPLACE (excess_ns - coalesce(chance_ns, 0) AS excess_ns)
            FROM judged j JOIN shape USING (job, iteration)
            LEFT JOIN calmest USING (job, micro_batches)),
        compared AS (
            SELECT s.*, j.duration_ns, j.excess_ns, j.spread_ns,
                j.duration_ns - j.excess_ns AS baseline_ns, j.iteration IS NOT NULL AS whole,
                coalesce(j.excess_ns > greatest($slow_share * (j.duration_ns - j.excess_ns),
                    $slow_spreads * j.spread_ns), false) AS slow
            FROM shape s LEFT JOIN evened j USING (job, iteration))
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
        "complete": "lost_time.nearly_all",
        "fewest": "lost_time.few",
        "opening": "lost_time.few",
        "warm_up": Param(2, "iterations allocate and compile (VenusTrace 3.3: from the third)"),
    },
)
def training_iterations() -> str:
    """Each iteration with its time against the baseline."""
    return f"""
        WITH {_measured()}, {_baselines()}, {_compared()}, {_warming_up()}
        SELECT * EXCLUDE (early) REPLACE (early AS warm_up, slow AND NOT early AS slow)
        FROM judged_from
    """
