"""Which jobs are worth an analysis of their stages, by cheap facts alone.

Tasks of every rank and the trace graph of every iteration cost more than the rest of a diagnosis,
and of a sound job nobody asks. So a culprit's stage is looked for where a job with a pipeline has
one: the account of lost time names a rank or leaves a loss open, or the job rather stopped. A trace
that records tasks and no calls has no account: there the stages are the account.
"""

from __future__ import annotations

from oncall.evidence import relation


@relation(
    "stage_suspects",
    reads=["ranks|members|stage_tasks"],
    optional=[
        "operations",
        "stage_tasks",
        "jobs",
        "lost_time",
        "delay_causes",
        "hang_roots",
        "job_progress",
    ],
    columns=[
        ("job", "VARCHAR", "", "a job that may have a pipeline"),
        ("rank", "INTEGER", "", "a rank that something else found at fault; NULL: none is named"),
        ("stopped", "BOOLEAN", "", "the job rather stopped; else it lost time"),
    ],
    source="VenusTrace 3.3: detection comes before location",
    params={"rather_stopped": "unmet_calls.rather_stopped"},
)
def stage_suspects() -> str:
    """The ranks at fault in jobs with a pipeline, whose stages are to be found."""
    return """
        WITH pipelined AS (
            SELECT job FROM operations WHERE kind = 'p2p'
            UNION SELECT job FROM jobs WHERE pp > 1
            UNION SELECT job FROM stage_tasks GROUP BY job HAVING count(DISTINCT stage) > 1)
        SELECT DISTINCT job, rank, stopped FROM (
            SELECT job, rank, false AS stopped FROM delay_causes
            UNION ALL SELECT job, rank, true FROM hang_roots
            ANTI JOIN (FROM job_progress WHERE stopped < $rather_stopped) USING (job)
            UNION ALL SELECT job, NULL, false FROM lost_time WHERE cause = 'open'
            UNION ALL SELECT job, NULL, false FROM stage_tasks
            ANTI JOIN (SELECT job FROM operations WHERE kind = 'coll') USING (job))
        SEMI JOIN pipelined USING (job)
    """
