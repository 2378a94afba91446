"""Which ranks send more slowly than their peers (Pulse 6.2, anomaly localization).

A rate is volume over actual communication time, so gaps, in which a rank waits for others, do not
count against anyone. A rank is compared with the other members of its collectives, with the other
senders of its custom collectives, or, if it is the only sender, path by path.
"""

from __future__ import annotations

from oncall.evidence import Param, relation

_SENDER = [
    "job comm rank",
]


@relation(
    "send_turns",
    reads=["rank_traffic"],
    empty_without=["rank_traffic"],
    columns=[
        *_SENDER,
        "node",
        ("turn", "BIGINT", "", "the collective's number"),
        "seq op started_ns active_ns epoch_ns undercount rate_bytes_per_s",
        ("gap", "DOUBLE", "ratio", "pauses in it, of the actual time"),
        ("idle", "DOUBLE", "ratio", "pauses since all members had begun, of the actual time"),
        ("busy_ns", "DOUBLE", "ns", "actual time since all members had begun"),
        ("share", "DOUBLE", "ratio", "its rate, against the median of the other members"),
        ("back", "BIGINT", "", "how many collectives ago on its communicator; the newest: 1"),
    ],
    source="Pulse 6.2",
    params={
        "least_bytes": Param(
            "1 MiB", "smaller operations are a few epochs, which tell of latency and not of a rate"
        ),
        "counted": "lost_time.nearly_all",
    },
)
def send_turns() -> str:
    """Each completed collective of each rank, with its rate and the other members' rates."""
    # Until all have begun, the early ones fill buffers, in epochs half empty: that is no rate. Of
    # what was not counted the volume is known, and the time a lower bound.
    return """
        WITH whole AS (
            SELECT *,
                CASE WHEN undercount THEN greatest(bytes, expected_bytes) ELSE bytes END AS volume,
                max(started_ns) FILTER (NOT coalesce(undercount, false)) OVER one AS begun_ns,
                error_ns + max(error_ns) OVER one AS apart_ns
            FROM rank_traffic
            WHERE kind = 'coll' AND ended_ns IS NOT NULL AND active_ns > 0
                AND bytes >= $least_bytes
            WINDOW one AS (PARTITION BY job, comm, turn)),
        measured AS (
            SELECT *, (ended_ns - started_ns - active_ns) / active_ns AS gap,
                -- Clocks that nobody compared do not show when all had begun.
                greatest(0, coalesce(ended_ns - begun_ns - apart_ns - active_ns, 0)) / active_ns
                    AS idle,
                least(active_ns, greatest(active_ns / 2,
                    coalesce(ended_ns - begun_ns + apart_ns, active_ns))) AS busy_ns
            FROM whole WHERE NOT coalesce(
                undercount AND abs(bytes - expected_bytes) > (1 - $counted) * expected_bytes,
                false))
        SELECT *, volume / busy_ns / median(volume / busy_ns) OVER others AS share,
            dense_rank() OVER (PARTITION BY job, comm ORDER BY turn DESC) AS back
        FROM measured
        WINDOW others AS (PARTITION BY job, comm, turn
            ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING EXCLUDE CURRENT ROW)
    """


@relation(
    "slow_collective_senders",
    reads=["send_turns"],
    empty_without=["send_turns"],
    columns=[
        *_SENDER,
        ("rounds", "BIGINT", "", "collectives that were compared"),
        ("share", "DOUBLE", "ratio", "median of its rate against the other members'"),
        ("at_ns", "BIGINT", "ns", "start of the first of them, on the console's clock"),
        ("seq", "BIGINT", "", "the one with the longest actual time"),
    ],
    source="Pulse 6.2",
    params={
        "last": Param(10, "operations over which a rank's rate is averaged (Pulse 6.2, k)"),
        "repeat": "lost_time.few",
        "mostly": Param("70 %", "a culprit has the lowest rate nearly always, jitter by turns"),
        "jitter": Param(
            "5 %",
            "of the peers' actual rate, gaps left out, that sound peers differ by 1 to 3 % in; and "
            "of its actual time that one pauses: who holds the others up always has data to send",
        ),
        "epochs_apart": Param(
            2,
            "an operation's actual time is known to an epoch at either end: short ones differ by "
            "that much",
        ),
    },
)
def slow_collective_senders() -> str:
    """The member of each communicator that sends most slowly, without pausing."""
    return """
        SELECT job, comm, rank, count(*) AS rounds, median(share) AS share,
            min(started_ns) AS at_ns, arg_max(seq, active_ns) AS seq
        FROM send_turns
        -- Who waits for room at the receiver rather than for the wire is held up, and not slow.
        ANTI JOIN (
            SELECT job, comm, rank FROM transfers
            WHERE direction = 'send' AND kind = 'coll' AND ended_ns IS NOT NULL
            GROUP BY ALL HAVING sum(peer_wait_ns) > sum(wire_wait_ns)) USING (job, comm, rank)
        WHERE back <= $last GROUP BY job, comm, rank
        HAVING count(*) >= $repeat AND median(idle) < $jitter
            AND median(share) < least(
                1 - $jitter, 1 - $epochs_apart * any_value(epoch_ns) / median(busy_ns))
            AND count(*) FILTER (share < 1) >= $mostly * count(*)
        QUALIFY median(share) = min(median(share)) OVER (PARTITION BY job, comm)
    """


def _custom_rates() -> str:
    """Each sender's mean rate in the last custom collectives beside the other senders' of its
    communicator."""
    return """
        custom_rates AS MATERIALIZED (
        WITH rates AS (
            SELECT job, comm, rank, any_value(node) AS node, count(*) AS rounds,
                avg(rate_bytes_per_s) AS rate, min(started_ns) AS at_ns
            FROM (
                FROM rank_traffic
                WHERE is_custom AND ended_ns IS NOT NULL AND active_ns > 0
                    AND NOT coalesce(undercount, false)
                QUALIFY row_number() OVER (PARTITION BY job, comm, rank
                    ORDER BY started_ns DESC, kind, turn) <= $last)
            GROUP BY job, comm, rank HAVING count(*) >= $repeat)
        SELECT *, rate / median(rate) OVER others AS share,
            count(*) OVER (PARTITION BY job, comm) AS senders
        FROM rates
        WINDOW others AS (PARTITION BY job, comm
            ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING EXCLUDE CURRENT ROW))
    """


def _custom_senders() -> str:
    """The slowest sender of each communicator's custom collectives, where its host is not slow.
    What a whole host has in common is the routing of its tokens, or the host: a NIC is one rank's.
    And where proxy threads wait for a CPU, queue pairs have nothing to send."""
    return """
        custom_senders AS (
            SELECT * FROM (
                SELECT *, coalesce(median(share) OVER (PARTITION BY job, node
                    ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING
                    EXCLUDE CURRENT ROW), 1) AS host_share
                FROM custom_rates)
            WHERE senders > 1 AND share < $custom_below
                AND share / least(1, host_share) < $custom_below
            QUALIFY share = min(share) OVER (PARTITION BY job, comm)
                AND share = min(share) OVER (PARTITION BY job, node))
    """


def _paths() -> str:
    """The slowest path of each communicator that has one sender only, with the rank it leads to
    (Pulse D.12)."""
    return """
        lanes AS (
            SELECT t.job, t.comm, t.rank, t.peer, t.started_ns, t.bytes * 1e9 / t.active_ns AS rate
            FROM traffic t SEMI JOIN (FROM custom_rates WHERE senders = 1) USING (job, comm)
            WHERE t.group_id IS NOT NULL AND t.ended_ns IS NOT NULL AND t.active_ns > 0
                AND t.bytes >= $least_bytes AND t.peer IS NOT NULL
                AND NOT coalesce(t.undercount, false)
            QUALIFY row_number() OVER (
                PARTITION BY t.job, t.comm, t.rank, t.peer ORDER BY t.started_ns DESC) <= $last),
        lane_rates AS (
            SELECT job, comm, rank, peer, avg(rate) AS rate, count(*) AS rounds,
                min(started_ns) AS at_ns
            FROM lanes GROUP BY ALL HAVING count(*) >= $repeat),
        paths AS (
            SELECT * FROM (
                SELECT * EXCLUDE (rank), peer AS rank, count(*) OVER (PARTITION BY job, comm, rank)
                    AS of_sender, rate / median(rate) OVER (PARTITION BY job, comm, rank
                        ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING
                        EXCLUDE CURRENT ROW) AS share
                FROM lane_rates)
            WHERE of_sender >= $repeat AND share < $custom_below
            QUALIFY share = min(share) OVER (PARTITION BY job, comm))
    """


def slow_senders() -> str:
    """Every rank that sends slowly, with its NIC; `in_host` ranks of its host do."""
    return f"""
        {_custom_rates()}, {_custom_senders()}, {_paths()},
        slow_senders AS (
            SELECT f.*, m.node, m.gpu, m.nic,
                count(DISTINCT f.rank) OVER (PARTITION BY f.job, m.node) AS in_host
            FROM (
                SELECT job, comm, rank, rounds, share, at_ns, 'slow_collectives' AS code
                FROM slow_collective_senders
                UNION ALL
                SELECT job, comm, rank, rounds, share, at_ns, 'slow_custom_collectives'
                FROM custom_senders
                UNION ALL
                SELECT job, comm, rank, rounds, share, at_ns, 'slow_path' FROM paths) f
            LEFT JOIN members m USING (job, comm, rank))
    """
