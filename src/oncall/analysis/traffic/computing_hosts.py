"""Which hosts compute longer than others with the same work, seen from traffic (Pulse 6.2, 7.2.4).

Ranks of one host wait for each other in tensor parallelism and are late alike (Pulse D.4), so the
host is compared; within it, what its ranks do together shows whom they wait for.
"""

from __future__ import annotations


def computing_hosts() -> str:
    """Each rank's own time against ranks with the same work, over the newest spells; and the hosts
    whose ranks take longer, with the rank that the others wait for. Clocks that are off are off all
    the time."""
    return """
        computing_ranks AS (
            SELECT job, rank, any_value(node) AS node, median(times) AS times,
                median(least_times) AS least_times, min(started_ns) AS at_ns
            FROM (
                FROM compute_times
                WHERE own_ns >= greatest($least_compute, $beyond_clocks * error_ns)
                    AND times IS NOT NULL
                QUALIFY row_number() OVER (PARTITION BY job, rank ORDER BY started_ns DESC)
                    <= $past * $last)
            GROUP BY job, rank HAVING count(*) >= $repeat),
        slow_hosts AS (
            SELECT job, node, median(times) AS times, min(at_ns) AS at_ns,
                CASE WHEN count(*) = 1 THEN min(rank) END AS only_rank
            FROM computing_ranks WHERE node IS NOT NULL GROUP BY ALL
            HAVING median(least_times) > $compute_above),
        -- Within the host the others wait for the last to enter what they do together.
        last_inside AS (
            SELECT r.job, m.node, m.rank, m.gpu
            FROM rounds r
            JOIN members m ON m.job = r.job AND m.comm = r.comm AND m.rank = r.last_rank
            JOIN slow_hosts h ON h.job = m.job AND h.node = m.node
            WHERE r.basis = 'duration' AND (
                SELECT count(DISTINCT o.node) FROM members o
                WHERE o.job = r.job AND o.comm = r.comm) = 1
            GROUP BY r.job, m.node, m.rank, m.gpu
            QUALIFY count(*) >= $mostly * sum(count(*)) OVER (PARTITION BY r.job, m.node)),
        slow_computers AS (
            SELECT s.* EXCLUDE (only_rank), coalesce(l.rank, s.only_rank) AS rank, l.gpu
            FROM slow_hosts s LEFT JOIN last_inside l USING (job, node))
    """


def all_alike() -> str:
    """Kinds of communication or computation in which all ranks became slower than in their own
    past: of each rank's operations, the first part and the second half (Pulse 6.2, group
    anomalies)."""
    return """
        series AS (
            SELECT job, 'all_communication' AS code, comm, rank, hash(comm, op) AS series, turn,
                1 / rate_bytes_per_s AS took
            FROM send_turns WHERE NOT coalesce(undercount, false)
            UNION ALL
            SELECT job, 'all_computation', comm, rank, hash(comm), started_ns, own_ns
            FROM compute_times WHERE own_ns >= $least_compute),
        numbered AS (
            SELECT *, row_number() OVER (PARTITION BY job, code, rank, series ORDER BY turn) AS nth,
                count(*) OVER (PARTITION BY job, code, rank, series) AS total
            FROM series),
        changes AS (
            SELECT job, code, comm, rank, median(took) FILTER (nth > total // 2)
                / median(took) FILTER (nth <= total // $past) AS times
            FROM numbered WHERE total >= $past * $repeat GROUP BY job, code, comm, rank, series),
        slower_alike AS (
            SELECT job, code, median(times) AS times, count(DISTINCT rank) AS ranks
            FROM changes GROUP BY job, code
            HAVING min(times) > $group_above AND if(code = 'all_communication',
                count(DISTINCT comm) > 1, count(DISTINCT rank) > 2))
    """


def uneven_experts() -> str:
    """How unevenly tokens are routed to experts, and on which host the busiest is most often
    (Pulse 7.2.6)."""
    return """
        hot AS (
            SELECT job, class, turn, max(work) AS most, arg_max(node, work) AS node
            FROM compute_times WHERE work IS NOT NULL GROUP BY ALL
            HAVING max(work) > $compute_above),
        homes AS (
            SELECT job, node, count(*) AS there FROM hot GROUP BY job, node
            QUALIFY row_number() OVER (PARTITION BY job ORDER BY there DESC, node) = 1),
        uneven AS (
            SELECT job, median(most) AS times, count(*) AS number, any_value(h.node) AS node,
                any_value(there) AS value
            FROM hot JOIN homes h USING (job) GROUP BY job
            HAVING count(*) >= $repeat AND median(most) > $uneven)
    """
