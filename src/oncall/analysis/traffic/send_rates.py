"""Which ranks send more slowly than their peers (Pulse 6.2, anomaly localization).

A rate is volume over actual communication time, so gaps, in which a rank waits for others, do not
count against anyone. A rank is compared with the other members of its collectives, with the other
senders of its custom collectives, or, if it is the only sender, path by path.
"""

from __future__ import annotations

from oncall.evidence import Param, relation

_SENDER = [
    ("job", "VARCHAR", "", "the job"),
    ("comm", "UBIGINT", "", "communicator"),
    ("rank", "INTEGER", "", "sending rank"),
]


@relation(
    "send_turns",
    reads=["rank_traffic"],
    empty_without=["rank_traffic"],
    columns=[
        *_SENDER,
        ("node", "VARCHAR", "", "its host"),
        ("turn", "BIGINT", "", "the collective's number"),
        ("seq", "BIGINT", "", "its operation number"),
        ("op", "VARCHAR", "", "operation"),
        ("started_ns", "BIGINT", "ns", "when data began to flow, on the console's clock"),
        ("active_ns", "BIGINT", "ns", "actual communication time"),
        ("epoch_ns", "BIGINT", "ns", "length of the epochs"),
        ("undercount", "BOOLEAN", "", "events were lost"),
        ("rate_bytes_per_s", "DOUBLE", "bytes/s", "volume over actual communication time"),
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
        "counted_within": Param(
            "10 %",
            "of the volume: where more was lost, or is another operation's, times mean nothing",
        ),
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
                undercount AND abs(bytes - expected_bytes) > $counted_within * expected_bytes,
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
    optional=["credit_waits"],
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
        "last": "rank_rates.last",
        "repeat": Param(3, "fewer operations may be slow by chance"),
        "mostly": Param(
            "70 %", "a culprit has the lowest rate of its group nearly always, jitter by turns"
        ),
        "rate_below": Param(
            "95 %",
            "of the peers' actual rate: gaps are left out, so that sound peers differ by 1 to 3 %",
        ),
        "idle_below": Param(
            "5 %",
            "of its actual time: who holds the others up has always something to send, who waits "
            "pauses",
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
        ANTI JOIN (FROM credit_waits WHERE room_ns > wire_ns) USING (job, comm, rank)
        WHERE back <= $last GROUP BY job, comm, rank
        HAVING count(*) >= $repeat AND median(idle) < $idle_below
            AND median(share) < least(
                $rate_below, 1 - $epochs_apart * any_value(epoch_ns) / median(busy_ns))
            AND count(*) FILTER (share < 1) >= $mostly * count(*)
        QUALIFY median(share) = min(median(share)) OVER (PARTITION BY job, comm)
    """


@relation(
    "custom_rates",
    reads=["rank_rates"],
    empty_without=["rank_rates"],
    columns=[
        *_SENDER,
        ("node", "VARCHAR", "", "its host"),
        ("calls", "INTEGER", "", "custom collectives averaged, the last ones"),
        ("share", "DOUBLE", "ratio", "its rate, against the median of the other senders"),
        ("senders", "BIGINT", "ranks", "senders that are compared"),
        ("at_ns", "BIGINT", "ns", "start of the first of them, on the console's clock"),
    ],
    source="Pulse 6.2",
    params={"repeat": "slow_collective_senders.repeat"},
)
def custom_rates() -> str:
    """Each sender's rate in custom collectives beside the other senders' of its communicator."""
    return """
        SELECT *, rate_bytes_per_s / median(rate_bytes_per_s) OVER others AS share,
            count(*) OVER (PARTITION BY job, comm) AS senders
        FROM rank_rates WHERE calls >= $repeat
        WINDOW others AS (PARTITION BY job, comm
            ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING EXCLUDE CURRENT ROW)
    """


@relation(
    "slow_custom_senders",
    reads=["custom_rates"],
    optional=["cpu_shortages"],
    empty_without=["custom_rates"],
    columns=[
        *_SENDER,
        ("rounds", "BIGINT", "", "custom collectives that were compared"),
        ("share", "DOUBLE", "ratio", "its rate, against the median of the other senders"),
        ("at_ns", "BIGINT", "ns", "start of the first of them, on the console's clock"),
    ],
    source="Pulse 6.2, 7.2.5",
    params={
        "custom_below": Param(
            "87 %",
            "of the peers' rate, which varies with congestion at the receivers (Pulse 7.2.5)",
        ),
    },
)
def slow_custom_senders() -> str:
    """The slowest sender of each communicator's custom collectives, where its host is not slow."""
    # What a whole host has in common is the routing of its tokens, or the host: a NIC is one
    # rank's. And where proxy threads wait for a CPU, queue pairs have nothing to send.
    return """
        WITH beside AS (
            SELECT *, coalesce(median(share) OVER beside, 1) AS host_share
            FROM custom_rates
            WINDOW beside AS (PARTITION BY job, node
                ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING EXCLUDE CURRENT ROW))
        SELECT job, comm, rank, calls AS rounds, share, at_ns
        FROM beside ANTI JOIN cpu_shortages USING (node)
        WHERE senders > 1 AND share < $custom_below
            AND share / least(1, host_share) < $custom_below
        QUALIFY share = min(share) OVER (PARTITION BY job, comm)
            AND share = min(share) OVER (PARTITION BY job, node)
    """


@relation(
    "slow_paths",
    reads=["traffic", "custom_rates"],
    empty_without=["custom_rates"],
    columns=[
        ("job", "VARCHAR", "", "the job"),
        ("comm", "UBIGINT", "", "communicator"),
        ("rank", "INTEGER", "", "the rank that the path leads to"),
        ("rounds", "BIGINT", "", "transfers on it that were compared"),
        ("share", "DOUBLE", "ratio", "its rate, against the median of the sender's other paths"),
        ("at_ns", "BIGINT", "ns", "start of the first of them"),
    ],
    source="Pulse D.12",
    params={
        "least_bytes": "send_turns.least_bytes",
        "last": "rank_rates.last",
        "repeat": "slow_collective_senders.repeat",
        "custom_below": "slow_custom_senders.custom_below",
    },
)
def slow_paths() -> str:
    """The slowest path of each communicator that has one sender only."""
    return """
        WITH alone AS (SELECT job, comm FROM custom_rates GROUP BY ALL HAVING count(*) = 1),
        lanes AS (
            SELECT t.job, t.comm, t.rank, t.peer, t.started_ns, t.bytes * 1e9 / t.active_ns AS rate
            FROM traffic t JOIN alone USING (job, comm)
            WHERE t.group_id IS NOT NULL AND t.ended_ns IS NOT NULL AND t.active_ns > 0
                AND t.bytes >= $least_bytes AND t.peer IS NOT NULL
                AND NOT coalesce(t.undercount, false)
            QUALIFY row_number() OVER (
                PARTITION BY t.job, t.comm, t.rank, t.peer ORDER BY t.started_ns DESC) <= $last),
        means AS (
            SELECT job, comm, rank, peer, avg(rate) AS rate, count(*) AS rounds,
                min(started_ns) AS at_ns
            FROM lanes GROUP BY ALL),
        compared AS (
            SELECT *, rate / median(rate) OVER (PARTITION BY job, comm, rank
                    ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING EXCLUDE CURRENT ROW)
                    AS share,
                count(*) OVER (PARTITION BY job, comm, rank) AS paths
            FROM means)
        SELECT job, comm, peer AS rank, rounds, share, at_ns FROM compared
        WHERE paths >= $repeat AND rounds >= $repeat AND share < $custom_below
        QUALIFY share = min(share) OVER (PARTITION BY job, comm)
    """


@relation(
    "slow_sends",
    reads=["slow_collective_senders", "members"],
    optional=["slow_custom_senders", "slow_paths"],
    empty_without=["slow_collective_senders|slow_custom_senders|slow_paths"],
    columns=[
        *_SENDER,
        ("node", "VARCHAR", "", "its host"),
        ("gpu", "INTEGER", "", "its GPU"),
        ("nic", "VARCHAR", "", "its NIC"),
        ("rounds", "BIGINT", "", "operations that were compared"),
        ("share", "DOUBLE", "ratio", "its rate, against its peers'"),
        ("at_ns", "BIGINT", "ns", "start of the first of them, on the console's clock"),
        ("what", "VARCHAR", "", "collectives, custom collectives or paths"),
        ("suspect", "VARCHAR", "", "the rank, or its host, as a sentence names it"),
    ],
    source="Pulse 6.2",
    params={"repeat": "slow_collective_senders.repeat"},
)
def slow_sends() -> str:
    """Every rank that sends slowly. If several NICs of one host are slow at once, the host is
    named."""
    return """
        SELECT f.*, m.node, m.gpu, m.nic,
            CASE WHEN count(DISTINCT f.rank) OVER (PARTITION BY f.job, m.node) >= $repeat
                THEN 'host ' || m.node ELSE 'rank ' || f.rank END AS suspect
        FROM (
            SELECT job, comm, rank, rounds, share, at_ns, 'collectives' AS what
            FROM slow_collective_senders
            UNION ALL
            SELECT job, comm, rank, rounds, share, at_ns, 'custom collectives'
            FROM slow_custom_senders
            UNION ALL
            SELECT job, comm, rank, rounds, share, at_ns, 'paths' FROM slow_paths) f
        LEFT JOIN members m USING (job, comm, rank)
    """
