"""What each NIC's counters say of its link, its PCIe side and the network, in one row a NIC.

A burst is ordinary and a fault lasts: of shares and rates the third highest of the twelve parts of
the recording counts, of rare events their sum. Packets are counted as of 4 KiB, the largest of
RoCE: of smaller ones there are more, and shares are overstated by as much.
"""

from __future__ import annotations

from oncall.evidence import Param, relation

# Shares of packets, with the counter and the direction they are taken of.
_SHARES = {
    "lost": ("out_of_sequence", "rx_bytes", "packets that came out of sequence: some were lost"),
    "resent": ("retransmits", "tx_bytes", "packets sent again"),
    "marked": ("ecn_marked", "rx_bytes", "packets that were ECN-marked on their way here"),
    "dropped": ("rx_discards", "rx_bytes", "packets that the NIC dropped itself"),
}
_RATES = {
    "corrected_bits_per_s": "bits corrected on the wire",
    "link_errors_per_s": "symbol and CRC errors",
    "pcie_stalls_per_s": "waits for host memory",
    "pcie_errors_per_s": "errors of its PCIe link",
}
_TIMES = {
    "rx_paused": "the network paused it",
    "tx_paused": "it paused the network",
    "pcie_waiting": "it waited for host memory",
}
# What NICs are compared by: counts and milliseconds of a part of the recording.
_COMPARED = {
    "lost": "sum(out_of_sequence)",
    "resent": "sum(retransmits)",
    "marked": "sum(ecn_marked)",
    "dropped": "sum(rx_discards)",
    "link_errors": "sum(link_errors)",
    "corrected_bits": "sum(corrected_bits)",
    "tx_paused": "sum(tx_paused * took_ns) / 1e6",
}
_SHARES_SQL = ", ".join(
    # LEAST passes over NULL: what is not counted must not become all of it.
    f"CASE WHEN sum({moved}) > $least AND sum({count}) IS NOT NULL THEN "
    f"least(1, sum({count}) * $packet / sum({moved})) END AS {name}"
    for name, (count, moved, _) in _SHARES.items()
)
_RATES_SQL = ", ".join(
    f"sum({name.removesuffix('_per_s')}) * 1e9 / sum(took_ns) AS {name}" for name in _RATES
)
_TIMES_SQL = ", ".join(f"sum({name} * took_ns) / sum(took_ns) AS {name}" for name in _TIMES)
_COUNTS_SQL = ", ".join(f"{count} AS {name}_count" for name, count in _COMPARED.items())
_LASTING_SQL = ", ".join(
    f"coalesce(max({name}, $lasting)[$lasting], min({name})) AS {name}"
    for name in (*_SHARES, *_TIMES, *_RATES, *(f"{name}_count" for name in _COMPARED))
)


def _beyond() -> str:
    """How far each NIC's counts are above those of the quieter ones, in times of what these differ
    by. As logarithms, as what is ordinary differs by factors; half of the NICs may be a rail's."""
    logs = ", ".join(f"ln(1 + {name}_count) AS {name}" for name in _COMPARED)
    levels = ", ".join(f"quantile_cont({name}, [0.05, 0.2, 0.4]) AS {name}" for name in _COMPARED)
    beyond = ", ".join(
        f"(l.{name} - q.{name}[3]) / greatest($alike, q.{name}[2] - q.{name}[1], "
        f"q.{name}[3] - q.{name}[2]) AS {name}_beyond"
        for name in _COMPARED
    )
    return f"""
        logs AS (SELECT node, nic, {logs} FROM lasting),
        levels AS (SELECT {levels} FROM logs),
        compared AS (SELECT node, nic, {beyond} FROM logs l, levels q)
    """


def _lasting() -> str:
    """What lasted over several parts of the recording, by each NIC's counters."""
    return f"""
        span AS (
            SELECT min(since_ns) AS first_ns, (max(at_ns) - min(since_ns)) / $parts AS part_ns
            FROM nic_rates),
        parts AS (
            SELECT node, nic,
                least($parts - 1, floor((since_ns + took_ns // 2 - first_ns) / part_ns)) AS part,
                {_SHARES_SQL}, {_TIMES_SQL}, {_RATES_SQL}, {_COUNTS_SQL},
                sum(link_downs) AS link_downs,
                min(at_ns) FILTER (link_downs > 0) AS down_ns,
                count(*) FILTER (set_back) AS set_back
            FROM nic_rates, span GROUP BY ALL),
        lasting AS (
            SELECT node, nic, {_LASTING_SQL}, sum(link_downs)::BIGINT AS link_downs,
                sum(set_back)::BIGINT AS set_back, min(down_ns) AS down_ns
            FROM parts GROUP BY ALL)
    """


def _places() -> str:
    """Each NIC's rail, rates, PCIe port, rank and GPU."""
    return """
        rails AS (  -- NIC k of each node hangs on rail k: mlx5_2 before mlx5_10
            SELECT node, nic, dense_rank() OVER (PARTITION BY node ORDER BY
                nullif(regexp_extract(nic, '([0-9]+)$', 1), '')::BIGINT, nic) - 1 AS rail
            FROM (SELECT DISTINCT node, nic FROM nics)),
        widths AS (
            SELECT node, nic, quantile_disc(rate_bytes_per_s, 0.1) FILTER (link_up IS NOT false)
                    AS rate, quantile_disc(pcie_width / nullif(pcie_width_max, 0)
                    * pow(2.0, pcie_gen - pcie_gen_max), 0.1) AS pcie_share,
                CASE WHEN NOT arg_max(link_up, at_ns) THEN max(at_ns) FILTER (link_up) END
                    AS last_up_ns
            FROM nics GROUP BY ALL),
        users AS (
            SELECT node, nic, min(rank) AS rank,
                arg_min(gpu, (rank, gpu)) FILTER (rank IS NOT NULL) AS gpu FROM ranks
            WHERE nic IS NOT NULL GROUP BY ALL),
        ports AS (
            SELECT node, device AS nic, arg_max(pcie_port, (at_ns, pcie_port))
                FILTER (at_ns IS NOT NULL) AS pcie_port FROM devices
            WHERE kind = 'nic' GROUP BY ALL),
        beside AS (  -- GPUs with a NIC on their own port
            SELECT node, try_cast(g.device AS INTEGER) AS gpu, g.pcie_port AS gpu_port
            FROM devices g SEMI JOIN ports n ON n.node = g.node AND n.pcie_port = g.pcie_port
            WHERE g.kind = 'gpu' GROUP BY ALL)
    """


def _latencies() -> str:
    """By how much the latencies of its pings exceed those of all, in times of what they deviate by:
    from one NIC to the next, and from one quarter of the time to the next."""
    return """
        ordinary AS (
            SELECT part, median(host_ns) AS host_ns, median(network_ns) AS network_ns
            FROM latency_shares GROUP BY part),
        beyond AS (
            SELECT node, nic, s.part, s.host_ns - o.host_ns AS host_ns,
                s.network_ns - o.network_ns AS network_ns
            FROM latency_shares s JOIN ordinary o USING (part)),
        noise AS (
            SELECT median(abs(host_ns)) AS host, median(abs(network_ns)) AS network FROM beyond),
        recent AS (
            FROM beyond QUALIFY row_number() OVER (PARTITION BY node, nic ORDER BY part DESC)
                <= $lasting),
        latencies AS (
            SELECT node, nic, median(host_ns) AS host_ns,
                median(host_ns) / nullif(any_value(host), 0) AS host_beyond,
                median(network_ns) / nullif(any_value(network), 0) AS network_beyond
            FROM recent, noise GROUP BY ALL)
    """


@relation(
    "nic_symptoms",
    reads=["nics|gpus|hosts|host_processes"],
    columns=[
        "node nic",
        ("rank", "INTEGER", "", "the lowest rank that uses it"),
        ("gpu", "INTEGER", "", "that rank's GPU"),
        ("rail", "INTEGER", "", "place of the NIC among those of its node, from 0"),
        ("pcie_port", "VARCHAR", "", "the PCIe port above it"),
        ("far", "BOOLEAN", "", "that GPU is below another port, which has a NIC of its own"),
        *((name, "DOUBLE", "ratio", doc) for name, (_, _, doc) in _SHARES.items()),
        *((name, "DOUBLE", "ratio", f"share of time that {doc}") for name, doc in _TIMES.items()),
        *((name, "DOUBLE", "1/s", doc) for name, doc in _RATES.items()),
        *(
            (f"{name}_beyond", "DOUBLE", "", f"{name} against all NICs, in times of their spread")
            for name in _COMPARED
        ),
        ("pcie_stalled", "BOOLEAN", "", "waits for host memory far more often than other NICs"),
        "link_downs",
        ("set_back", "BIGINT", "", "times its counters restarted: the adapter was reset"),
        ("down_ns", "BIGINT", "ns", "first reading after the link went down"),
        ("last_up_ns", "BIGINT", "ns", "last reading before it went down for good"),
        ("pcie_share", "DOUBLE", "ratio", "least PCIe bandwidth, as share of the maximum"),
        ("link_share", "DOUBLE", "ratio", "lowest rate of an up link, of its rail's best"),
        ("host_ns", "DOUBLE", "ns", "host-internal latency of its pings, beyond that of all"),
        ("host_beyond", "DOUBLE", "", "the same in times of the median deviation"),
        ("network_beyond", "DOUBLE", "", "the same of its latency in the network"),
    ],
    source="TFD 3.3, 4.2",
    params={
        "parts": Param(12, "of the recording: an ordinary burst fills one, a fault several"),
        "lasting": Param(3, "parts of the recording: a burst is ordinary and a fault lasts"),
        "alike": Param(0.35, "in logarithms: counts that differ by a factor of 1.4 are alike"),
        "packet": Param(
            "4 KiB",
            "the largest packet of RoCE: of smaller ones there are more, and shares are "
            "overstated by as much",
        ),
        "least": Param("200 MB", "of a part: with less traffic no share is computed"),
        "least_stalls": Param(
            0.2,
            "waits for host memory a second: ConnectX counts seconds full of them, and one in "
            "some seconds is the least",
        ),
        "least_waiting": Param("2 %", "of the time, the pauses of its traffic included"),
        "stalls_beyond": Param(
            10, "times the median of all NICs: what a NIC counts as a wait for host memory differs"
        ),
    },
)
def nic_symptoms() -> str:
    """Each NIC with what its counters and pings say, over the recording."""
    return f"""
        WITH {_lasting()}, {_beyond()}, {_places()}, {_latencies()}
        SELECT l.*, c.* EXCLUDE (node, nic), u.rank, u.gpu, r.rail, p.pcie_port,
            p.pcie_port <> b.gpu_port AS far,
            k.pcie_share, k.last_up_ns,
            greatest(
                pcie_stalls_per_s > greatest($least_stalls,
                    $stalls_beyond * median(pcie_stalls_per_s) OVER ()),
                pcie_waiting > greatest($least_waiting,
                    $stalls_beyond * median(pcie_waiting) OVER ())) AS pcie_stalled,
            k.rate / max(k.rate) OVER (PARTITION BY r.rail) AS link_share, host_ns, host_beyond,
            network_beyond
        FROM lasting l JOIN compared c USING (node, nic) JOIN rails r USING (node, nic)
        JOIN widths k USING (node, nic)
        LEFT JOIN users u USING (node, nic) LEFT JOIN ports p USING (node, nic)
        LEFT JOIN beside b ON b.node = l.node AND b.gpu = u.gpu
        LEFT JOIN latencies USING (node, nic)
    """
