"""What a forward or backward of a stage should take.

The median over the iterations that were not slow, which one slow iteration cannot move as it moves
the paper's value that follows the last ones. A stage that was slow from the beginning has no past
to compare with: then the same stage of the other pipelines is the baseline.

A stage with more work than the others of its pipeline in every iteration is no fault.
"""

from __future__ import annotations

from oncall.evidence import Param, relation

ITS_PAST, PEERS = "its own past", "other pipelines"

_KIND = [
    ("job", "VARCHAR", "", "the job"),
    ("replica", "INTEGER", "", "the pipeline"),
    ("stage", "INTEGER", "", "pipeline stage"),
    ("chunk", "INTEGER", "", "model chunk on the stage"),
    ("task", "VARCHAR", "", "forward or backward"),
]


def _of_others(name: str) -> str:
    """SQL: the value in the other pipelines; NULL where there are none."""
    return f"""CASE WHEN count(*) OVER same = 2 THEN sum({name}) OVER same - {name}
                WHEN count(*) OVER same > 2 THEN median({name}) OVER same END"""


@relation(
    "stage_expectation",
    reads=["stage_vertices", "training_iterations"],
    empty_without=["stage_vertices"],
    columns=[
        *_KIND,
        ("baseline_ns", "DOUBLE", "ns", "what the task is expected to take"),
        ("spread_ns", "DOUBLE", "ns", "median deviation from its own median"),
        ("own_ns", "DOUBLE", "ns", "its median in iterations that were not slow"),
        ("peers_ns", "DOUBLE", "ns", "the same in the other pipelines; NULL: there are none"),
        ("basis", "VARCHAR", "", "its own past, or other pipelines"),
        ("baseline_own_ns", "DOUBLE", "ns", "the same of its member with the most time of its own"),
        ("tasks", "INTEGER", "tasks", "number of tasks that it is computed from"),
    ],
    source="VenusTrace 3.3; median and MAD, comparison of replicas: beyond the paper",
    params={
        "peers_below": Param("90 %", "of its own past: pipelines of a model differ by less"),
    },
)
def stage_expectation() -> str:
    """The robust expectation of each pipeline's stages, chunks and directions."""
    return f"""
        WITH calm AS (
            SELECT v.job, v.replica, v.stage, v.chunk, v.task, v.duration_ns, v.own_ns AS busy_ns
            FROM stage_vertices v JOIN training_iterations i USING (job, iteration)
            WHERE v.duration_ns IS NOT NULL AND v.whole AND NOT i.slow AND NOT i.warm_up),
        own AS (
            SELECT job, replica, stage, chunk, task, median(duration_ns) AS own_ns,
                median(busy_ns) AS busy_ns, count(*) AS tasks
            FROM calm GROUP BY ALL),
        spread AS (
            SELECT job, replica, stage, chunk, task,
                median(abs(duration_ns - own_ns)) AS spread_ns
            FROM calm JOIN own USING (job, replica, stage, chunk, task) GROUP BY ALL),
        beside AS (
            SELECT *, {_of_others("own_ns")} AS peers_ns, {_of_others("busy_ns")} AS peers_busy_ns
            FROM own JOIN spread USING (job, replica, stage, chunk, task)
            WINDOW same AS (PARTITION BY job, stage, chunk, task))
        SELECT *, CASE WHEN peers_ns < $peers_below * own_ns THEN '{PEERS}' ELSE '{ITS_PAST}' END
                AS basis,
            CASE WHEN peers_ns < $peers_below * own_ns THEN peers_ns ELSE own_ns END AS baseline_ns,
            CASE WHEN peers_busy_ns < $peers_below * busy_ns THEN peers_busy_ns ELSE busy_ns END
                AS baseline_own_ns
        FROM beside
    """


@relation(
    "stage_imbalance",
    reads=["stage_suspects", "stage_vertices", "stage_expectation"],
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
