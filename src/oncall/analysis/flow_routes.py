"""Where flows went, by the ports that saw them: in circles, or all on one of several links."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

import duckdb

from oncall.analysis.graph import components
from oncall.analysis.network_paths import label, network_of
from oncall.analysis.step_views import INPUTS
from oncall.evidence import relation


@relation(
    "looping_flows",
    reads=["collective_steps"],
    optional=["links", "switch_flows", "switch_ports", "switch_pauses", "flows"],
    empty_without=["switch_flows"],
    columns=[
        ("flow", "BIGINT", "", "a flow that comes back to a device it has passed"),
        ("name", "VARCHAR", "", "what to call it"),
        ("ports", "VARCHAR[]", "", "the ports of the circle"),
        ("way", "VARCHAR", "", "these, one after the other"),
        ("first_ns", "BIGINT", "ns", "first seen in the circle"),
        ("last_ns", "BIGINT", "ns", "last seen there"),
    ],
    source="Vedrfolnir II-B (loops)",
)
def looping_flows(con: duckdb.DuckDBPyConnection) -> Mapping[str, Any]:
    """Flows seen at ports that lead round in a circle, within one telemetry epoch.

    A flow that was given another way is seen on both, but not at once.
    """
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
        for circle in components(edges):
            if len(circle) > 1:
                key = flow, tuple(sorted(circle))
                old = found.get(key, (1 << 62, 0))
                found[key] = (
                    min(old[0], *(ports[port][0] for port in circle)),
                    max(old[1], *(ports[port][1] for port in circle)),
                )
    names = dict(con.execute("SELECT flow, any_value(name) FROM flows GROUP BY flow").fetchall())
    labels = [[label(net.ports[port]) for port in circle] for _, circle in found]
    return {
        "flow": [flow for flow, _ in found],
        "name": [names.get(flow) or f"flow {flow}" for flow, _ in found],
        "ports": labels,
        "way": [" > ".join(ports) for ports in labels],
        "first_ns": [first for first, _ in found.values()],
        "last_ns": [last for _, last in found.values()],
    }


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
        ("label", "VARCHAR", "", "another port of the device, of use for the same flow"),
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
