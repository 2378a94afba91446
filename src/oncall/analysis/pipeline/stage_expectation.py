"""What a forward or backward of a stage should take.

The median over the iterations that were not slow, which one slow iteration cannot move as it moves
the paper's value that follows the last ones. A stage that was slow from the beginning has no past
to compare with: then the same stage of the other pipelines is the baseline.

A stage with more work than the others of its pipeline in every iteration is no fault.

A longer sequence makes a micro-batch slow in all stages, and nothing else slow. A first iteration,
a background checkpoint or a clock limit of the whole cluster makes an iteration slow in all stages
of all pipelines. One slow machine does neither. So of several ratios the lower median counts, which
one machine cannot raise.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from oncall.analysis.common.quantiles import median_of_alike
from oncall.evidence import Param, relation

Integers = NDArray[np.int64]
Times = NDArray[np.float64]


def work_ratio(
    ratio: Times,
    iteration: Integers,
    pipeline: Integers,
    stage: Integers,
    batch: Integers,
    longer: float,
) -> Times:
    """By how much each task (n,) may take longer than the baseline, 1 where it is not `longer`.

    `ratio` is its duration over the baseline, NaN where unknown; `iteration`, `pipeline` (of that
    iteration) and `batch` (micro-batch and direction, of that pipeline) number what it belongs to.
    """
    stages = int(stage.max(initial=0)) + 1
    by_batch, _, batch_of = lower_middle(ratio, batch)
    # The middle of a stage first, so that stages of many tasks weigh no more than others.
    by_stage, first, stage_of = lower_middle(ratio, pipeline * stages + stage, least=1)
    by_iteration, _, iteration_of = lower_middle(by_stage, iteration[first])
    work = np.fmax(by_batch[batch_of], by_iteration[iteration_of[stage_of]])
    return np.where(work > longer, work, 1.0)


def lower_middle(values: Times, key: Integers, least: int = 2) -> tuple[Times, Integers, Integers]:
    """The lower median of the known values of each key, in order of keys, NaN for fewer than
    `least`; beside it an index of each key's first row and the place (n,) of each row's key."""
    _, first, place = np.unique(key, return_index=True, return_inverse=True)
    middle, known = median_of_alike(key, values)
    found = np.where(known[first] >= least, middle[first], np.nan)
    return found, first.astype(np.int64), place.astype(np.int64)


ITS_PAST, PEERS = "its own past", "other pipelines"


@relation(
    "stage_expectation",
    reads=["stage_vertices", "training_iterations"],
    empty_without=["stage_vertices"],
    columns=[
        "job replica stage chunk task",
        ("baseline_ns", "DOUBLE", "ns", "what the task is expected to take"),
        ("spread_ns", "DOUBLE", "ns", "median deviation from its own median"),
        ("own_ns", "DOUBLE", "ns", "its median in iterations that were not slow"),
        ("basis", "VARCHAR", "", "its own past, or other pipelines"),
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
            SELECT v.job, v.replica, v.stage, v.chunk, v.task, v.duration_ns
            FROM stage_vertices v JOIN training_iterations i USING (job, iteration)
            WHERE v.duration_ns IS NOT NULL AND v.whole AND NOT i.slow AND NOT i.warm_up),
        own AS (
            SELECT job, replica, stage, chunk, task, median(duration_ns) AS own_ns,
                count(*) AS tasks
            FROM calm GROUP BY ALL),
        spread AS (
            SELECT job, replica, stage, chunk, task,
                median(abs(duration_ns - own_ns)) AS spread_ns
            FROM calm JOIN own USING (job, replica, stage, chunk, task) GROUP BY ALL),
        beside AS (
            SELECT *, CASE WHEN count(*) OVER same = 2 THEN sum(own_ns) OVER same - own_ns
                WHEN count(*) OVER same > 2 THEN median(own_ns) OVER same END AS peers_ns
            FROM own JOIN spread USING (job, replica, stage, chunk, task)
            WINDOW same AS (PARTITION BY job, stage, chunk, task))
        SELECT *, CASE WHEN peers_ns < $peers_below * own_ns THEN '{PEERS}' ELSE '{ITS_PAST}' END
                AS basis,
            CASE WHEN peers_ns < $peers_below * own_ns THEN peers_ns ELSE own_ns END AS baseline_ns
        FROM beside
    """


@relation(
    "stage_imbalance",
    reads=["stage_suspects", "stage_vertices", "stage_expectation"],
    empty_without=["stage_suspects", "stage_expectation"],
    columns=[
        "job",
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
