"""What slow senders and slow hosts cost the job, seen from traffic alone (Pulse 6.2, as a cost).

A rate below the peers' or a long computation matters as far as it takes time. The noise is what
ranks that nobody suspects lose to one another in the same recording.
"""

from __future__ import annotations

from oncall.evidence import Param, relation


@relation(
    "traffic_delays",
    reads=["rank_traffic"],
    optional=["send_turns", "custom_rates", "compute_times", "members"],
    empty_without=["rank_traffic"],
    columns=[
        ("job", "VARCHAR", "", "the job"),
        ("what", "VARCHAR", "", "send or compute"),
        ("rank", "INTEGER", "", "global rank"),
        ("node", "VARCHAR", "", "its host"),
        ("lost_share", "DOUBLE", "ratio", "of the recorded time, beyond the peers' median"),
        ("lost_low", "DOUBLE", "ratio", "the same, less the noise among all ranks"),
        ("lost_high", "DOUBLE", "ratio", "the same, and the noise"),
        ("lost_ns", "BIGINT", "ns", "in all"),
    ],
    source="Pulse 6.2, 7.2.4; VERDICTS 3",
    params={
        "least_compute": "computing_ranks.least_compute",
        "beyond": Param(4.5, "times the median deviation of the others: 3 sigma of a normal"),
    },
)
def traffic_delays() -> str:
    """What each rank lost by sending and computing longer than its peers."""
    return """
        WITH spans AS (
            SELECT job, nullif(max(ended_ns) - min(started_ns), 0) AS span_ns FROM rank_traffic
            GROUP BY job),
        each AS (
            SELECT job, 'send' AS what, rank, sum(busy_ns * (1 - share)) AS lost_ns
            FROM send_turns WHERE NOT coalesce(undercount, false) GROUP BY ALL
            UNION ALL
            SELECT t.job, 'send', t.rank, sum(t.active_ns) * (1 - any_value(c.share))
            FROM rank_traffic t JOIN custom_rates c USING (job, comm, rank)
            WHERE t.is_custom AND t.active_ns > 0 GROUP BY t.job, t.comm, t.rank
            UNION ALL
            SELECT job, 'compute', rank, sum(own_ns * (1 - 1 / times))
            FROM compute_times WHERE own_ns >= $least_compute AND times > 0 GROUP BY job, rank),
        summed AS (
            SELECT e.job, what, rank, sum(lost_ns) AS lost_ns, sum(lost_ns) / span_ns AS lost_share
            FROM each e JOIN spans USING (job) GROUP BY e.job, what, rank, span_ns),
        noise AS (
            SELECT *, coalesce($beyond * median(abs(lost_share)) OVER (PARTITION BY job, what
                ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING EXCLUDE CURRENT ROW),
                lost_share) AS noise
            FROM summed),
        placed AS (SELECT DISTINCT ON (job, rank) job, rank, node FROM members ORDER BY ALL)
        SELECT s.job, what, rank, node, lost_share, lost_share - noise AS lost_low,
            lost_share + noise AS lost_high, lost_ns::BIGINT AS lost_ns
        FROM noise s LEFT JOIN placed USING (job, rank)
    """
