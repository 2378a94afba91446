"""Each node's measures of its network, side by side with the other nodes' (TFD 3.3).

One row is one measure of one node in one quarter of the recording. Nodes of a job do alike work, so
the fleet says what is ordinary now; the first quarter says what was ordinary for the node itself.
Whatever is not measured has no row.
"""

from __future__ import annotations

from oncall.evidence import Param, relation

# metric -> counters of nic_rates that it adds up, as a rate a second over a node's worst NIC
_RATES = {
    "congestion": ("cnp_handled", "cnp_sent"),
    "repeats": ("retransmits", "out_of_sequence", "timeouts"),
}
_LATENCIES = ("host_latency", "network_latency", "end_to_end_latency")


def _sums() -> str:
    """Each rate metric as an aggregate; NULL where none of its counters is read."""
    whole = "sum(took_ns) / 1e9"
    parts = [
        f"(CASE WHEN {' + '.join(f'count({c})' for c in counters)} > 0 THEN "
        f"({' + '.join(f'coalesce(sum({c}), 0)' for c in counters)}) / ({whole}) END) AS {metric}"
        for metric, counters in _RATES.items()
    ]
    paused = "sum(greatest(coalesce(rx_paused, 0), coalesce(tx_paused, 0)) * took_ns)"
    parts.append(
        f"CASE WHEN count(rx_paused) + count(tx_paused) > 0 THEN {paused} / sum(took_ns) END "
        "AS paused"
    )
    return ", ".join(parts)


@relation(
    "node_metrics",
    reads=["pings|nics"],
    columns=[
        "node",
        ("metric", "VARCHAR", "", "host_latency, send_fall, congestion, ..."),
        ("part", "INTEGER", "", "quarter of the recording, from 0"),
        ("nic", "VARCHAR", "", "the NIC of the node that is worst in it"),
        ("at_ns", "BIGINT", "ns", "its begin"),
        ("value", "DOUBLE", "", "latencies in ns, counts a second, shares; of send and receive "
         "rate what is missing to the NIC's own first quarter"),
        ("baseline", "DOUBLE", "", "the same in the node's first quarter"),
        ("fleet", "DOUBLE", "", "median of all nodes in this quarter"),
        ("spread", "DOUBLE", "", "how far nodes are from the fleet: the median"),
        ("nodes", "INTEGER", "", "nodes that have this measure"),
    ],
    source="TFD 3.3",
    params={
        "parts": "latency_split.parts",
        "idle": Param("10 MB/s", "a NIC that never sends faster is not used"),
    },
)  # fmt: skip
def node_metrics() -> str:
    """Latencies, losses, rates and symptoms of congestion of each node, with their baselines."""
    latencies = ", ".join(f"{name.removesuffix('_latency')}_ns AS {name}" for name in _LATENCIES)
    counted = ", ".join((*_RATES, "paused"))
    return f"""
        WITH span AS (
            SELECT min(since_ns) AS first_ns, (max(at_ns) - min(since_ns)) / $parts AS part_ns
            FROM nic_rates),
        latencies AS (
            SELECT s.node, s.nic, s.part, s.at_ns, {latencies}, l.lost FROM latency_shares s
            JOIN (SELECT node, nic, part, sum(lost) / sum(pings) AS lost FROM latency_split
                  GROUP BY ALL) l
                ON l.node = s.node AND l.nic IS NOT DISTINCT FROM s.nic AND l.part = s.part),
        counted AS (
            SELECT node, nic,
                least($parts - 1, floor((since_ns + took_ns // 2 - first_ns) / part_ns))::INTEGER
                    AS part, min(since_ns) AS at_ns, {_sums()},
                -- A NIC that is idle half of the time sends half as much: its high rates count.
                quantile_cont(tx_bytes_per_s, 0.9) AS tx, quantile_cont(rx_bytes_per_s, 0.9) AS rx
            FROM nic_rates, span GROUP BY ALL),
        rates AS (
            SELECT p.node, p.nic, p.part, p.at_ns,
                CASE WHEN f.tx > $idle THEN 1 - p.tx / f.tx END AS send_fall,
                CASE WHEN f.rx > $idle THEN 1 - p.rx / f.rx END AS receive_fall
            FROM counted p JOIN counted f ON f.node = p.node AND f.nic = p.nic AND f.part = 0),
        measured AS (
            UNPIVOT latencies ON {", ".join(_LATENCIES)}, lost INTO NAME metric VALUE value
            UNION ALL BY NAME
            UNPIVOT counted ON {counted} INTO NAME metric VALUE value
            UNION ALL BY NAME
            UNPIVOT rates ON send_fall, receive_fall INTO NAME metric VALUE value),
        worst AS (
            SELECT node, metric, part, min(at_ns) AS at_ns, arg_max(nic, (value, nic)) AS nic,
                max(value) AS value
            FROM measured WHERE value IS NOT NULL GROUP BY node, metric, part),
        fleets AS (
            SELECT metric, part, median(value) AS fleet, count(*) AS nodes FROM worst GROUP BY ALL),
        spreads AS (
            SELECT metric, median(abs(value - fleet)) AS spread
            FROM worst JOIN fleets USING (metric, part) GROUP BY ALL)
        SELECT w.*, f.fleet, f.nodes, s.spread, u.value AS baseline
        FROM worst w JOIN fleets f USING (metric, part) JOIN spreads s USING (metric)
        LEFT JOIN worst u ON u.node = w.node AND u.metric = w.metric AND u.part = 0
    """
