"""What is known of the network during one late step: its path, the ports' queues and pauses."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import duckdb
import numpy as np

from oncall.analysis.network.network_paths import Network
from oncall.evidence import decides

Ports = dict[int, tuple[float, int]]  # port -> stopped for, longest without a break

INPUTS = [
    *("step_ports", "step_flows", "step_waits", "ranks", "flows", "pause_spans"),
    *("switch_meters", "links", "switch_ports", "switch_flows", "switch_pauses"),
]


@dataclass(frozen=True)
class Thresholds:
    """From where on a queue or a pause explains what a step lost."""

    least_queue: float = decides(5.0, "packets met on average: two senders' bursts make less")
    paused: float = decides("10 %", "of what a step lost: shorter pauses do not explain it")
    storm_ns: int = decides(
        "1 ms", "a queue stops its senders no longer than a full buffer drains: 12 MB at 100 Gb/s"
    )
    mainly: float = decides("50 %", "of what a step lost: pauses of so much explain it")
    spreads: float = decides(
        "20 %", "of the time the port behind it was stopped: shorter pauses do not explain that"
    )


@dataclass(frozen=True)
class View:
    """What is known while one late step ran. Ports by number.

    `overrun`: ports whose queue holds nothing but different steps of the collective itself. These
    meet only because one of them is late: a consequence, not a cause.
    """

    paused: Ports
    depth: Mapping[int, float]  # of ports that reported
    path: frozenset[int]
    shared: Mapping[int, float]  # ports of the path with others' packets -> their share of them
    excess_ns: float
    duration_ns: float
    has_pause_spans: bool
    packets: Mapping[int, float] = field(default_factory=dict)  # through those that reported
    overrun: frozenset[int] = frozenset()
    thresholds: Thresholds = field(default_factory=Thresholds)


def views(
    con: duckdb.DuckDBPyConnection, net: Network, thresholds: Thresholds
) -> Iterator[tuple[tuple[Any, ...], View]]:
    """Each late step with what the switches report of its time."""
    has_pause_spans = bool(con.execute("SELECT count(*) FROM pause_spans").fetchall()[0][0])
    ports: dict[int, list[Any]] = defaultdict(list)
    for row in con.execute(
        "SELECT id, switch, port, depth, paused_ns, longest_ns, packets FROM step_ports"
    ).fetchall():
        if (row[1], row[2]) in net.number:
            ports[row[0]].append((net.number[row[1], row[2]], *row[3:]))
    seen: dict[int, list[Any]] = defaultdict(list)
    for row in con.execute(
        """SELECT id, switch, port, bool_or(own),
            sum(packets) FILTER (NOT own) / sum(packets) FROM step_flows GROUP BY ALL"""
    ).fetchall():
        if (row[1], row[2]) in net.number:
            seen[row[0]].append((net.number[row[1], row[2]], row[3], row[4]))
    overrun: dict[int, set[int]] = defaultdict(set)
    for step_id, switch, number in con.execute(_OVERRUN).fetchall():
        if (switch, number) in net.number:
            overrun[step_id].add(net.number[switch, number])
    steps = con.execute(
        """SELECT id, job, comm, seq, started_ns, ended_ns, excess_ns, critical, src_host,
        dst_host, over FROM late_steps ORDER BY id"""
    ).fetchall()
    for step in steps:
        observed = {port for port, own, _ in seen[step[0]] if own}
        path = _path(net, step[8], step[9], observed)
        yield (
            step,
            View(
                paused={p: (ns or 0, long or 0) for p, _, ns, long, _ in ports[step[0]]},
                depth={p: d or 0.0 for p, d, _, _, n in ports[step[0]] if n is not None},
                packets={p: n for p, _, _, _, n in ports[step[0]] if n is not None},
                path=frozenset(path),
                shared={p: share or 0.0 for p, own, share in seen[step[0]] if own},
                excess_ns=step[6],
                duration_ns=max(step[5] - step[4], 1),
                has_pause_spans=has_pause_spans,
                overrun=frozenset(overrun[step[0]]),
                thresholds=thresholds,
            ),
        )


# Ports where flows of the collective were seen, no other, and no two in the same step.
_OVERRUN = """
    WITH alone AS (
        SELECT id, switch, port FROM step_flows GROUP BY ALL
        HAVING bool_and(member)),
    running AS (
        SELECT f.id, f.switch, f.port, f.flow, w.step, w.started_ns, w.ended_ns
        FROM step_flows f SEMI JOIN alone USING (id, switch, port) JOIN late_steps l USING (id)
        JOIN step_waits w ON w.job = l.job AND w.comm = l.comm AND w.seq = l.seq
            AND w.flow = f.flow AND w.started_ns < l.ended_ns AND w.ended_ns > l.started_ns),
    met AS (
        SELECT a.id, a.switch, a.port FROM running a JOIN running b
            ON a.id = b.id AND a.switch = b.switch AND a.port = b.port AND a.flow < b.flow
            AND a.step = b.step AND a.started_ns < b.ended_ns AND a.ended_ns > b.started_ns)
    FROM alone ANTI JOIN met USING (id, switch, port)
"""


def _path(net: Network, src: str | None, dst: str | None, observed: set[int]) -> set[int]:
    """The ports a flow took: where it was seen; at other distances, all that it may have taken."""
    if src is None or dst is None or not len(net.ports) or net.row_of(src) is None:
        return observed
    away = net.distances[net.row_of(src)][net.device_of]
    known = {int(away[port]) for port in observed}
    possible = np.flatnonzero(net.on_paths(src, dst)).tolist()
    return observed | {port for port in possible if int(away[port]) not in known}
