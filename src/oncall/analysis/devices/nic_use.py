"""What NICs achieve while they are used: their rates beside the operations that use them.

A NIC that is idle half of the time sends half as much without anything being wrong. So its highest
rate counts, and what it sent over the time its rank took part in operations across nodes.
"""

from __future__ import annotations

from oncall.evidence import Param, relation

# NIC k of each node hangs on rail k: mlx5_2 before mlx5_10.
RAILS = """
    SELECT node, nic, dense_rank() OVER (PARTITION BY node ORDER BY
        nullif(regexp_extract(nic, '([0-9]+)$', 1), '')::BIGINT, nic) - 1 AS rail
    FROM (SELECT DISTINCT node, nic FROM nics)
"""


@relation(
    "nic_use",
    reads=["nic_rates", "nics"],
    optional=["ranks", "operations", "group_places"],
    columns=[
        ("node", "VARCHAR", "", "host"),
        ("nic", "VARCHAR", "", "RDMA device"),
        ("port", "INTEGER", "", "port number"),
        ("rank", "INTEGER", "", "the lowest rank that uses it, if known"),
        ("rail", "INTEGER", "", "place of the NIC among those of its node, from 0"),
        ("part", "INTEGER", "", "which twelfth of the recording, from 0"),
        ("at_ns", "BIGINT", "ns", "its begin"),
        ("tx_bytes", "BIGINT", "bytes", "sent"),
        ("rx_bytes", "BIGINT", "bytes", "received"),
        ("tx_bytes_per_s", "DOUBLE", "bytes/s", "mean rate of sending"),
        ("rx_bytes_per_s", "DOUBLE", "bytes/s", "mean rate of receiving"),
        ("peak_tx_bytes_per_s", "DOUBLE", "bytes/s", "highest rate of sending"),
        ("peak_rx_bytes_per_s", "DOUBLE", "bytes/s", "highest rate of receiving"),
        ("busy", "DOUBLE", "ratio", "share of time its ranks were in operations across nodes"),
        ("used_bytes_per_s", "DOUBLE", "bytes/s", "sent over that time; NULL where none is known"),
        ("link_bytes_per_s", "BIGINT", "bytes/s", "link rate"),
    ],
    source="TFD 2.3-2.4, Fig. 4",
    params={"parts": Param(12, "of the recording: a burst fills one, a fault several")},
)
def nic_use() -> str:
    """Rates of each NIC in each twelfth of the recording, and while its ranks communicated."""
    return f"""
        WITH span AS (
            SELECT min(since_ns) AS first_ns, (max(at_ns) - min(since_ns)) / $parts AS part_ns
            FROM nic_rates),
        rails AS ({RAILS}),
        readings AS (
            SELECT node, nic, port,
                least($parts - 1, floor((since_ns + took_ns // 2 - first_ns) / part_ns))::INTEGER
                    AS part,
                min(since_ns) AS at_ns, sum(tx_bytes) AS tx_bytes, sum(rx_bytes) AS rx_bytes,
                sum(took_ns) AS took_ns, max(tx_bytes_per_s) AS peak_tx_bytes_per_s,
                max(rx_bytes_per_s) AS peak_rx_bytes_per_s,
                max(link_bytes_per_s) AS link_bytes_per_s
            FROM nic_rates, span WHERE tx_bytes IS NOT NULL OR rx_bytes IS NOT NULL GROUP BY ALL),
        crossing AS (
            SELECT r.node, r.nic,
                least($parts - 1, floor((o.entered_ns - first_ns) / part_ns))::INTEGER AS part,
                sum(o.duration_ns * coalesce(o.stands_for, 1)) AS busy_ns
            FROM operations o JOIN group_places g ON g.job = o.job AND g.comm = o.comm AND g.across
            JOIN ranks r ON r.job = o.job AND r.rank = o.rank, span
            WHERE o.done AND o.entered_ns >= first_ns GROUP BY ALL),
        users AS (SELECT node, nic, min(rank) AS rank FROM ranks WHERE nic IS NOT NULL GROUP BY ALL)
        SELECT t.*, u.rank, l.rail, t.tx_bytes * 1e9 / took_ns AS tx_bytes_per_s,
            t.rx_bytes * 1e9 / took_ns AS rx_bytes_per_s, CASE WHEN c.busy_ns IS NOT NULL
                THEN least(1, c.busy_ns / took_ns) END AS busy,
            CASE WHEN c.busy_ns > 0 THEN t.tx_bytes * 1e9 / c.busy_ns END AS used_bytes_per_s
        FROM readings t LEFT JOIN rails l USING (node, nic) LEFT JOIN users u USING (node, nic)
        LEFT JOIN crossing c USING (node, nic, part)
    """
