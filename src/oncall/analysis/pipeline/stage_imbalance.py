"""What makes training slower than it could be, by design and without a fault.

Uneven stages are slow in every pipeline and every iteration; longer sequences make a micro-batch
longer in all stages; garbage collection and the routing of tokens affect ranks in turn.
"""

from __future__ import annotations

from oncall.evidence import Param, relation


def _uneven_stages() -> str:
    """Stages with more work than the others of their pipeline."""
    return """
        shape AS (
            SELECT job, max(micro_batch) + 1 AS micro_batches,
                -- Where one task ends and the next begins is known to about a call's distance.
                coalesce(1 / nullif(median(calls), 0), 0) AS unsure
            FROM stage_vertices GROUP BY job),
        stages AS (
            SELECT job, replica, stage, sum(own_ns) AS own_ns
            FROM stage_expectation GROUP BY job, replica, stage),
        beside AS (
            SELECT *, median(own_ns) OVER others AS others_ns, avg(own_ns) OVER pipeline AS mean_ns
            FROM stages WINDOW pipeline AS (PARTITION BY job, replica),
                others AS (PARTITION BY job, replica ROWS BETWEEN UNBOUNDED PRECEDING
                    AND UNBOUNDED FOLLOWING EXCLUDE CURRENT ROW)),
        uneven AS (
            SELECT job, 'stages' AS kind, 'stage ' || stage AS detail,
                median(own_ns / others_ns) AS ratio,
                median(own_ns - mean_ns) * any_value(micro_batches) AS cost_ns
            FROM beside JOIN shape USING (job)
            GROUP BY job, stage HAVING min(own_ns / others_ns) > $uneven + any_value(unsure)
            QUALIFY ratio = max(ratio) OVER (PARTITION BY job))
    """


def _sequence_lengths() -> str:
    """Micro-batches that take longer in all stages: longer samples."""
    return """
        batches AS (
            SELECT v.job, v.iteration, v.replica, v.micro_batch, max(p.work) AS work
            FROM stage_paths p JOIN stage_vertices v USING (vertex)
            JOIN training_iterations i USING (job, iteration) WHERE NOT i.warm_up
            GROUP BY v.job, v.iteration, v.replica, v.micro_batch),
        evened AS (
            SELECT job, median(actual_ns - even_ns) AS cost_ns FROM even_batches GROUP BY job),
        lengths AS (
            SELECT job, 'sequence lengths' AS kind,
                round(100 * avg((work > $uneven)::INTEGER))::INTEGER
                    || ' % of the micro-batches' AS detail,
                quantile_cont(work, 0.95) AS ratio,
                any_value(cost_ns) AS cost_ns
            FROM batches JOIN evened USING (job) GROUP BY job
            HAVING avg((work > $uneven)::INTEGER) >= $often)
    """


def _garbage() -> str:
    """Garbage collection that all ranks wait for."""
    return """
        collections AS (
            SELECT job, iteration, count(*) AS collected, list(DISTINCT rank) AS ranks,
                max(ended_ns - started_ns) AS longest_ns
            FROM stage_work WHERE task = 'garbage' AND ended_ns > started_ns
            GROUP BY job, iteration),
        garbage AS (
            -- All wait for the longest collection of an iteration.
            SELECT job, 'garbage collection' AS kind,
                len(list_distinct(flatten(list(ranks)))) || ' ranks collect in '
                    || count(c.iteration) || ' of ' || count(*) || ' iterations' AS detail,
                NULL AS ratio, sum(longest_ns) / count(*) AS cost_ns
            FROM training_iterations LEFT JOIN collections c USING (job, iteration)
            GROUP BY job HAVING sum(collected) > 1)
    """


def _experts() -> str:
    """Work that changes from iteration to iteration, as the routing to experts makes it."""
    return """
        routing AS (
            SELECT job, 'experts' AS kind, count(*) || ' ranks'' work changes by '
                    || round(100 * median(changes))::INTEGER
                    || ' % from iteration to iteration, with their whole tensor group' AS detail,
                median(changes) AS ratio, max(cost_ns) AS cost_ns
            FROM expert_ranks GROUP BY job
            HAVING count(*) >= (
                SELECT count(DISTINCT rank) / 2 FROM stage_work w WHERE w.job = expert_ranks.job))
    """


def _in_turn() -> str:
    """Many ranks that are late one after the other."""
    return """
        expert_parallel AS (
            SELECT job FROM jobs WHERE ep > 1
            UNION SELECT job FROM parallelism WHERE parallelism = 'ep'),
        in_turn AS (
            SELECT l.job,
                CASE WHEN l.job IN (FROM expert_parallel) THEN 'experts' ELSE 'ranks in turn' END
                    AS kind,
                count(*) || ' ranks, one after the other' AS detail, NULL AS ratio,
                sum(lag_ns) / any_value(iterations) AS cost_ns
            FROM stage_lags l WHERE NOT network
                AND l.job NOT IN (SELECT job FROM routing)
            GROUP BY l.job HAVING count(*) >= $in_turn AND max(share_of_lost) < $most)
    """


def _baseline() -> str:
    """What an iteration takes."""
    return """
        baseline AS (
            SELECT job, median(baseline_ns) AS iteration_ns FROM training_iterations GROUP BY job)
    """


@relation(
    "stage_imbalance",
    reads=["stage_vertices", "stage_expectation"],
    optional=[
        "even_batches",
        "stage_paths",
        "stage_work",
        "stage_lags",
        "expert_ranks",
        "jobs",
        "parallelism",
        "training_iterations",
    ],
    empty_without=["stage_expectation"],
    columns=[
        ("job", "VARCHAR", "", "the job"),
        (
            "kind",
            "VARCHAR",
            "",
            "stages, sequence lengths, garbage collection, experts, or ranks in turn",
        ),
        ("detail", "VARCHAR", "", "which stage, how many ranks, ..."),
        ("ratio", "DOUBLE", "ratio", "against the baseline"),
        ("cost_ns", "BIGINT", "ns", "about how much longer an iteration takes for it"),
        ("iteration_ns", "DOUBLE", "ns", "what an iteration takes"),
    ],
    source="OSDI '25 (causes of stragglers); VenusTrace 3.3",
    params={
        "uneven": Param(
            1.1,
            "times the other stages, or other micro-batches: below, moving layers gains little",
        ),
        "often": Param("5 %", "of the micro-batches: fewer long ones are an event, not a habit"),
        "most": Param("50 %", "of what was lost: more by one rank alone is a machine at fault"),
        "in_turn": Param(4, "as many ranks, each with less than half of what was lost"),
    },
)
def stage_imbalance() -> str:
    """Imbalances of the job as a whole."""
    return f"""
        WITH {_uneven_stages()}, {_sequence_lengths()}, {_garbage()}, {_experts()},
            {_in_turn()}, {_baseline()}
        SELECT f.*, u.iteration_ns FROM (
            FROM uneven UNION ALL FROM lengths UNION ALL FROM garbage UNION ALL FROM routing
            UNION ALL FROM in_turn) f
        LEFT JOIN baseline u USING (job)
        -- What costs more than a whole iteration was read from calls that are not what they seem.
        WHERE coalesce(f.cost_ns < u.iteration_ns, true)
    """
