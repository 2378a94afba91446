"""NIC counters as what happened between two readings, and what NICs achieve while they are used.

A NIC that is idle half of the time sends half as much without anything being wrong. So its highest
rate counts, and what it sent over the time its rank took part in operations across nodes.
"""

from __future__ import annotations

from collections.abc import Sequence

from oncall.analysis.common.counters import (
    BYTE_WRAPS,
    MOST_BYTES_PER_NS,
    MOST_EVENTS_PER_NS,
    WRAPS,
    increase,
    per_second,
    readings,
    share,
)
from oncall.evidence import Param, relation

_PORT = [
    "node nic port",
]
_INTERVAL = [
    ("since_ns", "BIGINT", "ns", "the reading before"),
    ("at_ns", "BIGINT", "ns", "this reading"),
    ("took_ns", "BIGINT", "ns", "time between them"),
]
_TRAFFIC = [
    ("tx_bytes", "BIGINT", "bytes", "sent in the interval"),
    ("rx_bytes", "BIGINT", "bytes", "received in it"),
    ("tx_bytes_per_s", "DOUBLE", "bytes/s", "rate of sending; NULL over more than 30 s"),
    ("rx_bytes_per_s", "DOUBLE", "bytes/s", "rate of receiving"),
]

# Counters of events, with what they count.
_EVENTS = {
    "cnp_sent": "congestion notifications sent",
    "cnp_handled": "congestion notifications handled",
    "ecn_marked": "ECN-marked packets received",
    "out_of_sequence": "packets out of sequence",
    "retransmits": "retransmissions",
    "timeouts": "local ACK timeouts",
    "pfc_rx_pause": "pause frames received",
    "pfc_tx_pause": "pause frames sent",
    "pause_storms": "pause storms",
    "link_downs": "times the link went down",
    "link_errors": "symbol and CRC errors, link recoveries",
    "corrected_bits": "bits corrected by error correction",
    "rx_discards": "packets dropped on arrival",
    "tx_discards": "packets dropped before they were sent",
    "out_of_buffer": "receives without a work request",
    "pcie_stalls": "times the NIC waited for host memory",
    "pcie_overflows": "overflows of its buffer towards PCIe",
    "pcie_errors": "errors of its PCIe link",
}
_COUNTERS = ("tx_bytes", "rx_bytes", *_EVENTS, "pfc_rx_pause_ns", "pfc_tx_pause_ns")
_BYTES = ("tx_bytes", "rx_bytes")


def _grown(counters: Sequence[str], table: str, port: str) -> str:
    """SQL: rows of `table` with what each counter grew by since the reading before of its port."""
    grown = ", ".join(
        f"{increase(name, BYTE_WRAPS, MOST_BYTES_PER_NS)} AS {name}"
        if name in _BYTES
        else f"{increase(name, WRAPS, MOST_EVENTS_PER_NS)} AS {name}"
        for name in counters
    )
    fell = " AND ".join(f"{name} < {name}_0" for name in _BYTES)
    wrapped = " AND ".join(f"({increase(name, BYTE_WRAPS)}) IS NOT NULL" for name in _BYTES)
    return f"""
        grown AS (
            SELECT * REPLACE ({grown}), {fell} AND NOT ({wrapped}) AS set_back
            FROM (SELECT *, at_ns - since_ns AS took_ns FROM ({readings(table, counters, port)}))
            WHERE took_ns > 0)
    """


@relation(
    "nic_rates",
    reads=["nics"],
    columns=[
        *_PORT,
        *_INTERVAL,
        *_TRAFFIC,
        ("rx_paused", "DOUBLE", "ratio", "share of the time that the network paused it"),
        ("tx_paused", "DOUBLE", "ratio", "share of the time that it paused the network"),
        *((name, "BIGINT", "", f"{doc}, in the interval") for name, doc in _EVENTS.items()),
        ("pcie_waiting", "DOUBLE", "ratio", "share of its last second that it waited for PCIe"),
        ("set_back", "BOOLEAN", "", "both its byte counters fell: they were reset"),
        ("link_up", "BOOLEAN", "", "link state at its end"),
        ("link_bytes_per_s", "BIGINT", "bytes/s", "link rate at its end"),
    ],
    source="TFD 2.3, 3.2",
    params={"longest": Param("30 s", "between two readings: over longer, a count shows no rate")},
)
def nic_rates() -> str:
    """What each port did between two readings; NULL where a counter was set back or is absent.

    Increases are whole however long the interval, so sums of them hold on thinned readings too.
    """
    return f"""
        WITH {_grown(_COUNTERS, "nics", "node, nic, port")}
        SELECT *, rate_bytes_per_s AS link_bytes_per_s, {per_second("tx_bytes")} AS tx_bytes_per_s,
            {per_second("rx_bytes")} AS rx_bytes_per_s,
            {share("pfc_rx_pause_ns")} AS rx_paused, {share("pfc_tx_pause_ns")} AS tx_paused
        FROM grown
    """


_PRIORITY_COUNTERS = (
    "tx_bytes",
    "rx_bytes",
    "rx_pause",
    "tx_pause",
    "rx_pause_ns",
    "tx_pause_ns",
    "discards",
)


@relation(
    "priority_rates",
    reads=["nic_priorities"],
    columns=[
        *_PORT,
        ("priority", "INTEGER", "", "priority, 0 to 7"),
        *_INTERVAL,
        *_TRAFFIC,
        ("rx_paused", "DOUBLE", "ratio", "share of the time that the network paused it"),
        ("tx_paused", "DOUBLE", "ratio", "share of the time that it paused the network"),
        ("rx_pause", "BIGINT", "frames", "pause frames received in the interval"),
        ("tx_pause", "BIGINT", "frames", "pause frames sent in it"),
        ("discards", "BIGINT", "packets", "packets dropped in it"),
    ],
    source="TFD 3.2",
    view=True,
    params={"longest": "nic_rates.longest"},
)
def priority_rates() -> str:
    """What each priority of each port did between two readings."""
    return f"""
        WITH {_grown(_PRIORITY_COUNTERS, "nic_priorities", "node, nic, port, priority")}
        SELECT *, {per_second("tx_bytes")} AS tx_bytes_per_s,
            {per_second("rx_bytes")} AS rx_bytes_per_s,
            {share("rx_pause_ns")} AS rx_paused, {share("tx_pause_ns")} AS tx_paused
        FROM grown
    """


# NIC k of each node hangs on rail k: mlx5_2 before mlx5_10.
RAILS = """
    SELECT node, nic, dense_rank() OVER (PARTITION BY node ORDER BY
        nullif(regexp_extract(nic, '([0-9]+)$', 1), '')::BIGINT, nic) - 1 AS rail
    FROM (SELECT DISTINCT node, nic FROM nics)
"""


@relation(
    "nic_use",
    reads=["nic_rates", "nics"],
    columns=[
        "node nic port",
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
    params={"parts": Param(12, "of the recording: an ordinary burst fills one, a fault several")},
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
