"""Latency split into the part of the network and the part of the hosts at its ends take.

    network     = UDP ping, stamped as near to the wire as the NIC can
    end_to_end  = RDMA UD ping, seen by the program
    host        = end_to_end - network          (TFD 3.3; eq. 1 and 2)

Each is a median over the pings between two NICs in a part of the time, so that a single slow answer
says nothing and a change within the recording shows.
"""

from __future__ import annotations

from oncall.evidence import Param, relation

CLOCKS = ["nic", "kernel", "program"]  # who stamps pings, the finest first


@relation(
    "latency_split",
    reads=["pings"],
    columns=[
        ("node", "VARCHAR", "", "the node that pings"),
        ("nic", "VARCHAR", "", "its NIC"),
        ("target_node", "VARCHAR", "", "the node that answers"),
        ("target_nic", "VARCHAR", "", "its NIC"),
        ("part", "INTEGER", "", "which quarter of the time that pings span, from 0"),
        ("at_ns", "BIGINT", "ns", "first ping of it"),
        ("network_ns", "BIGINT", "ns", "median round trip of UDP pings"),
        ("network_high_ns", "BIGINT", "ns", "nine in ten of them are below"),
        ("end_to_end_ns", "BIGINT", "ns", "median round trip of RDMA pings"),
        ("host_ns", "BIGINT", "ns", "the rest of that without the network, at least 0"),
        ("target_ns", "BIGINT", "ns", "median turnaround of the one that answers"),
        ("pings", "BIGINT", "", "pings sent"),
        ("lost", "BIGINT", "", "of these without an answer"),
        (
            "clock",
            "VARCHAR",
            "",
            "where the UDP pings got their time stamps, the coarsest: nic, kernel or program",
        ),
    ],
    source="TFD 3.2 eq. 1-2, 3.3",
    params={"parts": Param(4, "of the time that pings span; the first is the baseline")},
)
def latency_split() -> str:
    """Network, end-to-end and host-internal latency between NICs, in each quarter of the time."""
    return f"""
        WITH span AS (SELECT min(at_ns) AS first_ns, max(at_ns) + 1 AS until_ns FROM pings),
        placed AS (
            SELECT p.*, $parts * (at_ns - first_ns) // (until_ns - first_ns) AS part,
                coalesce(lost, rtt_ns IS NULL) AS gone,
                CASE WHEN rtt_ns >= 0 AND NOT coalesce(lost, false) THEN rtt_ns END AS took_ns
            FROM pings p, span),
        split AS (
            SELECT node, nic, target_node, target_nic, part, min(at_ns) AS at_ns,
                median(took_ns) FILTER (kind = 'network') AS network_ns,
                quantile_cont(took_ns, 0.9) FILTER (kind = 'network') AS network_high_ns,
                median(took_ns) FILTER (kind = 'end_to_end') AS end_to_end_ns,
                median(target_ns) AS target_ns, count(*) AS pings, count(*) FILTER (gone) AS lost,
                -- The coarsest clock says what the network's figure may hold besides.
                arg_max(clock, list_position({CLOCKS}, clock)) FILTER (kind = 'network') AS clock
            FROM placed GROUP BY ALL)
        SELECT *, CASE WHEN end_to_end_ns < network_ns THEN 0 ELSE end_to_end_ns - network_ns END
            AS host_ns
        FROM split
    """
