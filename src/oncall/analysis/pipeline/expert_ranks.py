"""Ranks whose work changes from iteration to iteration with that of their whole tensor group.

Experts get as many tokens as the router sends them, which all members of a tensor-parallel group
share: a rank that is slow there together with its group, now this one and now that one, is no
machine.
"""

from __future__ import annotations

from oncall.evidence import Param, relation


@relation(
    "expert_ranks",
    reads=["stage_work", "training_iterations"],
    optional=["jobs", "job_configuration"],
    empty_without=["stage_work"],
    columns=[
        ("job", "VARCHAR", "", "the job"),
        ("rank", "INTEGER", "", "a rank with an expert-parallel group"),
        ("changes", "DOUBLE", "ratio", "the variation of its own time between iterations"),
        (
            "beside",
            "DOUBLE",
            "ratio",
            "the most that it ever was beyond the rest of its tensor group",
        ),
        ("cost_ns", "DOUBLE", "ns", "what the busiest group of its stage has beyond the median"),
    ],
    source="VenusTrace 5.5 (uneven load is no fault); beyond the paper",
    params={
        "changes": Param(
            "5 %", "of its baseline work: jitter of single calls averages out below this"
        ),
        "shared": Param(
            "50 %",
            "of the change in its group's work: a faulty machine differs this much from its group",
        ),
    },
)
def expert_ranks() -> str:
    """Ranks of jobs with experts whose own time changes as that of their tensor group does."""
    return """
        WITH experts AS (
            SELECT job FROM jobs WHERE ep > 1 UNION
            SELECT job FROM job_configuration WHERE ep > 1),
        own AS (
            SELECT job, rank, coalesce(replica, 0) AS replica, stage, iteration,
                sum(own_ns)::DOUBLE AS own_ns
            FROM stage_work SEMI JOIN experts USING (job)
            SEMI JOIN (FROM training_iterations WHERE NOT warm_up) USING (job, iteration)
            WHERE task IN ('forward', 'backward') AND whole AND own_ns > 0
            GROUP BY ALL),
        beside AS (
            SELECT *, avg(own_ns) OVER g AS group_ns, count(*) OVER g AS members,
                median(own_ns) OVER (PARTITION BY job, rank) AS baseline_ns
            FROM own WINDOW g AS (PARTITION BY job, replica, stage, iteration)),
        busiest AS (
            SELECT job, stage, median(beyond_ns) AS cost_ns FROM (
                SELECT job, stage, iteration, max(group_ns) - median(group_ns) AS beyond_ns
                FROM beside GROUP BY ALL) GROUP BY ALL)
        SELECT b.job, b.rank, median(abs(b.own_ns / baseline_ns - 1)) AS changes,
            max((b.own_ns - group_ns) / baseline_ns) AS beside, any_value(cost_ns) AS cost_ns
        FROM beside b JOIN busiest USING (job, stage)
        WHERE members > 1
        GROUP BY b.job, b.rank
        HAVING changes > $changes AND beside < $shared * max(abs(b.own_ns / baseline_ns - 1))
    """
