"""Jobs whose iterations were replayed, and what each cause of delay costs them."""

from __future__ import annotations

from oncall.evidence import relation


@relation(
    "replayed_jobs",
    reads=["lost_time"],
    columns=[
        ("job", "VARCHAR", "", "a job whose iterations can be replayed"),
        ("iterations", "INTEGER", "", "that the account covers"),
        ("iteration_ns", "BIGINT", "ns", "median length of one"),
        (
            "replay_error",
            "DOUBLE",
            "ratio",
            "median deviation of replayed from measured lengths; NULL: not replayed",
        ),
        ("timed", "BOOLEAN", "", "the durations of operations are recorded"),
        ("whole", "BOOLEAN", "", "what the account does not name costs nothing"),
    ],
    source="LOST_TIME section 4: the replay with nothing removed against what was measured",
)
def replayed_jobs() -> str:
    """Jobs of which it is known what made iterations longer than they had to be."""
    return """
        SELECT job, iterations, iteration_ns, replay_error, timed, whole FROM lost_time
        WHERE cause = 'account'
    """


@relation(
    "delay_causes",
    reads=["lost_time", "replayed_jobs", "operations"],
    optional=["members", "ranks"],
    columns=[
        ("job", "VARCHAR", "", "the job"),
        ("suspect", "VARCHAR", "", "who has the cost, as a sentence names it"),
        ("cause", "VARCHAR", "", "own: work of the rank; transfer: of what it sends and receives"),
        ("rank", "INTEGER", "", "global rank; several if the evidence cannot tell them apart"),
        ("node", "VARCHAR", "", "its host"),
        ("gpu", "INTEGER", "", "its GPU"),
        ("nic", "VARCHAR", "", "its RDMA device"),
        ("tied", "INTEGER", "ranks", "how many share the cost"),
        ("share", "DOUBLE", "ratio", "iterations concerned would be so much shorter without it"),
        ("low", "DOUBLE", "ratio", "5 % quantile of the share"),
        ("iterations", "INTEGER", "", "concerned"),
        ("of_iterations", "INTEGER", "", "in the account"),
        ("gain_ns", "BIGINT", "ns", "lost in all of them"),
        ("at_ns", "BIGINT", "ns", "begin of the first one"),
        ("replay_error", "DOUBLE", "ratio", "of the account"),
        ("timed", "BOOLEAN", "", "the durations of operations are recorded"),
    ],
    source="LOST_TIME section 8; CCL-D 4.2.2 for rates",
    params={"rate_below": "slow_round_links.rate_below"},
)
def delay_causes() -> str:
    """What iterations would gain without each cause, by the ranks that have it. Of ranks that share
    all slow transfers, rates show which one sends and receives most slowly."""
    return """
        WITH placed AS (
            SELECT DISTINCT ON (job, rank) job, rank, node, gpu, nic FROM members ORDER BY ALL),
        tied AS (FROM lost_time WHERE cause = 'transfer' AND tied > 1),
        common AS (  -- communicators that all of them are in
            SELECT t.job, t.entry, m.comm FROM tied t JOIN members m USING (job, rank)
            GROUP BY ALL HAVING count(DISTINCT t.rank) = any_value(t.tied)),
        rates AS (
            SELECT t.job, t.entry, t.rank, median(least(o.send_rate, o.recv_rate)) AS rate
            FROM tied t JOIN common c USING (job, entry)
            JOIN operations o ON o.job = t.job AND o.comm = c.comm AND o.rank = t.rank
                AND o.entered_ns >= t.at_ns
            WHERE o.kind = 'coll' AND o.done GROUP BY ALL),
        slowest AS (
            SELECT job, entry, rank FROM rates WINDOW e AS (PARTITION BY job, entry)
            QUALIFY rate = min(rate) OVER e
                AND rate < $rate_below * (sum(rate) OVER e - rate) / (count(rate) OVER e - 1)),
        causes AS (
            SELECT l.* REPLACE (CASE WHEN s.rank IS NULL THEN l.tied ELSE 1 END AS tied)
            FROM lost_time l LEFT JOIN slowest s USING (job, entry)
            WHERE s.rank IS NULL OR s.rank = l.rank)
        SELECT l.job,
            CASE WHEN l.tied = 1 THEN 'rank ' || l.rank
                WHEN l.tied > 2 AND max(l.rank) OVER e - min(l.rank) OVER e = l.tied - 1
                THEN 'ranks ' || min(l.rank) OVER e || '-' || max(l.rank) OVER e
                ELSE 'ranks ' || list_aggregate(list_sort(list(l.rank) OVER e), 'string_agg', ', ')
                END AS suspect,
            l.cause, l.rank, p.node, p.gpu, p.nic, l.tied, l.share, l.low, l.iterations,
            l.of_iterations, l.gain_ns, l.at_ns, l.replay_error, l.timed
        FROM causes l JOIN replayed_jobs USING (job) LEFT JOIN placed p USING (job, rank)
        WHERE l.cause IN ('own', 'transfer')
        WINDOW e AS (PARTITION BY l.job, l.entry)
    """
