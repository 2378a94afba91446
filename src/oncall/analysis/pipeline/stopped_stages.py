"""The pipeline stage, and the rank, in which a job stopped (VenusTrace Algorithm 1).

Without a pipeline there is no stage to blame. The labelled task that does not end says most; where
its label contradicts the rank's communicators, or where calls alone are recorded, the rank that the
others wait for is placed by its communicators.
"""

from __future__ import annotations

from oncall.evidence import Param, relation


@relation(
    "pipelined_jobs",
    reads=["stage_work"],
    empty_without=["stage_work"],
    columns=[("job", "VARCHAR", "", "a job with a pipeline of several stages")],
    source="VenusTrace 3.3",
)
def pipelined_jobs() -> str:
    """Jobs with pipeline parallelism."""
    return "SELECT job FROM stage_work GROUP BY job HAVING count(DISTINCT stage) > 1"


@relation(
    "stopped_stages",
    reads=["incomplete_stages", "hang_stages", "stage_layout", "pipelined_jobs"],
    optional=["job_progress", "hang_roots"],
    empty_without=["incomplete_stages|hang_stages"],
    columns=[
        ("job", "VARCHAR", "", "the job"),
        ("iteration", "BIGINT", "", "the iteration that does not complete; NULL: unknown"),
        ("replica", "INTEGER", "", "the pipeline"),
        ("stage", "INTEGER", "", "pipeline stage"),
        ("chunk", "INTEGER", "", "model chunk"),
        ("micro_batch", "INTEGER", "", "micro-batch of the task"),
        ("task", "VARCHAR", "", "the first task that has not ended; NULL: unknown"),
        ("rank", "INTEGER", "", "the rank that others wait for, or that sends; NULL: unknown"),
        ("node", "VARCHAR", "", "its host"),
        ("peer", "INTEGER", "", "the other end of a transfer that hangs"),
        ("waits_in", "VARCHAR", "", "Recv from a stage, Send to a stage, its own computation"),
        ("since_ns", "BIGINT", "ns", "since when, common time"),
        ("silent_ns", "BIGINT", "ns", "for how long no task of the job has begun or ended"),
        ("went_on_ns", "BIGINT", "ns", "calls alone: for how long others went on without it"),
        ("missing_calls", "INTEGER", "calls", "calls that its rank never made"),
        ("network", "BOOLEAN", "", "both ends of the transfer are in it"),
    ],
    source="VenusTrace 3.3, Algorithm 1",
    params={
        "rather_stopped": "unmet_calls.rather_stopped",
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
        -- Tasks labelled on another stage than their rank's communicators show are no place.
        WITH found AS (
            SELECT i.*, l.stage AS place, coalesce(l.stage = i.stage, true) AS sure
            FROM incomplete_stages i LEFT JOIN stage_layout l USING (job, rank) WHERE i.first),
        labelled AS (SELECT * EXCLUDE (place, sure) FROM found WHERE sure),
        placed AS (
            SELECT * FROM hang_stages
            UNION ALL BY NAME
            SELECT job, replica, place AS stage, rank, node, since_ns, silent_ns, baseline_ns,
                missing_calls, network
            FROM found ANTI JOIN hang_stages USING (job) WHERE NOT sure),
        -- Of calls alone tasks that end are not known: there the rank is that others' calls wait
        -- for.
        calls_alone AS (
            SELECT h.*, i.iteration, i.chunk, i.micro_batch, i.task,
                coalesce(i.missing_calls, 1) AS missing_calls
            FROM hang_stages h LEFT JOIN (FROM incomplete_stages WHERE NOT network) i
                USING (job, replica, stage)
            WHERE h.went_on_ns IS NOT NULL),
        stopped AS (
            FROM calls_alone
            UNION ALL BY NAME
            FROM labelled ANTI JOIN calls_alone USING (job)
            UNION ALL BY NAME
            FROM placed ANTI JOIN labelled USING (job) ANTI JOIN calls_alone USING (job))
        -- Where calls alone are recorded nothing records when the log was read, but what waited
        -- longer than ever.
        SELECT s.* FROM stopped s SEMI JOIN pipelined_jobs USING (job)
        -- Where chains of waiting end at ranks, those of other stages are their victims.
        ANTI JOIN (FROM hang_roots WHERE rank IS NOT NULL) r
            ON r.job = s.job AND NOT EXISTS (
                FROM hang_roots o WHERE o.job = s.job AND o.rank = s.rank)
        -- A job that rather moves is not stopped in a stage either.
        ANTI JOIN (FROM job_progress WHERE stopped < $rather_stopped) USING (job)
        WHERE went_on_ns IS NOT NULL
            OR silent_ns >= $hang_after
                AND silent_ns > $iterations_silent * coalesce(baseline_ns, 0)
    """
