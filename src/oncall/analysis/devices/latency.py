"""Latency split into the part of the network and the part of the hosts at its ends, and into each
NIC's own share.

    network     = UDP ping, stamped as near to the wire as the NIC can
    end_to_end  = RDMA UD ping, seen by the program
    host        = end_to_end - network          (TFD 3.3; eq. 1 and 2)

Each is a median over the pings between two NICs in a part of the time, so that a single slow answer
says nothing and a change within the recording shows.

A ping that passes a slow host is slow from both ends, so a node's own pings do not show whether it
or its targets are slow. What is measured between i and j is taken as a share of i plus one of j;
each share is the median of what its pairs leave for it, found by turns. Where only two NICs ping
each other, the sum is shared equally: nothing distinguishes them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import duckdb
import numpy as np
import numpy.typing as npt

from oncall.evidence import Param, relation


@relation(
    "latency_split",
    reads=["pings"],
    columns=[
        ("node", "VARCHAR", "", "the node that pings"),
        "nic",
        ("target_node", "VARCHAR", "", "the node that answers"),
        ("target_nic", "VARCHAR", "", "its NIC"),
        ("part", "INTEGER", "", "which quarter of the time that pings span, from 0"),
        ("at_ns", "BIGINT", "ns", "first ping of it"),
        ("network_ns", "BIGINT", "ns", "median round trip of UDP pings"),
        ("end_to_end_ns", "BIGINT", "ns", "median round trip of RDMA pings"),
        ("host_ns", "BIGINT", "ns", "the rest of that without the network, at least 0"),
        ("pings", "BIGINT", "", "pings sent"),
        ("lost", "BIGINT", "", "of these without an answer"),
    ],
    source="TFD 3.2 eq. 1-2, 3.3",
    params={"parts": Param(4, "of the time that pings span; the first is the baseline")},
)
def latency_split() -> str:
    """Network, end-to-end and host-internal latency between NICs, in each quarter of the time."""
    return """
        WITH span AS (SELECT min(at_ns) AS first_ns, max(at_ns) + 1 AS until_ns FROM pings),
        placed AS (
            SELECT p.*, $parts * (at_ns - first_ns) // (until_ns - first_ns) AS part,
                coalesce(lost, rtt_ns IS NULL) AS gone,
                CASE WHEN rtt_ns >= 0 AND NOT coalesce(lost, false) THEN rtt_ns END AS took_ns
            FROM pings p, span),
        split AS (
            SELECT node, nic, target_node, target_nic, part, min(at_ns) AS at_ns,
                median(took_ns) FILTER (kind = 'network') AS network_ns,
                median(took_ns) FILTER (kind = 'end_to_end') AS end_to_end_ns,
                count(*) AS pings, count(*) FILTER (gone) AS lost
            FROM placed GROUP BY ALL)
        SELECT *, CASE WHEN end_to_end_ns < network_ns THEN 0 ELSE end_to_end_ns - network_ns END
            AS host_ns
        FROM split
    """


Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

LATENCIES = ("network", "host", "end_to_end")
_TURNS = 12
_SETTLED = 0.005  # of an ordinary share


@relation(
    "latency_shares",
    reads=["latency_split"],
    columns=[
        "node nic part at_ns",
        ("network_ns", "DOUBLE", "ns", "round trip between it and a median NIC, in the network"),
        ("host_ns", "DOUBLE", "ns", "the same inside the two hosts"),
        ("end_to_end_ns", "DOUBLE", "ns", "the same, both together"),
    ],
    source="TFD 3.2; additive shares are beyond the paper",
)
def latency_shares(con: duckdb.DuckDBPyConnection) -> Mapping[str, Any]:
    """What a ping between each NIC and an ordinary one takes, in each quarter of the time."""
    rows = con.execute(
        f"""
        WITH ends AS (
            SELECT *, node || ' ' || coalesce(nic, '') AS a,
                target_node || ' ' || coalesce(target_nic, '') AS b FROM latency_split),
        names AS (SELECT a AS name FROM ends UNION SELECT b FROM ends),
        numbers AS (SELECT name, row_number() OVER (ORDER BY name) - 1 AS number FROM names)
        SELECT x.number AS sender, y.number AS target, node, nic, part, at_ns,
            {", ".join(f"{name}_ns::DOUBLE AS {name}_ns" for name in LATENCIES)}
        FROM ends JOIN numbers x ON x.name = a JOIN numbers y ON y.name = b
        WHERE a <> b ORDER BY part, sender, target
        """
    ).fetchnumpy()
    found: dict[str, list[Any]] = {name: [] for name in ("node", "nic", "part", "at_ns")}
    measured: dict[str, list[Floats]] = {f"{name}_ns": [] for name in LATENCIES}
    for part in np.unique(rows["part"]):
        here = np.flatnonzero(rows["part"] == part)
        # Only who pings is named: a target's share follows from its own pings.
        senders, first = np.unique(rows["sender"][here], return_index=True)
        for name in found:
            found[name].append(rows[name][here[first]])
        for name, columns in measured.items():
            value = np.ma.filled(rows[name][here], np.nan)
            share = shares(rows["sender"][here], rows["target"][here], value)
            ordinary = share[~np.isnan(share)]
            columns.append(share[senders] + (np.median(ordinary) if len(ordinary) else np.nan))
    joined: dict[str, Any] = {
        name: np.concatenate(parts) if parts else []
        for name, parts in {**found, **measured}.items()
    }
    return {
        name: np.ma.masked_invalid(column) if name in measured else column
        for name, column in joined.items()
    }


def shares(sender: Ints, target: Ints, value: Floats) -> Floats:
    """The share (ends,) of each end in the `value` (n,) between pairs; NaN where none is known.

    Each turn halves what is left of the way; the last one changes none noticeably.
    """
    known = ~np.isnan(value)
    ends = int(max(sender.max(initial=-1), target.max(initial=-1))) + 1
    one = np.concatenate([sender[known], target[known]])
    other = np.concatenate([target[known], sender[known]])
    both = np.concatenate([value[known], value[known]])
    share = np.full(ends, np.nan)
    if not len(both):
        return share
    start = float(np.median(both)) / 2
    share[np.unique(one)] = start
    for _ in range(_TURNS):
        # Half a step at a time: pairs alone would swap their shares for ever.
        step = (_medians(one, both - share[other], ends) - share) / 2
        share = share + step
        if np.nanmax(np.abs(step)) <= _SETTLED * abs(start):
            break
    return share


def _medians(group: Ints, value: Floats, groups: int) -> Floats:
    """The median of the values of each group; NaN for a group without any."""
    order = np.lexsort((value, group))
    sizes = np.bincount(group, minlength=groups)
    ends = np.cumsum(sizes)
    low, high = ends - sizes + (sizes - 1) // 2, ends - sizes + sizes // 2
    median = np.full(groups, np.nan)
    some = sizes > 0
    ordered = value[order]
    median[some] = (ordered[low[some]] + ordered[high[some]]) / 2
    return median
