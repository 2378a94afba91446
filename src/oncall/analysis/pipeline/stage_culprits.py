"""Which ranks, stages or transfers are at fault for slow iterations, and what they cost.

A slowness that happened once must stand out by itself; a lasting one counts by what it costs. Where
the account of lost time names a rank, its stage and task are added, and nobody else is accused.
"""

from __future__ import annotations

from oncall.analysis.pipeline.slow_stages import slow_stages
from oncall.evidence import Param, relation

# What is one culprit, over all its tasks.
_ONE = "job, replica, stage, rank, network"


def _costs() -> str:
    """What each culprit cost, over all iterations that it made longer."""
    return f"""
        numbered AS (
            SELECT *, row_number() OVER (PARTITION BY job ORDER BY iteration) AS place
            FROM training_iterations WHERE NOT warm_up),
        total AS (SELECT job, sum(duration_ns) AS time_ns FROM numbered GROUP BY job),
        each AS (
            SELECT {_ONE}, place, max(saved_ns) AS cost_ns, min(s.started_ns) AS at_ns,
                place - lag(place) OVER (PARTITION BY {_ONE} ORDER BY place) AS since
            FROM slow_stages s JOIN numbered USING (job, iteration) GROUP BY {_ONE}, place),
        costs AS (
            SELECT {_ONE}, count(*) AS slow_iterations, min(at_ns) AS at_ns,
                count(*) FILTER (since IS NULL OR since > 1) AS episodes,
                sum(cost_ns)::BIGINT AS lag_ns, sum(cost_ns) / any_value(time_ns) AS share_of_time
            FROM each JOIN total USING (job) GROUP BY {_ONE})
    """


@relation(
    "stage_culprits",
    reads=["stage_suspects", "slow_stages", "training_iterations", "stage_work"],
    optional=["stopped_stages"],
    empty_without=["stage_suspects", "slow_stages"],
    columns=[
        *((one.name, one.type, one.unit, one.meaning) for one in slow_stages.columns),
        ("suspect", "VARCHAR", "", "the rank, or its stage, as a sentence names it"),
        ("slow_iterations", "INTEGER", "", "iterations that it made longer"),
        ("episodes", "INTEGER", "", "how many runs of successive iterations it slowed"),
        ("lag_ns", "BIGINT", "ns", "by how much it made them longer, in total"),
        ("share_of_time", "DOUBLE", "ratio", "of the time of all iterations"),
        ("at_ns", "BIGINT", "ns", "when it was first observed"),
    ],
    source="VenusTrace 3.3, Algorithm 2; OSDI '25: the share of the slow-down explained",
    params={
        "slow_iteration": Param(
            "10 %",
            "of the baseline iteration: less is small jitter (VenusTrace 5.3, Fig. 14)",
        ),
        "cost_share": Param("1 %", "of the recording's time: less wakes nobody"),
        "explains": Param(
            "40 %", "of what the iteration lost: two culprits at once explain about half each"
        ),
        "lasts": Param(3, "slow iterations: what is slow in fewer may be a pause"),
        "pause_share": Param(
            "5 %", "of the recording's time: a pause that costs less is no slow machine"
        ),
        "turns": Param(4, "as many culprits, one after the other, are no machine"),
    },
)
def stage_culprits() -> str:
    """Each culprit with its worst task."""
    return f"""
        WITH {_costs()},
        seats AS (SELECT DISTINCT job, stage, rank FROM stage_work WHERE stage IS NOT NULL),
        pipelined AS (SELECT job FROM seats GROUP BY job HAVING count(DISTINCT stage) > 1),
        named AS (
            SELECT s.job, s.rank, p.stage FROM stage_suspects s LEFT JOIN seats p USING (job, rank)
            WHERE NOT stopped),
        found AS (
            SELECT s.*, slow_iterations, episodes, lag_ns, share_of_time, c.at_ns,
                CASE WHEN s.rank IS NOT NULL THEN 'rank ' || s.rank
                    ELSE 'stage ' || s.stage || ' of pipeline ' || s.replica END AS suspect
            FROM slow_stages s JOIN costs c
                ON c.job = s.job AND c.replica = s.replica AND c.stage = s.stage
                AND c.network = s.network AND c.rank IS NOT DISTINCT FROM s.rank
            WHERE s.explained >= $explains AND share_of_time >= $cost_share
                AND (slow_iterations >= $lasts OR share_of_time >= $pause_share
                    AND s.saved_ns >= $slow_iteration * s.baseline_iteration_ns)
                AND EXISTS (FROM named n WHERE n.job = s.job AND (n.rank IS NULL
                    OR n.rank = s.rank OR s.rank IS NULL AND n.stage = s.stage))
            QUALIFY row_number() OVER (
                PARTITION BY s.job, suspect ORDER BY s.saved_ns DESC, s.excess_ns DESC) = 1)
        SELECT * FROM found SEMI JOIN pipelined USING (job)
        -- In a job that stopped all wait for what stopped it.
        ANTI JOIN stopped_stages USING (job)
        QUALIFY count(*) OVER (PARTITION BY job) < $turns
    """
