"""Which hosts compute longer than others with the same work, seen from traffic (Pulse 6.2, 7.2.4).

Ranks of one host wait for each other in tensor parallelism and are late alike (Pulse D.4), so the
host is compared; within it, what its ranks do together shows whom they wait for.
"""

from __future__ import annotations

from oncall.evidence import Param, relation


@relation(
    "computing_ranks",
    reads=["compute_times"],
    empty_without=["compute_times"],
    columns=[
        ("job", "VARCHAR", "", "the job"),
        ("rank", "INTEGER", "", "global rank"),
        ("node", "VARCHAR", "", "its host"),
        ("times", "DOUBLE", "ratio", "median of its own time, against ranks with the same work"),
        ("own_ns", "DOUBLE", "ns", "median of its own time"),
        ("least_times", "DOUBLE", "ratio", "median, if clocks are off by all of their error"),
        ("at_ns", "BIGINT", "ns", "end of the first spell, on the console's clock"),
        ("spells", "BIGINT", "", "spells of computing that were compared, the newest ones"),
    ],
    source="Pulse 6.2, 7.2.4",
    params={
        "last": "rank_rates.last",
        "repeat": "slow_collective_senders.repeat",
        "past": "slow_alike.past",
        "least_compute": Param(
            "500 us", "shorter spells between operations are launches and synchronisation"
        ),
        "beyond_clocks": Param(
            4,
            "times what the clocks of two hosts may be apart: of shorter spells they would tell "
            "most",
        ),
    },
)
def computing_ranks() -> str:
    """How long each rank computes between operations, against ranks with the same work."""
    return """
        WITH newest AS (
            SELECT * FROM compute_times
            WHERE own_ns >= greatest($least_compute, $beyond_clocks * error_ns)
                AND times IS NOT NULL
            QUALIFY row_number() OVER (PARTITION BY job, rank ORDER BY started_ns DESC)
                <= $past * $last)
        SELECT job, rank, any_value(node) AS node, median(times) AS times,
            median(own_ns) AS own_ns,
            -- Clocks that are off are off all the time.
            median(least_times) AS least_times, min(started_ns) AS at_ns, count(*) AS spells
        FROM newest GROUP BY job, rank HAVING count(*) >= $repeat
    """


@relation(
    "slow_computing_hosts",
    reads=["computing_ranks", "members"],
    optional=["rounds"],
    empty_without=["computing_ranks"],
    columns=[
        ("job", "VARCHAR", "", "the job"),
        ("node", "VARCHAR", "", "host"),
        ("rank", "INTEGER", "", "the rank that the others of the host wait for; NULL: unknown"),
        ("gpu", "INTEGER", "", "its GPU"),
        ("times", "DOUBLE", "ratio", "median of its ranks' own time, against the same work"),
        ("own_ns", "DOUBLE", "ns", "median of its ranks' own time"),
        ("at_ns", "BIGINT", "ns", "since when, on the console's clock"),
    ],
    source="Pulse 7.2.4, D.4",
    params={
        "mostly": "slow_collective_senders.mostly",
        "compute_above": Param(
            1.1, "times what ranks with the same work take: half a GPU's power makes it 1.4"
        ),
    },
)
def slow_computing_hosts() -> str:
    """Hosts that compute longer than others with the same work."""
    return """
        WITH slow AS (
            SELECT job, node, median(times) AS times, median(own_ns) AS own_ns,
                min(at_ns) AS at_ns, CASE WHEN count(*) = 1 THEN min(rank) END AS only_rank
            FROM computing_ranks WHERE node IS NOT NULL GROUP BY ALL
            HAVING median(least_times) > $compute_above),
        -- Within the host the others wait for the last to enter what they do together.
        last_inside AS (
            SELECT r.job, m.node, m.rank, m.gpu
            FROM rounds r
            JOIN members m ON m.job = r.job AND m.comm = r.comm AND m.rank = r.last_rank
            JOIN slow h ON h.job = m.job AND h.node = m.node
            WHERE r.basis = 'duration' AND (
                SELECT count(DISTINCT o.node) FROM members o
                WHERE o.job = r.job AND o.comm = r.comm) = 1
            GROUP BY r.job, m.node, m.rank, m.gpu
            QUALIFY count(*) >= $mostly * sum(count(*)) OVER (PARTITION BY r.job, m.node))
        SELECT s.*, coalesce(l.rank, s.only_rank) AS rank, l.gpu
        FROM slow s LEFT JOIN last_inside l USING (job, node)
    """


@relation(
    "slow_alike",
    reads=["send_turns", "compute_times"],
    optional=["cpu_bound_hosts", "slow_computing_hosts", "slow_sends"],
    empty_without=["send_turns|compute_times"],
    columns=[
        ("job", "VARCHAR", "", "the job"),
        ("what", "VARCHAR", "", "communication or computation"),
        ("times", "DOUBLE", "ratio", "what all take now, against their own past"),
        ("ranks", "BIGINT", "ranks", "ranks that were compared"),
    ],
    source="Pulse 6.2 (group anomalies)",
    params={
        "repeat": "slow_collective_senders.repeat",
        "least_compute": "computing_ranks.least_compute",
        "past": Param(4, "the first of so many parts of the operations are a rank's past"),
        "group_above": Param(
            1.15, "times their own past, for all groups or all computing ranks alike"
        ),
    },
)
def slow_alike() -> str:
    """Kinds of communication or computation in which all ranks became slower than in their own
    past."""
    return """
        WITH turns AS (
            SELECT *, row_number() OVER one AS nth,
                count(*) OVER (PARTITION BY job, comm, rank, op) AS total
            FROM send_turns WHERE NOT coalesce(undercount, false)
            WINDOW one AS (PARTITION BY job, comm, rank, op ORDER BY turn)),
        rates AS (
            SELECT job, comm, op, rank,
                median(rate_bytes_per_s) FILTER (nth <= total // $past) AS before,
                median(rate_bytes_per_s) FILTER (nth > total // 2) AS after
            FROM turns WHERE total >= $past * $repeat GROUP BY ALL),
        senders AS (
            SELECT job, comm, rank, min(after / before) AS kept FROM rates GROUP BY ALL),
        spells AS (
            SELECT job, rank, comm, own_ns, row_number() OVER one AS nth,
                count(*) OVER (PARTITION BY job, rank, comm) AS total
            FROM compute_times WHERE own_ns >= $least_compute
            WINDOW one AS (PARTITION BY job, rank, comm ORDER BY started_ns)),
        computed AS (
            SELECT job, rank, comm, median(own_ns) FILTER (nth > total // 2)
                / median(own_ns) FILTER (nth <= total // $past) AS times
            FROM spells WHERE total >= $past * $repeat GROUP BY ALL),
        by_rank AS (SELECT job, rank, median(times) AS times FROM computed GROUP BY ALL)
        SELECT job, 'communication' AS what, median(1 / kept) AS times, count(*) AS ranks
        FROM senders GROUP BY job
        HAVING count(DISTINCT comm) > 1 AND min(1 / kept) > $group_above
        UNION ALL
        -- Hosts wait for their rank in the group of a slow one, all alike: then no rank's
        -- computing is the cause.
        SELECT job, 'computation', median(times), count(*)
        FROM by_rank b
        WHERE NOT EXISTS (FROM cpu_bound_hosts c WHERE c.job = b.job)
            AND NOT EXISTS (FROM slow_computing_hosts h WHERE h.job = b.job)
            AND NOT EXISTS (FROM slow_sends s WHERE s.job = b.job)
        GROUP BY job HAVING count(*) > 2 AND min(times) > $group_above
    """


@relation(
    "hot_experts",
    reads=["compute_times"],
    empty_without=["compute_times"],
    columns=[
        ("job", "VARCHAR", "", "the job"),
        ("most", "DOUBLE", "ratio", "median of the busiest rank's tokens, against its class"),
        ("rounds", "BIGINT", "", "exchanges of tokens that were uneven"),
        ("node", "VARCHAR", "", "where the busiest rank was most often"),
        ("there", "BIGINT", "", "in how many of them"),
    ],
    source="Pulse 7.2.6",
    params={
        "compute_above": "slow_computing_hosts.compute_above",
        "repeat": "slow_collective_senders.repeat",
        "uneven": Param(
            1.4,
            "tokens of the busiest expert against the median one: more than capacity factors, 1.25 "
            "mostly, let pass",
        ),
    },
)
def hot_experts() -> str:
    """How unevenly tokens are routed to experts."""
    return """
        WITH hot AS (
            SELECT job, class, turn, max(work) AS most, arg_max(node, work) AS node
            FROM compute_times WHERE work IS NOT NULL GROUP BY ALL
            HAVING max(work) > $compute_above),
        homes AS (
            SELECT job, node, count(*) AS there FROM hot GROUP BY job, node
            QUALIFY row_number() OVER (PARTITION BY job ORDER BY there DESC, node) = 1)
        SELECT job, median(most) AS most, count(*) AS rounds, any_value(homes.node) AS node,
            any_value(there) AS there
        FROM hot JOIN homes USING (job) GROUP BY job
        HAVING count(*) >= $repeat AND median(most) > $uneven
    """
