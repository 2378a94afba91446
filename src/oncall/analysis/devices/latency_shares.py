"""Each NIC's own share of the latencies that are measured between pairs of NICs.

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

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

LATENCIES = ("network", "host", "end_to_end")


@relation(
    "latency_shares",
    reads=["latency_split"],
    columns=[
        ("node", "VARCHAR", "", "host"),
        ("nic", "VARCHAR", "", "its NIC"),
        ("part", "INTEGER", "", "quarter of the time that pings span, from 0"),
        ("at_ns", "BIGINT", "ns", "first ping of it"),
        ("network_ns", "DOUBLE", "ns", "round trip between it and a median NIC, in the network"),
        ("host_ns", "DOUBLE", "ns", "the same inside the two hosts"),
        ("end_to_end_ns", "DOUBLE", "ns", "the same, both together"),
    ],
    source="TFD 3.2; additive shares are beyond the paper",
    params={
        "turns": Param(12, "at most; each halves what is left of the way"),
        "settled": Param("0.5 %", "of an ordinary share: a turn that changes less is the last"),
    },
)
def latency_shares(
    con: duckdb.DuckDBPyConnection, *, turns: int, settled: float
) -> Mapping[str, Any]:
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
            share = shares(rows["sender"][here], rows["target"][here], value, turns, settled)
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


def shares(sender: Ints, target: Ints, value: Floats, turns: int, settled: float) -> Floats:
    """The share (ends,) of each end in the `value` (n,) between pairs; NaN where none is known.

    At most so many turns, or until none changes by `settled` of an ordinary share.
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
    for _ in range(turns):
        # Half a step at a time: pairs alone would swap their shares for ever.
        step = (_medians(one, both - share[other], ends) - share) / 2
        share = share + step
        if np.nanmax(np.abs(step)) <= settled * abs(start):
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
