"""How long ranks compute between what they send, seen from traffic alone (Pulse 6.2).

"When computation anomalies occur, the subsequent communication operator is the first to be
affected": it starts late. A rank also starts late if its input came late. So time is counted from
the last data that the rank sent or received; the rest is its own time. It is compared with that of
ranks with the same work: the members of its data-parallel group, or else of the communicator.

Ranks of one host wait for each other in tensor parallelism and are late alike (Pulse D.4), so the
host is compared; within it, what its ranks do together shows whom they wait for.
"""

from __future__ import annotations


def compute_times() -> str:
    """A rank's own time before each operation, and how that compares with ranks of its class.

    `own_ns` is since it last sent or was sent something, NULL if unsure, with the clocks'
    `error_ns`; `work` the data that it received before, of its class: tokens to compute; `times`
    for that work against the median, `least_times` if clocks are off by all of the error.
    """
    return """
        compute_times AS MATERIALIZED (
        WITH alike_ranks AS (  -- of one class are those that do the same work on other data
            SELECT m.job, m.rank,
                max_by(m.comm, (coalesce(p.parallelism = 'dp', false), p.size)) AS class
            FROM members m JOIN parallelism p USING (job, comm)
            WHERE p.parallelism IS DISTINCT FROM 'pp' GROUP BY m.job, m.rank),
        clock AS (
            SELECT DISTINCT ON (node) node, offset_ns, error_ns FROM clocks
            ORDER BY node, at_ns DESC, offset_ns),
        sent AS (
            SELECT job, rank, ended_ns AS at_ns FROM rank_traffic WHERE ended_ns IS NOT NULL),
        arrived AS (
            SELECT t.job, t.peer AS rank, t.node, t.ended_ns - coalesce(c.offset_ns, 0) AS at_ns,
                c.error_ns
            FROM traffic t LEFT JOIN clock c USING (node)
            WHERE t.ended_ns IS NOT NULL AND t.peer IS NOT NULL),
        begun AS (
            SELECT r.job, r.comm, r.rank, r.node, r.kind, r.turn, r.is_custom, r.started_ns,
                r.error_ns AS clock_ns, coalesce(p.parallelism, 'none') AS role,
                lag(r.received_bytes) OVER (
                    PARTITION BY r.job, r.comm, r.rank ORDER BY r.started_ns) AS received_bytes
            FROM rank_traffic r LEFT JOIN parallelism p USING (job, comm)
            WHERE r.started_ns IS NOT NULL),
        -- Of what came as the rank went on, clocks do not show if it was waited for.
        waited AS (
            SELECT b.*, b.started_ns - s.at_ns AS since_sent_ns,
                b.started_ns - a.at_ns AS since_came_ns,
                CASE WHEN a.node = b.node THEN 0 ELSE clock_ns + a.error_ns END AS apart_ns
            FROM begun b
            ASOF LEFT JOIN sent s
                ON s.job = b.job AND s.rank = b.rank AND b.started_ns >= s.at_ns
            ASOF LEFT JOIN arrived a ON a.job = b.job AND a.rank = b.rank
                AND b.started_ns + coalesce(b.clock_ns, 0) >= a.at_ns - coalesce(a.error_ns, 0)),
        own AS (
            -- Clocks that nobody compared order nothing: what came may have been waited for.
            SELECT *, CASE WHEN since_came_ns IS NULL OR since_came_ns >= apart_ns
                    THEN least(since_sent_ns, since_came_ns) END AS own_ns,
                CASE WHEN since_came_ns <= since_sent_ns + apart_ns
                    OR since_sent_ns IS NULL THEN apart_ns ELSE 0 END AS error_ns
            FROM waited WHERE coalesce(since_sent_ns, since_came_ns) IS NOT NULL),
        placed AS (
            SELECT own.*, coalesce(k.class, own.comm) AS class,
                CASE WHEN is_custom THEN received_bytes / nullif(median(received_bytes) OVER w, 0)
                    END AS work,
                median(own_ns) OVER w AS baseline_ns, count(*) OVER w AS members
            FROM own LEFT JOIN alike_ranks k USING (job, rank)
            WINDOW w AS (PARTITION BY own.job, coalesce(k.class, own.comm), role, kind, turn))
        SELECT *, own_ns / nullif(baseline_ns, 0) / coalesce(nullif(work, 0), 1) AS times,
            (own_ns - error_ns) / nullif(baseline_ns + error_ns, 0) / coalesce(nullif(work, 0), 1)
                AS least_times
        FROM placed WHERE members > 1)
    """


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
    """Whether all ranks of several communicators send slower than in their own past: of each
    rank's operations, the first part and the second half (Pulse 6.2, group anomalies). That all
    compute slower, iterations show that became longer."""
    return """
        numbered AS (
            SELECT job, comm, rank, op, rate_bytes_per_s, row_number() OVER own AS nth,
                count(*) OVER (PARTITION BY job, comm, rank, op) AS total
            FROM send_turns WHERE NOT coalesce(undercount, false)
            WINDOW own AS (PARTITION BY job, comm, rank, op ORDER BY turn)),
        changes AS (
            SELECT job, comm, rank, median(1 / rate_bytes_per_s) FILTER (nth > total // 2)
                / median(1 / rate_bytes_per_s) FILTER (nth <= total // $past) AS times
            FROM numbered WHERE total >= $past * $repeat GROUP BY job, comm, rank, op),
        slower_alike AS (
            SELECT job, median(times) AS times, count(DISTINCT rank) AS ranks
            FROM changes GROUP BY job
            HAVING min(times) > $group_above AND count(DISTINCT comm) > 1)
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
