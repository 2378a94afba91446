"""Hosts whose CPU keeps transfers waiting, and the groups that pause for it.

A CPU bottleneck at one node introduces gaps across the entire group (Pulse 8.1): traffic names the
group, and only what is recorded on the host names the host.
"""

from __future__ import annotations

from oncall.evidence import Param, relation


@relation(
    "cpu_shortages",
    reads=["proxy_waits", "members"],
    optional=["cpu_states", "slow_collective_senders"],
    empty_without=["proxy_waits|cpu_states"],
    columns=[
        ("node", "VARCHAR", "", "host"),
        ("symptom", "VARCHAR", "", "what shows that its CPU is short"),
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
)
def cpu_shortages() -> str:
    """The symptoms of a short CPU on each host."""
    return """
        SELECT node, CASE WHEN pressure >= $pressure
                THEN 'threads wait for a CPU ' || round(100 * pressure)::INTEGER
                    || ' % of the time'
                ELSE 'its CPUs run at ' || round(100 * clock)::INTEGER
                    || ' % of their clock, governor ' || coalesce(governor, 'unknown')
                END AS symptom
        FROM cpu_states
        WHERE pressure >= $pressure
            OR (clock < $clock_share AND governor IS DISTINCT FROM common_governor)
        UNION ALL
        SELECT node, 'its proxy threads see a flush '
            || round((flush_ns - others_flush_ns) / 1e3)::INTEGER || ' us later than elsewhere'
        FROM proxy_waits WHERE flush_ns - others_flush_ns > $flush_late
        UNION ALL
        SELECT node, 'its proxy threads see that data was sent ' || round(sent_times, 1)
            || ' times as late as its group''s'
        FROM proxy_waits WHERE flush_ns IS NULL AND sent_times > $sent_late
            AND node NOT IN (
                SELECT m.node FROM slow_collective_senders
                JOIN members m USING (job, comm, rank) WHERE m.node IS NOT NULL)
    """


@relation(
    "group_gaps",
    reads=["send_turns", "members", "rank_traffic"],
    empty_without=["send_turns"],
    columns=[
        ("job", "VARCHAR", "", "the job"),
        ("comm", "UBIGINT", "", "communicator"),
        (
            "gap",
            "DOUBLE",
            "ratio",
            "mean pause of the member that pauses least, of its active time",
        ),
        ("rounds", "BIGINT", "", "collectives that were averaged"),
        ("at_ns", "BIGINT", "ns", "start of the first of them, on the console's clock"),
        ("lost_share", "DOUBLE", "ratio", "of the recorded time, in such pauses"),
        ("lost_low", "DOUBLE", "ratio", "the same, if all were as short as the shortest are"),
    ],
    source="Pulse 8.1",
    params={
        "repeat": "slow_collective_senders.repeat",
        "seldom": Param("25 %", "of collectives pause less: those of a sound group do not pause"),
    },
)
def group_gaps() -> str:
    """How long each communicator pauses within its collectives, even its last member to begin."""
    # Whoever is not seen may be the one that the others wait for.
    return """
        WITH sizes AS (
            SELECT job, comm, count(DISTINCT coalesce(node, rank::VARCHAR)) AS hosts
            FROM members GROUP BY ALL),
        spans AS (
            SELECT job, nullif(max(ended_ns) - min(started_ns), 0) AS span_ns FROM rank_traffic
            GROUP BY job),
        each AS (
            SELECT job, comm, turn, min(gap) AS gap, arg_min(active_ns, gap) AS active_ns,
                min(started_ns) AS at_ns, max(back) OVER (PARTITION BY job, comm) AS turns
            FROM send_turns JOIN sizes USING (job, comm)
            WHERE NOT coalesce(undercount, false)
            GROUP BY job, comm, turn, back
            HAVING count(DISTINCT node) = any_value(hosts))
        SELECT job, comm, avg(gap) AS gap, count(*) AS rounds, min(at_ns) AS at_ns,
            sum(gap * active_ns) / any_value(span_ns) AS lost_share,
            quantile_cont(gap, $seldom) * sum(active_ns) / any_value(span_ns) AS lost_low
        FROM each JOIN spans USING (job) GROUP BY ALL HAVING count(*) >= $repeat
    """


@relation(
    "cpu_bound_hosts",
    reads=["group_gaps", "cpu_shortages"],
    optional=["members"],
    empty_without=["group_gaps", "cpu_shortages"],
    columns=[
        ("job", "VARCHAR", "", "the job"),
        ("node", "VARCHAR", "", "host"),
        ("symptom", "VARCHAR", "", "what shows that its CPU is short"),
        ("gap", "DOUBLE", "ratio", "the longest mean pause of its communicators"),
        ("comms", "BIGINT", "", "its communicators that pause"),
        ("at_ns", "BIGINT", "ns", "since when, on the console's clock"),
        ("lost_share", "DOUBLE", "ratio", "of the recorded time, in pauses of one of them"),
        ("lost_low", "DOUBLE", "ratio", "the same, at least"),
    ],
    source="Pulse 7.2.2, 8.1",
    params={
        "gap_with_sign": Param(
            "2 %", "of the actual time: enough, where a host's CPU is short besides"
        ),
    },
)
def cpu_bound_hosts() -> str:
    """Hosts short of CPU whose communicators pause."""
    return """
        SELECT g.job, c.node, any_value(c.symptom) AS symptom, max(g.gap) AS gap,
            count(DISTINCT g.comm) AS comms, min(g.at_ns) AS at_ns,
            max(g.lost_share) AS lost_share, max(g.lost_low) AS lost_low
        FROM group_gaps g JOIN (SELECT DISTINCT job, comm, node FROM members) m USING (job, comm)
        JOIN cpu_shortages c USING (node)
        WHERE g.gap >= $gap_with_sign GROUP BY g.job, c.node
    """


@relation(
    "pausing_groups",
    reads=["group_gaps"],
    optional=["members", "slow_collective_senders", "cpu_bound_hosts"],
    empty_without=["group_gaps"],
    columns=[
        ("job", "VARCHAR", "", "the job"),
        ("nodes", "VARCHAR[]", "", "the hosts of the communicators"),
        ("gap", "DOUBLE", "ratio", "the longest mean pause of them"),
        ("comms", "BIGINT", "", "communicators of just these hosts that pause"),
        ("comm", "UBIGINT", "", "one of them"),
        ("at_ns", "BIGINT", "ns", "since when, on the console's clock"),
        ("lost_share", "DOUBLE", "ratio", "of the recorded time, in pauses of one of them"),
        ("lost_low", "DOUBLE", "ratio", "the same, at least"),
    ],
    source="Pulse 8.1",
    params={
        "gap_above": Param(
            "12 %",
            "pauses even in the last rank to begin, against its actual time: more than epochs "
            "cut off",
        ),
    },
)
def pausing_groups() -> str:
    """Hosts whose communicators pause, with no member and no host that explains it."""
    return """
        WITH unexplained AS (
            SELECT g.job, g.comm, g.gap, g.at_ns, g.lost_share, g.lost_low,
                list(DISTINCT m.node ORDER BY m.node) AS nodes
            FROM group_gaps g JOIN members m USING (job, comm)
            WHERE g.gap >= $gap_above
                AND NOT EXISTS (
                    FROM slow_collective_senders s WHERE s.job = g.job AND s.comm = g.comm)
                AND NOT EXISTS (
                    FROM cpu_bound_hosts c JOIN members n USING (job, node)
                    WHERE n.job = g.job AND n.comm = g.comm)
            GROUP BY ALL)
        SELECT job, nodes, max(gap) AS gap, count(*) AS comms, min(comm) AS comm,
            min(at_ns) AS at_ns, max(lost_share) AS lost_share, max(lost_low) AS lost_low
        FROM unexplained GROUP BY job, nodes
    """
