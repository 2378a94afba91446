"""Loops: flows that come back to a switch, and links on which packets are sent back."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import duckdb
import numpy as np

from oncall.analysis.common.graph import components
from oncall.analysis.network.network_paths import Network, label, labels, network_of
from oncall.analysis.network.step_views import INPUTS
from oncall.evidence import relation

_COLUMNS = [
    ("flow", "BIGINT", "", "the flow in the loop; NULL: neither reported nor inferred"),
    ("name", "VARCHAR", "", "what to call it"),
    ("ports", "VARCHAR[]", "", "the ports of the loop, one after the other"),
    ("astray", "VARCHAR[]", "", "of these, those that lead away from its receiver, if any do"),
    ("first_ns", "BIGINT", "ns", "first observed in the loop, or since when both are stopped"),
    ("last_ns", "BIGINT", "ns", "last observed there"),
]
_Loop = tuple[int | None, str | None, list[str], list[str] | None, int, int]


@relation(
    "forwarding_loops",
    reads=["late_steps"],
    optional=["network_roots", *INPUTS],
    empty_without=["switch_flows|network_roots"],
    columns=_COLUMNS,
    source="Vedrfolnir II-B (loops)",
    params={"storm_ns": "network_roots.storm_ns"},
)
def forwarding_loops(con: duckdb.DuckDBPyConnection, *, storm_ns: int) -> Mapping[str, Any]:
    """Flows seen at ports that form a loop, and links whose ends stop each other, which only what
    is sent back as it came can do."""
    net = network_of(con)
    found = list(_looping_flows(con, net))
    reported = [set(ports) for _, _, ports, *_ in found]
    found += [
        loop
        for loop in _looping_links(con, net, storm_ns)
        if not any(ports >= set(loop[2]) for ports in reported)
    ]
    return {column[0]: [row[i] for row in found] for i, column in enumerate(_COLUMNS)}


def _looping_flows(con: duckdb.DuckDBPyConnection, net: Network) -> Iterator[_Loop]:
    """Flows that return to a device they have passed, within one telemetry epoch. A flow that was
    rerouted is seen on both routes, but not in the same epoch."""
    seen: dict[tuple[int, int], dict[int, tuple[int, int]]] = defaultdict(dict)
    rows = con.execute(
        """SELECT flow, at_ns // greatest(coalesce(epoch_ns, 1), 1) AS epoch, switch, port,
            min(at_ns), max(at_ns) FROM switch_flows WHERE packets > 0 GROUP BY ALL ORDER BY ALL"""
    ).fetchall()
    for flow, epoch, switch, port, first, last in rows:
        if (switch, port) in net.number:
            seen[flow, epoch][net.number[switch, port]] = first, last
    times: dict[tuple[int, tuple[int, ...]], list[int]] = defaultdict(list)
    for (flow, _), ports in seen.items():
        leaving: dict[int, list[int]] = defaultdict(list)
        for port in ports:
            leaving[int(net.device_of[port])].append(port)
        edges = {port: leaving.get(int(net.towards[port]), []) for port in ports}
        for cycle in components(edges):
            if len(cycle) > 1:
                times[flow, tuple(sorted(cycle))] += [at for port in cycle for at in ports[port]]
    ends = {
        flow: (name, receiver)
        for flow, name, receiver in con.execute(
            "SELECT flow, any_value(name), any_value(dst_host) FROM flows GROUP BY flow"
        ).fetchall()
    }
    for (flow, looped), at in times.items():
        name, receiver = ends.get(flow, (None, None))
        ports_of_loop = labels(net.ports[port] for port in looped)
        astray = _astray(net, looped, receiver)
        yield flow, name or f"flow {flow}", ports_of_loop, astray, min(at), max(at)


def _astray(net: Network, ports: Iterable[int], receiver: str | None) -> list[str] | None:
    """Those of `ports` that lead away from the receiver: where the route is wrong."""
    row = net.row_of(receiver) if receiver else None
    if row is None:
        return None
    away = net.distances[row]
    wrong = [p for p in ports if away[net.towards[p]] > away[net.device_of[p]]]
    return labels(net.ports[p] for p in wrong) or None


def _looping_links(con: duckdb.DuckDBPyConnection, net: Network, storm_ns: int) -> Iterator[_Loop]:
    """Links whose ends stop each other.

    While they are stopped, no switch counts whose packets these are. It is the flow that was seen
    at an end though no shortest way leads there, else the only one that may have come there before
    and has not ended since.
    """
    number = {label(port): place for place, port in enumerate(net.ports)}
    rows = con.execute(
        """SELECT spread, max(p.started_ns), max(p.ended_ns) FROM network_roots r
        JOIN pause_spans p ON list_contains(r.spread, p.switch || 'P' || p.port)
        WHERE kind = 'deadlock' AND len(spread) = 2 AND p.ended_ns - p.started_ns >= ?
        GROUP BY ALL ORDER BY ALL""",
        [storm_ns],
    ).fetchall()
    for ports, since_ns, until_ns in rows:
        ends = [number[port] for port in ports if port in number]
        if len(ends) == 2 and int(net.back[ends[0]]) == ends[1]:
            flow, name, receiver = _gone_round(con, net, ends, since_ns) or (None, None, None)
            yield flow, name, ports, _astray(net, ends, receiver), since_ns, until_ns


def _gone_round(
    con: duckdb.DuckDBPyConnection, net: Network, ends: list[int], since_ns: int
) -> tuple[int, str, str] | None:
    """The one flow (number, name, receiver) that can have looped between two ports, if one can."""
    rows = con.execute(
        """SELECT flow, coalesce(any_value(f.name), 'flow ' || flow), any_value(src_host),
            any_value(dst_host), coalesce(bool_or(is_collective), false),
            bool_and(ended_ns IS NULL) AND min(started_ns) < ?,
            list_distinct(list(s.switch || 'P' || s.port) FILTER (s.packets > 0))
        FROM flows f LEFT JOIN switch_flows s USING (flow) GROUP BY flow ORDER BY flow""",
        [since_ns],
    ).fetchall()
    cycle = set(labels(net.ports[end] for end in ends))
    devices = {int(net.device_of[end]) for end in ends}
    strays, pending = [], []
    for flow, name, src, dst, member, open_before, seen in rows:
        if member or src is None or dst is None:
            continue
        useful = np.flatnonzero(net.on_paths(src, dst))
        if cycle & set(seen or ()) - set(labels(net.ports[port] for port in useful)):
            strays.append((flow, name, dst))
        elif open_before and devices & set(net.device_of[useful].tolist()):
            pending.append((flow, name, dst))
    one = strays or pending
    return one[0] if len(one) == 1 else None
