"""The routes of flows by the ports that saw them: loops, and parallel links of which only one is
used.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

import duckdb
import numpy as np

from oncall.analysis.common.graph import components
from oncall.analysis.network.network_paths import Network, label, labels, network_of
from oncall.analysis.network.step_views import INPUTS
from oncall.evidence import relation


@relation(
    "looping_flows",
    reads=["collective_steps"],
    optional=["links", "switch_flows", "switch_ports", "switch_pauses", "flows"],
    empty_without=["switch_flows"],
    columns=[
        ("flow", "BIGINT", "", "a flow that returns to a device it has passed"),
        ("name", "VARCHAR", "", "what to call it"),
        ("ports", "VARCHAR[]", "", "the ports of the loop"),
        ("way", "VARCHAR", "", "these ports, one after the other"),
        ("astray", "VARCHAR[]", "", "of these, the ports that lead away from its receiver"),
        ("first_ns", "BIGINT", "ns", "first observed in the loop"),
        ("last_ns", "BIGINT", "ns", "last observed there"),
    ],
    source="Vedrfolnir II-B (loops)",
)
def looping_flows(con: duckdb.DuckDBPyConnection) -> Mapping[str, Any]:
    """Flows seen at ports that form a loop, within one telemetry epoch. A flow that was rerouted is
    seen on both routes, but not in the same epoch."""
    net = network_of(con)
    seen: dict[tuple[int, int], dict[int, tuple[int, int]]] = defaultdict(dict)
    rows = con.execute(
        """SELECT flow, at_ns // greatest(coalesce(epoch_ns, 1), 1) AS epoch, switch, port,
            min(at_ns), max(at_ns) FROM switch_flows WHERE packets > 0 GROUP BY ALL ORDER BY ALL"""
    ).fetchall()
    for flow, epoch, switch, port, first, last in rows:
        if (switch, port) in net.number:
            seen[flow, epoch][net.number[switch, port]] = first, last
    found: dict[tuple[int, tuple[int, ...]], tuple[int, int]] = {}
    for (flow, _), ports in seen.items():
        leaving: dict[int, list[int]] = defaultdict(list)
        for port in ports:
            leaving[int(net.device_of[port])].append(port)
        edges = {port: leaving.get(int(net.towards[port]), []) for port in ports}
        for cycle in components(edges):
            if len(cycle) > 1:
                key = flow, tuple(sorted(cycle))
                old = found.get(key, (1 << 62, 0))
                found[key] = (
                    min(old[0], *(ports[port][0] for port in cycle)),
                    max(old[1], *(ports[port][1] for port in cycle)),
                )
    ends = {
        flow: (name, receiver)
        for flow, name, receiver in con.execute(
            "SELECT flow, any_value(name), any_value(dst_host) FROM flows GROUP BY flow"
        ).fetchall()
    }
    ways = [labels(net.ports[port] for port in cycle) for _, cycle in found]
    return {
        "flow": [flow for flow, _ in found],
        "name": [ends.get(flow, (None, None))[0] or f"flow {flow}" for flow, _ in found],
        "ports": ways,
        "way": [" > ".join(ports) for ports in ways],
        "astray": [_astray(net, cycle, ends.get(flow, (None, None))[1]) for flow, cycle in found],
        "first_ns": [first for first, _ in found.values()],
        "last_ns": [last for _, last in found.values()],
    }


def _astray(net: Network, ports: Iterable[int], receiver: str | None) -> list[str]:
    """Those of `ports` that lead away from the receiver: where the route is wrong."""
    row = net.row_of(receiver) if receiver else None
    if row is None:
        return []
    away = net.distances[row]
    return labels(net.ports[p] for p in ports if away[net.towards[p]] > away[net.device_of[p]])


@relation(
    "looping_links",
    reads=["late_steps"],
    optional=["network_roots", *INPUTS],
    empty_without=["network_roots"],
    columns=[
        ("job", "VARCHAR", "", "the job"),
        ("comm", "UBIGINT", "", "communicator"),
        ("seq", "BIGINT", "", "the collective"),
        (
            "flow",
            "BIGINT",
            "",
            "the flow in the loop; NULL: neither reported nor inferred",
        ),
        ("name", "VARCHAR", "", "what to call it"),
        ("ports", "VARCHAR[]", "", "both ends of the link"),
        ("way", "VARCHAR", "", "these ports, one after the other"),
        ("astray", "VARCHAR[]", "", "of these, the ports that lead away from its receiver"),
        ("first_ns", "BIGINT", "ns", "since when both are stopped"),
    ],
    source="Vedrfolnir II-B (loops), from pauses",
    params={"storm_ns": "network_roots.storm_ns"},
)
def looping_links(con: duckdb.DuckDBPyConnection, *, storm_ns: int) -> Mapping[str, Any]:
    """Links whose ends stop each other: packets are sent back there as they came, in a loop.

    While they are stopped, no switch counts whose packets these are. It is the flow that was seen
    at an end though no shortest way leads there, else the only one that may have come there before
    and has not ended since.
    """
    net = network_of(con)
    number = {label(port): place for place, port in enumerate(net.ports)}
    rows = con.execute(
        """SELECT job, comm, seq, spread, max(p.started_ns) FROM network_roots r
        JOIN pause_spans p ON list_contains(r.spread, p.switch || 'P' || p.port)
        WHERE kind = 'deadlock' AND len(spread) = 2 AND p.ended_ns - p.started_ns >= ?
        GROUP BY ALL ORDER BY ALL""",
        [storm_ns],
    ).fetchall()
    found = []
    for *collective, ports, since_ns in rows:
        ends = [number[port] for port in ports if port in number]
        if len(ends) == 2 and int(net.back[ends[0]]) == ends[1]:
            flow, name, receiver = _gone_round(con, net, ends, since_ns) or (None, None, None)
            astray = _astray(net, ends, receiver)
            found.append((*collective, flow, name, ports, " > ".join(ports), astray, since_ns))
    names = ("job", "comm", "seq", "flow", "name", "ports", "way", "astray", "first_ns")
    return {name: [row[i] for row in found] for i, name in enumerate(names)}


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


@relation(
    "collective_loops",
    reads=["looping_flows", "looping_links", "worst_collectives"],
    columns=[
        ("job", "VARCHAR", "", "the job"),
        ("comm", "UBIGINT", "", "communicator"),
        ("seq", "BIGINT", "", "the collective that it delays"),
        ("name", "VARCHAR", "", "the flow in the loop; NULL: neither reported nor inferred"),
        ("ports", "VARCHAR[]", "", "the ports of the loop"),
        ("way", "VARCHAR", "", "these ports, one after the other"),
        ("astray", "VARCHAR[]", "", "of these, the ports that lead away from its receiver"),
        ("first_ns", "BIGINT", "ns", "first observed"),
    ],
    source="Vedrfolnir II-B (loops)",
)
def collective_loops() -> str:
    """Loops during a late collective: seen to come back, or both ends of a link stop each other,
    which only what is sent back as it came can do."""
    return """
        SELECT w.job, w.comm, w.seq, g.name, g.ports, g.way, g.astray, g.first_ns
        FROM looping_flows g
        JOIN worst_collectives w ON g.last_ns > w.since_ns AND g.first_ns < w.until_ns
        UNION ALL
        SELECT job, comm, seq, k.name, k.ports, k.way, k.astray, k.first_ns
        FROM looping_links k SEMI JOIN worst_collectives USING (job, comm, seq)
        ANTI JOIN looping_flows g ON list_has_all(g.ports, k.ports)
    """


@relation(
    "parallel_ports",
    reads=["late_steps"],
    optional=["network_roots", *INPUTS],
    empty_without=["network_roots"],
    columns=[
        ("job", "VARCHAR", "", "the job"),
        ("comm", "UBIGINT", "", "communicator"),
        ("seq", "BIGINT", "", "the collective"),
        ("switch", "VARCHAR", "", "device of a port where flows of the collective meet"),
        ("port", "INTEGER", "", "that port"),
        ("busy_packets", "DOUBLE", "packets", "its packets while the late steps ran"),
        ("label", "VARCHAR", "", "another port of the device that could carry the same flow"),
        ("packets", "DOUBLE", "packets", "its packets meanwhile"),
    ],
    source="Vedrfolnir II-B (load imbalance)",
)
def parallel_ports(con: duckdb.DuckDBPyConnection) -> Mapping[str, Any]:
    """For each contended port the ports that the same flow might have taken, if they reported."""
    net = network_of(con)
    packets: dict[tuple[int, str, int], float] = {
        (step, switch, port): count
        for step, switch, port, count in con.execute(
            "SELECT id, switch, port, packets FROM step_ports WHERE packets IS NOT NULL"
        ).fetchall()
    }
    rows = con.execute(
        """SELECT r.id, r.job, r.comm, r.seq, r.switch, r.port, s.src_host, s.dst_host
        FROM network_roots r JOIN late_steps s USING (id)
        WHERE r.kind = 'contention' AND r.seen ORDER BY r.id"""
    ).fetchall()
    found: list[tuple[Any, ...]] = []
    for step, job, comm, seq, switch, port, src, dst in rows:
        if src is None or dst is None or (switch, port) not in net.number:
            continue
        useful = net.on_paths(src, dst)
        here = net.number[switch, port]
        for other in net.of_device[int(net.device_of[here])]:
            known = (step, *net.ports[other])
            if other != here and useful[other] and useful[here] and known in packets:
                busy = packets.get((step, switch, port), 0.0)
                name = label(net.ports[other])
                found.append((job, comm, seq, switch, port, busy, name, packets[known]))
    names = ("job", "comm", "seq", "switch", "port", "busy_packets", "label", "packets")
    return {name: [row[i] for row in found] for i, name in enumerate(names)}
