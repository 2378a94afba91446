"""What is slow, seen from traffic alone (Pulse 6.2): senders, computing hosts, groups that pause
for a CPU, or all ranks alike, and what it costs the job.

A rate below the peers' or a long computation matters as far as it takes time. The noise is what
ranks that nobody suspects lose to one another in the same recording.
"""

from __future__ import annotations

from oncall.analysis.traffic.compute_times import (
    all_alike,
    compute_times,
    computing_hosts,
    uneven_experts,
)
from oncall.analysis.traffic.pausing_groups import pauses
from oncall.analysis.traffic.send_rates import slow_senders
from oncall.evidence import Param, relation


def _delays() -> str:
    """What each rank lost by sending and computing longer than its peers."""
    return """
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
        lost AS (
            SELECT e.job, what, rank, sum(lost_ns) AS lost_ns, sum(lost_ns) / span_ns AS lost_share
            FROM each e JOIN spans USING (job) GROUP BY e.job, what, rank, span_ns),
        noise AS (
            SELECT *, coalesce($beyond * median(abs(lost_share)) OVER (PARTITION BY job, what
                ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING EXCLUDE CURRENT ROW),
                lost_share) AS noise
            FROM lost),
        delays AS (
            SELECT n.job, what, rank, node, lost_share, lost_share - noise AS lost_low,
                lost_share + noise AS lost_high, lost_ns::BIGINT AS lost_ns
            FROM noise n LEFT JOIN processes USING (job, rank)),
        host_delays AS (
            SELECT job, node, max(lost_share) AS lost_share, median(lost_low) AS lost_low,
                max(lost_high) AS lost_high, max(lost_ns) AS lost_ns
            FROM delays WHERE what = 'compute' GROUP BY ALL)
    """


@relation(
    "slow_traffic",
    reads=["rank_traffic", "members"],
    empty_without=["rank_traffic"],
    columns=[
        "job",
        ("suspect", "VARCHAR", "", "a rank, a host, the hosts of a group, or all ranks alike"),
        ("code", "VARCHAR", "", "slow_collectives, slow_custom_collectives, slow_path; "
         "slow_computing; short_cpu or pausing_group; "
         "all_communication"),
        "node",
        ("rank", "INTEGER", "", "the rank; of a host that computes slowly the one that the others "
         "of the host wait for, if known"),
        "gpu nic",
        ("comm", "UBIGINT", "", "its communicator, or one of those that pause"),
        ("kind", "VARCHAR", "", "group, where that is to blame"),
        ("at_ns", "BIGINT", "ns", "since when, on the console's clock"),
        ("share", "DOUBLE", "ratio", "its rate against its peers'; or the longest mean pause of "
         "its groups, of their active time"),
        ("times", "DOUBLE", "ratio", "how long it computes, or all take, against the same work of "
         "others or their own past"),
        ("number", "BIGINT", "", "operations compared, groups that pause, or ranks alike"),
        ("value", "DOUBLE", "", "of experts in how many operations the busiest was on the host"),
        ("lost_share", "DOUBLE", "ratio", "of the recorded time, beyond the peers' median"),
        ("lost_low", "DOUBLE", "ratio", "the same, less the noise among all ranks"),
        ("lost_high", "DOUBLE", "ratio", "the same, and the noise"),
        ("lost_ns", "BIGINT", "ns", "in all"),
    ],
    source="Pulse 6.2, 7.2, 8.1; VERDICTS 3",
    params={
        "last": "slow_collective_senders.last",
        "repeat": "lost_time.few",
        "mostly": "slow_collective_senders.mostly",
        "least_bytes": "send_turns.least_bytes",
        "custom_below": Param("87 %", "of the peers' rate, which varies with congestion at the "
                              "receivers (Pulse 7.2.5)"),
        "compute_above": Param(1.1, "times what ranks with the same work take: half a GPU's power "
                               "makes it 1.4"),
        "least_compute": Param("500 us", "shorter spells between operations are launches and "
                               "synchronisation"),
        "beyond_clocks": Param(4, "times what the clocks of two hosts may be apart: of shorter "
                               "spells they would tell most"),
        "seldom": Param("25 %", "of collectives pause less: those of a sound group do not pause"),
        "gap_with_symptom": Param("2 %", "of the actual time: enough, where a host's CPU is short "
                                  "besides"),
        "gap_above": Param("12 %", "pauses even in the last rank to begin, against its actual "
                           "time: more than epochs cut off"),
        "past": "arrivals.offset_part",
        "group_above": "pausing_ranks.late",
        "uneven": Param(1.4, "tokens of the busiest expert against the median one: more than "
                        "capacity factors, 1.25 mostly, let pass"),
        "beyond": Param(4.5, "times the median deviation of the others: 3 sigma of a normal"),
    },
)  # fmt: skip
def slow_traffic() -> str:
    """Each rank, host or group that is slow, with what the job loses by it."""
    return f"""
        WITH spans AS (
            SELECT job, nullif(max(ended_ns) - min(started_ns), 0) AS span_ns FROM rank_traffic
            GROUP BY job),
        {slow_senders()}, {compute_times()}, {computing_hosts()}, {pauses()}, {all_alike()},
        {uneven_experts()}, {_delays()},
        slow AS (
            SELECT s.* EXCLUDE (rounds, in_host), s.rounds AS number,
                -- Several NICs of one host that are slow at once are the host's affair.
                if(in_host >= $repeat, 'host ' || s.node, 'rank ' || s.rank) AS suspect,
                d.* EXCLUDE (job, what, rank, node)
            FROM slow_senders s
            LEFT JOIN (FROM delays WHERE what = 'send') d USING (job, rank)
            UNION ALL BY NAME
            SELECT s.*, 'slow_computing' AS code, 'host ' || node AS suspect,
                d.* EXCLUDE (job, node)
            FROM slow_computers s LEFT JOIN host_delays d USING (job, node)
            UNION ALL BY NAME
            SELECT * EXCLUDE (comms), comms AS number, 'short_cpu' AS code,
                'host ' || node AS suspect
            FROM cpu_hosts
            UNION ALL BY NAME
            SELECT * EXCLUDE (nodes, comms), comms AS number, 'pausing_group' AS code,
                'group' AS kind, 'the hosts ' || array_to_string(nodes, ', ') AS suspect
            FROM pausing_groups)
        FROM slow
        UNION ALL BY NAME
        SELECT job, 'all_communication' AS code, times, ranks AS number, code AS suspect
        FROM slower_alike
        UNION ALL BY NAME SELECT *, 'uneven_experts' AS code, 'the experts' AS suspect FROM uneven
    """
