"""How much a rank or a transfer delayed training over the whole recording.

A slowness that lasts a few seconds and comes back minutes later costs little each time and a lot in
total; each occurrence alone may be taken for chance.
"""

from __future__ import annotations

from oncall.evidence import relation


@relation(
    "stage_lags",
    reads=["slow_stages", "stage_costs", "training_iterations"],
    empty_without=["slow_stages"],
    columns=[
        ("job", "VARCHAR", "", "the job"),
        ("replica", "INTEGER", "", "the pipeline"),
        ("stage", "INTEGER", "", "pipeline stage"),
        ("rank", "INTEGER", "", "the rank; NULL: none of its group stands out"),
        ("node", "VARCHAR", "", "its host"),
        ("network", "BOOLEAN", "", "the transfers to the stage, not its computation"),
        ("iterations", "INTEGER", "", "iterations that were judged"),
        ("slow_iterations", "INTEGER", "", "of those, the iterations that it made longer"),
        ("episodes", "INTEGER", "", "how many runs of successive iterations it slowed"),
        ("first_ns", "BIGINT", "ns", "when it was first observed"),
        ("last_ns", "BIGINT", "ns", "when it was last observed"),
        ("lag_ns", "BIGINT", "ns", "by how much it made them longer, in total"),
        ("share_of_lost", "DOUBLE", "ratio", "of all that iterations of the job lost"),
        ("share_of_time", "DOUBLE", "ratio", "of the time of all iterations"),
    ],
    source="VenusTrace 2.2 (slow states that come and go), Algorithm 2",
    params={"fewest": "training_iterations.fewest"},
)
def stage_lags() -> str:
    """Each culprit with the lost time over all iterations."""
    return """
        WITH numbered AS (
            SELECT job, iteration, duration_ns,
                row_number() OVER (PARTITION BY job ORDER BY iteration) AS place
            FROM training_iterations WHERE NOT warm_up),
        total AS (
            SELECT job, count(*) AS iterations, sum(duration_ns) AS time_ns
            FROM numbered GROUP BY job),
        lost AS (
            SELECT job, sum(lost_ns) AS lost_ns FROM (
                SELECT job, iteration, max(actual_ns - normal_ns) AS lost_ns
                FROM stage_costs GROUP BY ALL) GROUP BY job),
        each AS (
            SELECT job, replica, stage, rank, network, iteration, any_value(node) AS node,
                max(saved_ns) AS saved_ns, min(started_ns) AS at_ns
            FROM slow_stages GROUP BY ALL),
        -- What it slows is longer than what it does not.
        beside AS (
            SELECT c.*, median(n.duration_ns) AS without_ns
            FROM (SELECT DISTINCT job, replica, stage, rank, network FROM each) c
            JOIN numbered n USING (job)
            WHERE NOT EXISTS (
                FROM each e WHERE e.job = c.job AND e.iteration = n.iteration
                    AND (e.replica, e.stage, e.rank, e.network)
                        IS NOT DISTINCT FROM (c.replica, c.stage, c.rank, c.network))
            GROUP BY ALL HAVING count(*) >= $fewest),
        placed AS (
            SELECT e.*, CASE WHEN b.without_ns IS NULL THEN e.saved_ns
                    ELSE least(e.saved_ns, greatest(n.duration_ns - b.without_ns, 0)) END
                    AS cost_ns,
                n.place - lag(n.place) OVER (
                PARTITION BY e.job, e.replica, e.stage, e.rank, e.network ORDER BY n.place) AS since
            FROM each e JOIN numbered n USING (job, iteration)
            LEFT JOIN beside b ON b.job = e.job AND (b.replica, b.stage, b.rank, b.network)
                IS NOT DISTINCT FROM (e.replica, e.stage, e.rank, e.network))
        SELECT p.job, p.replica, p.stage, p.rank, p.network, any_value(p.node) AS node,
            any_value(t.iterations) AS iterations, count(*) AS slow_iterations,
            count(*) FILTER (since IS NULL OR since > 1) AS episodes,
            min(at_ns) AS first_ns, max(at_ns) AS last_ns,
            sum(cost_ns)::BIGINT AS lag_ns,
            lag_ns / any_value(l.lost_ns) AS share_of_lost,
            lag_ns / any_value(t.time_ns) AS share_of_time
        FROM placed p JOIN total t USING (job) JOIN lost l USING (job)
        GROUP BY p.job, p.replica, p.stage, p.rank, p.network
    """
