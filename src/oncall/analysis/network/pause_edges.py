"""Which port waited for which, as pauses spread: the edges e(p, p) of the provenance graph."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

import duckdb

from oncall.analysis.network.network_paths import Network, network_of
from oncall.analysis.network.pause_paths import queues_behind, spreading
from oncall.analysis.network.step_views import INPUTS, Thresholds, views
from oncall.evidence import params_of, relation


@relation(
    "pause_edges",
    reads=["late_steps"],
    optional=INPUTS,
    empty_without=["late_steps", "step_ports"],
    columns=[
        ("id", "INTEGER", "", "the late step"),
        ("switch", "VARCHAR", "", "device of a port that was stopped"),
        ("port", "INTEGER", "", "that port"),
        ("next_switch", "VARCHAR", "", "the device it leads to"),
        ("next_port", "INTEGER", "", "port of that device that it waited for"),
        ("weight", "DOUBLE", "", "traffic ratio w(p_i, p_j)"),
        ("paused_ns", "DOUBLE", "ns", "the port was stopped"),
    ],
    source="Vedrfolnir III-D1: e(p, p)",
    params=params_of(Thresholds, of="network_roots"),
)
def pause_edges(con: duckdb.DuckDBPyConnection, **params: Any) -> Mapping[str, Any]:
    """Which port waited for which, as pauses spread; weighted by traffic where that was metered."""
    net = network_of(con)
    meters = _meters(con, net)
    rows: list[tuple[Any, ...]] = []
    for step, view in views(con, net, Thresholds(**params)):
        edges = {
            port: nexts + [q for q in queues_behind(view, net, port) if q not in nexts]
            for port, nexts in spreading(view, net).items()
        }
        into: dict[int, list[int]] = defaultdict(list)
        for port, nexts in edges.items():
            for after in nexts:
                into[after].append(port)
        for port, nexts in edges.items():
            for after in nexts:
                ends = (*net.ports[port], *net.ports[after])
                weight = _traffic_ratio(meters, net, port, into[after], after)
                rows.append((step[0], *ends, weight, view.paused[port][0]))
    names = ("id", "switch", "port", "next_switch", "next_port", "weight", "paused_ns")
    return {name: [row[i] for row in rows] for i, name in enumerate(names)}


def _traffic_ratio(
    meters: Mapping[tuple[int, int], float], net: Network, port: int, feeding: list[int], after: int
) -> float:
    """Of what all stopped ports send into `after`, the part of `port`.

    Switches meter what they were asked for: who was not metered counts as the mean of the others.
    """
    metered = {p: meters.get((int(net.back[p]), after)) for p in feeding}
    known = [sent for sent in metered.values() if sent is not None]
    if not sum(known):
        return 1 / len(feeding)
    mean = sum(known) / len(known)
    sent = {p: mean if flow is None else flow for p, flow in metered.items()}
    return sent[port] / sum(sent.values())


def _meters(con: duckdb.DuckDBPyConnection, net: Network) -> dict[tuple[int, int], float]:
    rows = con.execute(
        "SELECT switch, from_port, to_port, sum(bytes) FROM switch_meters GROUP BY ALL"
    ).fetchall()
    return {
        (net.number[s, a], net.number[s, b]): float(n or 0)
        for s, a, b, n in rows
        if (s, a) in net.number and (s, b) in net.number
    }
