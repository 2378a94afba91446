"""Groups that pause for a CPU, and the hosts whose CPUs keep them waiting.

"When using built-in collectives, a CPU bottleneck at a single node can introduce gaps across the
entire group" (Pulse 8.1): traffic names the group, and only what is recorded on the host names the
host.
"""

from __future__ import annotations


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
            SELECT job, c.node, max(gap) AS share, count(DISTINCT comm) AS comms,
                min(g.at_ns) AS at_ns, max(lost_share) AS lost_share, max(lost_low) AS lost_low
            FROM gaps g JOIN (
                SELECT DISTINCT job, node FROM machine_symptoms
                WHERE code IN ('cpus_busy', 'cpu_clock', 'quota', 'few_cpus', 'no_cpu')) c
                USING (job)
            WHERE gap >= $gap_with_symptom AND list_contains(nodes, c.node) GROUP BY ALL),
        pausing_groups AS (
            SELECT job, nodes, max(gap) AS share, count(*) AS comms, min(comm) AS comm,
                min(at_ns) AS at_ns, max(lost_share) AS lost_share, max(lost_low) AS lost_low
            FROM gaps g ANTI JOIN slow_collective_senders USING (job, comm)
            WHERE gap >= $gap_above AND NOT EXISTS (FROM cpu_hosts c WHERE c.job = g.job
                AND list_contains(g.nodes, c.node))
            GROUP BY job, nodes)
    """
