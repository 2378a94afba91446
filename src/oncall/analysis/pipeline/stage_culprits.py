"""Which ranks, stages or transfers are at fault for slow iterations.

A slowness that happened once must stand out by itself; a lasting one counts by what it costs. A
rank that only waits within its own calls, gets uneven tokens, or is one of many that are slow in
turn is not a machine at fault.
"""

from __future__ import annotations

from oncall.analysis.pipeline.slow_stages import slow_stages
from oncall.evidence import Param, relation


def _worst() -> str:
    """Each culprit with the task that cost most."""
    return """
        costs AS (
            SELECT l.*, CASE WHEN l.rank IS NOT NULL THEN 'rank ' || l.rank
                ELSE 'stage ' || l.stage || ' of pipeline ' || l.replica END AS suspect
            FROM stage_lags l),
        worst AS (
            SELECT c.suspect, s.*,
                s.iteration_ns / nullif(s.baseline_iteration_ns, 0) - 1 AS longer,
                -- Of the tasks whose own time is recorded: recorders lose some.
                sum(s.own_excess_ns) OVER same >= $own_part
                    * sum(s.excess_ns) FILTER (s.own_excess_ns IS NOT NULL) OVER same AS own_work,
                c.iterations, c.slow_iterations, c.episodes, c.lag_ns, c.share_of_lost,
                c.share_of_time, c.first_ns AS at_ns
            FROM slow_stages s JOIN costs c
                ON c.job = s.job AND c.replica = s.replica AND c.stage = s.stage
                AND c.network = s.network AND c.rank IS NOT DISTINCT FROM s.rank
            WINDOW same AS (PARTITION BY c.job, c.suspect)
            QUALIFY row_number() OVER (
                PARTITION BY c.job, c.suspect ORDER BY s.saved_ns DESC, s.excess_ns DESC) = 1)
    """


def _certain() -> str:
    """Those whose slowness is no chance, no wait and no imbalance."""
    return """
        found AS (
            SELECT * FROM worst SEMI JOIN pipelined_jobs USING (job)
            WHERE explained >= $explains
                -- In the iteration that does not end all wait for what stopped it.
                AND NOT EXISTS (
                    FROM stopped_stages t WHERE t.job = worst.job
                        AND worst.iteration >= coalesce(t.iteration, (
                            SELECT max(i.iteration) FROM training_iterations i
                            WHERE i.job = t.job)))
                -- What happened once must stand out by itself (VenusTrace 3.3, beta).
                AND (saved_ns >= $slow_iteration * baseline_iteration_ns
                        AND (longer >= $slow_iteration OR share_of_time >= $cost_share)
                        AND (network OR decided <> 'spread')
                    OR share_of_time >= $cost_share AND slow_iterations >= $repeat)
                -- A group none of whose ranks has more time of its own waits within its own calls:
                -- there the last to enter is known by the rounds.
                AND (network OR coalesce(because, 'alone') <> 'alone' OR coalesce(own_work, true))
                -- Hosts that run ahead of their devices show no transfer.
                AND NOT (network AND EXISTS (
                    FROM device_lags d WHERE d.job = worst.job AND d.hidden))
                -- What experts get changes: there only a rank with more time of its own than its
                -- tensor group is slow itself.
                AND (network OR NOT EXISTS (
                    FROM expert_ranks e
                    WHERE e.job = worst.job AND e.rank = coalesce(worst.rank, e.rank)))),
        in_turn AS (
            SELECT job FROM found
            GROUP BY job HAVING count(*) >= $turns AND max(share_of_lost) < $turn_share)
    """


@relation(
    "stage_culprits",
    reads=[
        "slow_stages",
        "stage_lags",
        "stopped_stages",
        "training_iterations",
        "expert_ranks",
        "pipelined_jobs",
    ],
    optional=["device_lags"],
    empty_without=["slow_stages", "pipelined_jobs"],
    columns=[
        *((one.name, one.type, one.unit, one.meaning) for one in slow_stages.columns),
        ("suspect", "VARCHAR", "", "the rank, or its stage, as a sentence names it"),
        ("longer", "DOUBLE", "ratio", "how much longer the iteration took than the baseline"),
        ("slow_iterations", "INTEGER", "", "iterations that it made longer"),
        ("episodes", "INTEGER", "", "how many runs of successive iterations it slowed"),
        ("lag_ns", "BIGINT", "ns", "by how much it made them longer, in total"),
        ("share_of_lost", "DOUBLE", "ratio", "of all that iterations of the job lost"),
        ("share_of_time", "DOUBLE", "ratio", "of the time of all iterations"),
        ("at_ns", "BIGINT", "ns", "when it was first observed"),
        ("why", "VARCHAR", "", "why this one of its group"),
        ("brief", "BOOLEAN", "", "a pause: neither often nor long enough for a slow machine"),
    ],
    source="VenusTrace 3.3, Algorithm 2; OSDI '25: the share of the slow-down explained",
    params={
        "slow_iteration": Param(
            "10 %",
            "beyond the baseline: with less, small jitter is called slow (VenusTrace 5.3, "
            "Fig. 14: below 90 % of the performance)",
        ),
        "cost_share": Param(
            "1 %",
            "... or what less slow iterations cost of the recording's time together: less wakes "
            "nobody",
        ),
        "explains": Param(
            "40 %", "of what the iteration lost: two culprits at once explain about half each"
        ),
        "own_part": Param(
            "50 %",
            "of what a task took longer: who spent less of that on computing of its own waited for "
            "somebody",
        ),
        "repeat": Param(
            2,
            "what is slow in one iteration alone does not last, and one iteration shows no "
            "configuration",
        ),
        "pause_share": Param(
            "5 %", "of the recording's time: a pause that costs less is no slow machine"
        ),
        "lasts": Param(3, "slow iterations: what is slow in fewer may be a pause"),
        "turns": Param(4, "as many culprits of like cost, one after the other, are no machine"),
        "turn_share": Param(
            "50 %", "of all time lost: a machine at fault causes more than the others together"
        ),
    },
)
def stage_culprits() -> str:
    """Each culprit with its worst task, and the duration of that task's iteration against the
    baseline."""
    stages = (_worst(), _certain())
    return f"""
        WITH {",".join(stages)}
        SELECT *, CASE
            WHEN members IS NULL OR members = 1
                THEN 'its stage has no other rank in this pipeline'
            WHEN because IS NULL THEN 'no rank of its group stands out'
            WHEN because = 'own time' THEN 'of its ' || members
                || ' ranks it is the one with more time of its own, last in ' || last_calls
                || ' of ' || calls || ' calls'
            ELSE 'of its ' || members || ' ranks it was the last to enter ' || last_calls
                || ' of ' || calls || ' calls' END AS why,
            -- Where several paused, none of them stands out.
            slow_iterations < $lasts AND (coalesce(share_of_time, 0) < $pause_share
                OR count(*) FILTER (slow_iterations < $lasts) OVER (PARTITION BY job) > 1) AS brief
        FROM found ANTI JOIN in_turn USING (job)
        -- What happened once costs no more than its iteration is longer than others; what costs
        -- nothing is no news.
        WHERE lag_ns > 0 AND (slow_iterations > 1 OR longer >= $slow_iteration OR (
            SELECT count(*) <= $repeat FROM training_iterations i
            WHERE i.job = found.job AND i.whole AND NOT i.warm_up))
    """
