"""The pipeline stage, and the rank, in which a job stopped (VenusTrace Algorithm 1).

Without a pipeline there is no stage to blame. The labelled task that does not end says which stage,
micro-batch and transfer it is; its calls show that the job stopped at all, and which rank the
others wait for.
"""

from __future__ import annotations

from oncall.evidence import Param, relation


@relation(
    "stopped_stages",
    reads=["stage_suspects", "incomplete_stages", "stage_work"],
    optional=["task_layout"],
    empty_without=["stage_suspects", "incomplete_stages"],
    columns=[
        ("job", "VARCHAR", "", "the job"),
        ("iteration", "BIGINT", "", "the iteration that does not complete"),
        ("replica", "INTEGER", "", "the pipeline"),
        ("stage", "INTEGER", "", "pipeline stage"),
        ("chunk", "INTEGER", "", "model chunk"),
        ("micro_batch", "INTEGER", "", "micro-batch of the task"),
        ("task", "VARCHAR", "", "the first task that has not ended"),
        ("rank", "INTEGER", "", "the rank that others wait for, or that sends; NULL: unknown"),
        ("node", "VARCHAR", "", "its host"),
        ("peer", "INTEGER", "", "the other end of a transfer that hangs"),
        ("waits_in", "VARCHAR", "", "Recv from a stage, Send to a stage, its own computation"),
        ("since_ns", "BIGINT", "ns", "since when, common time"),
        ("silent_ns", "BIGINT", "ns", "for how long no task of the job has begun or ended"),
        ("missing_calls", "INTEGER", "calls", "calls that its rank never made"),
        ("network", "BOOLEAN", "", "both ends of the transfer are in it"),
    ],
    source="VenusTrace 3.3, Algorithm 1",
    params={
        "iterations_silent": Param(
            2,
            "times the baseline of an iteration without any task that begins or ends: no slowness "
            "(VenusTrace 3.3, n)",
        ),
        "hang_after": Param(
            "5 min",
            "... and as long in any case: evaluations and checkpoints pause small jobs longer than "
            "two iterations",
        ),
    },
)
def stopped_stages() -> str:
    """Where each pipelined job stopped that has been silent for too long."""
    return """
        WITH pipelined AS (
            SELECT job FROM stage_work GROUP BY job HAVING count(DISTINCT stage) > 1)
        SELECT s.* FROM incomplete_stages s SEMI JOIN pipelined USING (job)
        -- Tasks labelled on another stage than their rank's communicators show are no place.
        LEFT JOIN task_layout l USING (job, rank)
        WHERE s.first AND coalesce(l.stage = s.stage, true)
            -- Where chains of waiting end at ranks, those of other stages are their victims.
            AND EXISTS (FROM stage_suspects c WHERE c.job = s.job
                AND coalesce(c.rank = s.rank, true))
            AND silent_ns >= $hang_after
            AND silent_ns > $iterations_silent * coalesce(baseline_ns, 0)
    """
