"""What the sender's NIC and work requests show about a slow transfer between stages.

A transfer is late because its bytes are slow on the wire, or because a host posts them late. Work
requests that complete at their baseline rate, or a paused port, show which (VenusTrace 3.2.2:
posted against completed). A port without counted errors does not prove that the network is healthy.
"""

from __future__ import annotations

from oncall.analysis.pipeline.stage_transfers import PAIR_COLUMNS
from oncall.analysis.pipeline.stage_vertices import VERTEX_COLUMNS
from oncall.evidence import Param, relation


@relation(
    "transfer_symptoms",
    reads=["slow_transfers"],
    optional=["wr_windows", "nic_rates", "ranks"],
    empty_without=["slow_transfers"],
    columns=[
        *VERTEX_COLUMNS,
        *PAIR_COLUMNS[:1],
        ("nic", "VARCHAR", "", "the sender's RDMA device"),
        ("rate", "DOUBLE", "ratio", "its work requests' bytes a second against the baseline"),
        ("oldest_ns", "BIGINT", "ns", "how long a work request was outstanding, if one was stuck"),
        ("paused", "DOUBLE", "ratio", "share of the time that the network paused its port"),
        ("lost", "BIGINT", "packets", "sent again, after a timeout, or while the link was down"),
        ("network", "BOOLEAN", "", "its network was slow; false: in order; NULL: unknown"),
        ("says", "VARCHAR", "", "why"),
    ],
    source="VenusTrace 3.2.2, Algorithm 2 (network first)",
    params={
        "slower": Param(
            "50 %",
            "of its baseline rate: ways through a fabric differ by less than a factor of two",
        ),
        "as_ever": Param("80 %", "of its baseline rate: that is no slow wire"),
        "paused": Param("2 %", "of the time: pauses are DCQCN's last resort"),
    },
)
def transfer_symptoms() -> str:
    """Each slow transfer with the state of its sender's network during the transfer."""
    return """
        WITH users AS (SELECT job, rank, node, any_value(nic) AS nic FROM ranks GROUP BY ALL),
        late AS (
            SELECT t.*, u.node, u.nic FROM slow_transfers t
            LEFT JOIN users u ON u.job = t.job AND u.rank = t.sender
            WHERE sender IS NOT NULL AND took_ns > 0),
        windows AS (
            SELECT coalesce(w.job, u.job) AS job, coalesce(w.rank, u.rank) AS rank, start_ns,
                end_ns, oldest_ns, bytes * 1e9 / nullif(end_ns - start_ns, 0) AS bytes_per_s
            FROM wr_windows w LEFT JOIN users u ON w.rank IS NULL AND u.node = w.node
                AND u.nic = w.nic),
        baseline AS (
            SELECT w.job, w.rank, median(bytes_per_s) AS bytes_per_s FROM windows w
            WHERE NOT EXISTS (FROM late l WHERE l.job = w.job AND l.sender = w.rank
                AND l.started_ns < w.end_ns AND w.start_ns < l.ended_ns) GROUP BY ALL),
        requests AS (
            SELECT l.receiver, l.started_ns, l.sender, l.job,
                median(w.bytes_per_s / u.bytes_per_s) AS rate, max(w.oldest_ns) AS oldest_ns
            FROM late l JOIN windows w ON w.job = l.job AND w.rank = l.sender
                AND w.start_ns < l.ended_ns AND l.started_ns < w.end_ns
            LEFT JOIN baseline u ON u.job = l.job AND u.rank = l.sender GROUP BY ALL),
        ports AS (
            SELECT l.receiver, l.started_ns, l.sender, l.job,
                sum(rx_paused * r.took_ns) / sum(r.took_ns) FILTER (rx_paused IS NOT NULL)
                    AS paused, sum(coalesce(retransmits, 0) + coalesce(timeouts, 0)
                    + coalesce(link_downs, 0)) AS lost
            FROM late l JOIN nic_rates r ON r.node = l.node AND r.nic = l.nic
                AND r.since_ns < l.ended_ns AND l.started_ns < r.at_ns GROUP BY ALL),
        seen AS (
            SELECT * FROM late LEFT JOIN requests USING (job, sender, receiver, started_ns)
            LEFT JOIN ports USING (job, sender, receiver, started_ns))
        SELECT *, CASE WHEN oldest_ns >= $slower * took_ns OR rate < $slower
                OR paused > $paused OR lost > 0 THEN true
            WHEN rate >= $as_ever THEN false END AS network,
            CASE WHEN oldest_ns >= $slower * took_ns
                THEN 'a work request was outstanding for ' || oldest_ns // 1000000 || ' ms'
            WHEN rate < $slower THEN 'its work requests completed at '
                || round(100 * rate, 1) || ' % of their baseline rate'
            WHEN paused > $paused THEN 'its port was paused for '
                || round(100 * paused)::INTEGER || ' % of the time'
            WHEN lost > 0 THEN 'its port sent packets again, or lost its link, ' || lost || ' times'
            WHEN rate >= $as_ever THEN 'its work requests completed at '
                || round(100 * rate, 1) || ' % of their baseline rate' END AS says
        FROM seen
    """
