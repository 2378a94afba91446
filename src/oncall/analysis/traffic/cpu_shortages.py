"""Hosts whose CPU keeps transfers waiting, and the groups that pause for it.

"When using built-in collectives, a CPU bottleneck at a single node can introduce gaps across the
entire group" (Pulse 8.1): traffic names the group, and only what is recorded on the host names the
host: its own readings, and its proxy threads. A read that flushes a GPU's memory never leaves its
host and takes microseconds; a write that the NIC has sent is completed soon after. Both last until
the thread looks again.
"""

from __future__ import annotations

from oncall.evidence import Param, relation


def _proxies() -> str:
    """What steps of collectives wait for within each host, in the second half of the recording,
    and beside the others of its group."""
    return """
        span AS (SELECT (min(ended_ns) + max(ended_ns)) // 2 AS middle_ns FROM transfers),
        waits AS (
            SELECT t.job, t.comm, t.rank, any_value(m.node) AS node,
                sum(peer_wait_ns) FILTER (direction = 'recv')
                    / nullif(sum(steps_done) FILTER (direction = 'recv'), 0) AS flush_ns,
                sum(wire_wait_ns) FILTER (direction = 'send')
                    / nullif(sum(steps_done) FILTER (direction = 'send'), 0) AS sent_ns
            FROM transfers t JOIN members m USING (job, comm, rank), span
            WHERE t.kind = 'coll' AND t.ended_ns >= middle_ns GROUP BY ALL),
        of_group AS (
            SELECT *, sent_ns / median(sent_ns) OVER (PARTITION BY job, comm
                ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING EXCLUDE CURRENT ROW)
                AS sent_times
            FROM waits),
        of_host AS (
            SELECT job, node, nullif(avg(flush_ns), 0) AS flush_ns,
                median(sent_times) AS sent_times
            FROM of_group WHERE node IS NOT NULL GROUP BY ALL),
        proxies AS (
            SELECT *, flush_ns - median(flush_ns) OVER (PARTITION BY job
                ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING EXCLUDE CURRENT ROW)
                AS late_ns
            FROM of_host)
    """


@relation(
    "cpu_shortages",
    reads=["rank_traffic", "members"],
    empty_without=["hosts|transfers"],
    columns=[
        ("node", "VARCHAR", "", "host"),
        ("code", "VARCHAR", "", "what shows that its CPU is short: cpu_pressure, cpu_slow, "
         "flushes_late, sends_late"),
        ("value", "DOUBLE", "", "share of time that threads wait for a CPU; CPU clock as share of "
         "the maximum; ns that flushes take longer; times that sends take"),
        ("governor", "VARCHAR", "", "CPU frequency governor"),
    ],
    source="beyond Pulse 7.2.2",
    params={
        "pressure": Param(
            "15 %",
            "of the time some thread waits for a CPU; training hosts leave most cores idle",
        ),
        "clock_share": Param(
            "60 %",
            "of the possible CPU clock, under load: a governor that saves power goes below half",
        ),
        "flush_late": Param(
            "10 us",
            "a step on average: a flush takes a few us, a thread that has lost its core a "
            "millisecond",
        ),
        "sent_late": Param(
            1.3,
            "where nothing is flushed: a step, from posting to the thread's look at its completion",
        ),
    },
)  # fmt: skip
def cpu_shortages() -> str:
    """The symptoms of a short CPU on each host, in the second half of what was recorded."""
    return f"""
        WITH {_proxies()},
        readings AS (
            SELECT node, avg(cpu_pressure) AS pressure, avg(cpu_mhz / cpu_max_mhz) AS clock,
                mode(governor ORDER BY governor) AS governor
            FROM hosts WHERE at_ns >= (SELECT (min(at_ns) + max(at_ns)) // 2 FROM hosts)
            GROUP BY node)
        SELECT node, if(pressure >= $pressure, 'cpu_pressure', 'cpu_slow') AS code,
            if(pressure >= $pressure, pressure, clock) AS value, governor
        FROM readings
        QUALIFY pressure >= $pressure OR (clock < $clock_share
            AND governor IS DISTINCT FROM mode(governor ORDER BY governor) OVER ())
        UNION ALL BY NAME
        SELECT node, 'flushes_late' AS code, late_ns AS value FROM proxies
        WHERE late_ns > $flush_late
        UNION ALL BY NAME
        SELECT node, 'sends_late' AS code, sent_times AS value FROM proxies
        WHERE flush_ns IS NULL AND sent_times > $sent_late
            AND node NOT IN (
                SELECT m.node FROM slow_collective_senders
                JOIN members m USING (job, comm, rank) WHERE m.node IS NOT NULL)
    """


def pauses() -> str:
    """How long each communicator pauses within its collectives, even its last member to begin;
    the hosts short of CPU whose communicators pause; and the hosts of communicators that pause with
    no member and no host that explains it."""
    # Whoever is not seen may be the one that the others wait for.
    return """
        sizes AS (
            SELECT job, comm, count(DISTINCT coalesce(node, rank::VARCHAR)) AS hosts,
                list(DISTINCT node ORDER BY node) AS nodes
            FROM members GROUP BY ALL),
        turns AS (
            SELECT job, comm, turn, min(gap) AS gap, arg_min(active_ns, gap) AS active_ns,
                min(started_ns) AS at_ns, any_value(nodes) AS nodes
            FROM send_turns JOIN sizes USING (job, comm)
            WHERE NOT coalesce(undercount, false)
            GROUP BY job, comm, turn HAVING count(DISTINCT node) = any_value(hosts)),
        gaps AS (
            SELECT job, comm, any_value(nodes) AS nodes, avg(gap) AS gap, min(at_ns) AS at_ns,
                sum(gap * active_ns) / any_value(span_ns) AS lost_share,
                quantile_cont(gap, $seldom) * sum(active_ns) / any_value(span_ns) AS lost_low
            FROM turns JOIN spans USING (job) GROUP BY ALL HAVING count(*) >= $repeat),
        cpu_hosts AS (
            SELECT g.job, c.node, arg_max(c, g.gap) AS shown, max(g.gap) AS share,
                count(DISTINCT g.comm) AS comms, min(g.at_ns) AS at_ns,
                max(g.lost_share) AS lost_share, max(g.lost_low) AS lost_low
            FROM gaps g JOIN (SELECT DISTINCT job, comm, node FROM members) m USING (job, comm)
            JOIN cpu_shortages c USING (node)
            WHERE g.gap >= $gap_with_symptom GROUP BY g.job, c.node),
        pausing_groups AS (
            SELECT job, nodes, max(gap) AS share, count(*) AS comms, min(comm) AS comm,
                min(at_ns) AS at_ns, max(lost_share) AS lost_share, max(lost_low) AS lost_low
            FROM gaps g
            ANTI JOIN slow_collective_senders USING (job, comm)
            WHERE gap >= $gap_above
                AND NOT EXISTS (FROM cpu_hosts c WHERE c.job = g.job
                    AND list_contains(g.nodes, c.node))
            GROUP BY job, nodes)
    """
