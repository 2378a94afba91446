"""Stages with more work than the others of their pipeline, in every iteration: no fault."""

from __future__ import annotations

from oncall.evidence import Param, relation


@relation(
    "stage_imbalance",
    reads=["stage_suspects", "stage_vertices", "stage_expectation"],
    optional=["training_iterations"],
    empty_without=["stage_suspects", "stage_expectation"],
    columns=[
        ("job", "VARCHAR", "", "the job"),
        ("stage", "INTEGER", "", "the stage with most work"),
        ("ratio", "DOUBLE", "ratio", "its tasks against those of the other stages"),
        ("cost_ns", "BIGINT", "ns", "about how much longer an iteration takes for it"),
        ("iteration_ns", "DOUBLE", "ns", "what an iteration takes"),
    ],
    source="OSDI '25 (causes of stragglers); VenusTrace 3.3",
    params={
        "uneven": Param(1.1, "times the other stages: below, moving layers gains little"),
    },
)
def stage_imbalance() -> str:
    """The most uneven stage of each job, the same in all its pipelines."""
    return """
        WITH shape AS (
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
        baseline AS (
            SELECT job, median(baseline_ns) AS iteration_ns FROM training_iterations GROUP BY job)
        SELECT job, stage, median(own_ns / others_ns) AS ratio, any_value(iteration_ns)
            AS iteration_ns, median(own_ns - mean_ns) * any_value(micro_batches) AS cost_ns
        FROM beside JOIN shape USING (job) LEFT JOIN baseline USING (job)
        GROUP BY job, stage HAVING min(own_ns / others_ns) > $uneven + any_value(unsure)
        QUALIFY ratio = max(ratio) OVER (PARTITION BY job)
    """
