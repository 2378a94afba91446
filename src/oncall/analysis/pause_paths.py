"""From a late step to where its waiting begins: along its path, then along the pauses.

A port that had to stop was stopped by the device it leads to. That device stops others because
its own egress fills: a port of it is stopped in turn (the pause spreads from there), or has a
queue (there traffic contends), or neither: then it pauses without a reason of its own, a storm.
Ports that stop each other in a circle never go on: a deadlock (Vedrfolnir III-D2; Hawkeye).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import duckdb
import numpy as np

from oncall.analysis.graph import components
from oncall.analysis.network_paths import Network, label, network_of
from oncall.analysis.step_ports import LEAST_QUEUE
from oncall.evidence import relation

QUEUE = LEAST_QUEUE
# A queue stops its senders for no longer than a full buffer takes to drain: 12 MB at 100 Gb/s.
STORM_NS = 1_000_000
PAUSED = 0.1  # of what a step lost: less does not explain it
SPREADS = 0.2  # of the time the port behind it was stopped: less does not explain that

Ports = dict[int, tuple[float, int]]  # port -> stopped for, longest without a break


@dataclass(frozen=True)
class Root:
    """Where a late step's waiting begins.

    `kind`: queue, storm, deadlock, unseen (of a device whose queues nobody reported), or overrun
    (a queue that is no cause; such roots count only where there is no other). `ports`
    is the way there from the step's own path, the root's port last; for a storm that is the port
    that was stopped, for a deadlock they are the circle. `weight`: its share of the excess.
    """

    kind: str
    port: int
    ports: tuple[int, ...]
    weight: float


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
    pauses_told: bool
    overrun: frozenset[int] = frozenset()


_ROOT_COLUMNS = [
    ("id", "INTEGER", "", "the late step"),
    ("job", "VARCHAR", "", "the job"),
    ("comm", "UBIGINT", "", "communicator"),
    ("seq", "BIGINT", "", "the collective"),
    ("kind", "VARCHAR", "", "contention, backpressure, storm, deadlock or overrun"),
    ("seen", "BOOLEAN", "", "the queue was reported; else it was inferred from pauses alone"),
    ("switch", "VARCHAR", "", "device of the root"),
    ("port", "INTEGER", "", "its port: with the queue, or that sends pauses without one"),
    ("label", "VARCHAR", "", "both"),
    ("host", "VARCHAR", "", "host behind the port, if any"),
    ("paused_label", "VARCHAR", "", "the port that was stopped by the root, if any"),
    (
        "spread",
        "VARCHAR[]",
        "",
        "ports from the step's path to the root; of a deadlock: the circle",
    ),
    ("lost_ns", "DOUBLE", "ns", "of the step's excess"),
    ("depth", "DOUBLE", "packets", "mean queue depth at the root"),
    ("longest_ns", "BIGINT", "ns", "longest pause of the port that was stopped by the root"),
    ("paused_ns", "DOUBLE", "ns", "all of that port's pauses during the step"),
    ("critical", "BOOLEAN", "", "the step is on the longest path"),
    ("at_ns", "BIGINT", "ns", "start of the step"),
]


INPUTS = [
    *("step_ports", "step_flows", "step_waits", "ranks", "flows", "pause_spans"),
    *("switch_meters", "links", "sender_links", "switch_ports", "switch_flows", "switch_pauses"),
]


@relation(
    "network_roots",
    reads=["late_steps"],
    optional=INPUTS,
    empty_without=["late_steps", "step_ports"],
    columns=_ROOT_COLUMNS,
    source="Vedrfolnir III-D2 (signatures); Hawkeye",
)
def network_roots(con: duckdb.DuckDBPyConnection) -> Mapping[str, Any]:
    """For each late step, the ports where its waiting begins, with their part of its excess."""
    net = network_of(con)
    rows: list[tuple[Any, ...]] = []
    for step, view in views(con, net):
        for root in roots(view, net):
            rows.append(_row(con, step, view, root, net))
    names = [column[0] for column in _ROOT_COLUMNS]
    return {name: [row[i] for row in rows] for i, name in enumerate(names)}


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
        ("next_port", "INTEGER", "", "port of that device it waited for"),
        ("weight", "DOUBLE", "", "traffic ratio w(p_i, p_j)"),
        ("paused_ns", "DOUBLE", "ns", "the port was stopped"),
    ],
    source="Vedrfolnir III-D1: e(p, p)",
)
def pause_edges(con: duckdb.DuckDBPyConnection) -> Mapping[str, Any]:
    """Which port waited for which, as pauses spread; weighted by traffic where that was metered."""
    net = network_of(con)
    meters = _meters(con, net)
    rows: list[tuple[Any, ...]] = []
    for step, view in views(con, net):
        edges = {
            port: nexts + [q for q in _queues(view, net, port) if q not in nexts]
            for port, nexts in _edges(view, net).items()
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
    usual = sum(known) / len(known)
    sent = {p: usual if flow is None else flow for p, flow in metered.items()}
    return sent[port] / sum(sent.values())


# -------------------------------------------------------------------- views


def views(con: duckdb.DuckDBPyConnection, net: Network) -> Iterator[tuple[tuple[Any, ...], View]]:
    """Each late step with what the switches tell of its time."""
    told = bool(con.execute("SELECT count(*) FROM pause_spans").fetchall()[0][0])
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
        dst_host FROM late_steps ORDER BY id"""
    ).fetchall()
    for step in steps:
        observed = {port for port, own, _ in seen[step[0]] if own}
        path = _path(net, step[8], step[9], observed)
        yield (
            step,
            View(
                paused={p: (ns or 0, long or 0) for p, _, ns, long, _ in ports[step[0]]},
                depth={p: d or 0.0 for p, d, _, _, n in ports[step[0]] if n is not None},
                path=frozenset(path),
                shared={p: share or 0.0 for p, own, share in seen[step[0]] if own},
                excess_ns=step[6],
                duration_ns=max(step[5] - step[4], 1),
                pauses_told=told,
                overrun=frozenset(overrun[step[0]]),
            ),
        )


# Ports where several of the collective's flows were seen, no other, and no two in the same step.
_OVERRUN = """
    WITH alone AS (
        SELECT id, switch, port FROM step_flows GROUP BY ALL
        HAVING bool_and(member) AND count(DISTINCT flow) > 1),
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


def _meters(con: duckdb.DuckDBPyConnection, net: Network) -> dict[tuple[int, int], float]:
    rows = con.execute(
        "SELECT switch, from_port, to_port, sum(bytes) FROM switch_meters GROUP BY ALL"
    ).fetchall()
    return {
        (net.number[s, a], net.number[s, b]): float(n or 0)
        for s, a, b, n in rows
        if (s, a) in net.number and (s, b) in net.number
    }


# -------------------------------------------------------------------- roots


def roots(view: View, net: Network) -> list[Root]:
    """Where the waiting of one late step begins, the shares of its excess summing to one.

    Traffic that contends on the path itself counts by its share of the port, pauses by their
    share of the step's time.
    """
    direct = {
        port: share
        for port, share in view.shared.items()
        if share > 0 and view.depth.get(port, 0) >= QUEUE and not _stops(view, port)
    }
    starts = [port for port in view.path if _stops(view, port)]
    most = max((view.paused[port][0] for port in starts), default=0.0)
    found = [Root(_queue(view, port), port, (port,), share) for port, share in direct.items()]
    stopped = most / view.duration_ns
    share = stopped / len(starts) if starts else 0.0
    edges = _edges(view, net)
    circles = [
        set(circle)
        for circle in components(edges)
        if len(circle) > 1 and all(view.paused[port][1] >= STORM_NS for port in circle)
    ]
    for start in starts:
        found += _ends(view, net, edges, circles, (start,), share)
    causes = [root for root in found if root.kind != "overrun"]
    found = causes or found
    total = sum(root.weight for root in found)
    best: dict[tuple[str, int], Root] = {}
    for root in sorted(found, key=lambda root: -len(root.ports)):
        key = root.kind, root.port
        old = best.get(key)
        weight = root.weight / total + (old.weight if old else 0)
        ports = old.ports if old else root.ports
        best[key] = Root(root.kind, root.port, ports, weight)
    return sorted(best.values(), key=lambda root: (-root.weight, root.port))


def _queue(view: View, port: int) -> str:
    return "overrun" if port in view.overrun else "queue"


def _stops(view: View, port: int) -> bool:
    """Whether a port's pauses explain a good part of what the step lost."""
    return view.paused.get(port, (0.0, 0))[0] > PAUSED * view.excess_ns


def _edges(view: View, net: Network) -> dict[int, list[int]]:
    """Stopped port -> the ports, stopped too, that its device waited for."""
    edges: dict[int, list[int]] = {}
    for port, (stopped, longest) in view.paused.items():
        if stopped <= 0:
            continue
        after = [
            other
            for other in net.follows(port)
            if view.paused.get(other, (0.0, 0))[0] >= SPREADS * stopped
            # One long pause is not made of the short ones of a queue that fills and drains.
            and (longest < STORM_NS or view.paused[other][1] >= SPREADS * longest)
        ]
        if longest >= STORM_NS:
            # Traffic in a circle is on no shortest path; ports that stand still show it. Both ends
            # of a link stop each other only where packets are sent back as they came: in a loop.
            after += [
                other
                for other in net.of_device.get(int(net.towards[port]), [])
                if other not in after and view.paused.get(other, (0.0, 0))[1] >= STORM_NS
            ]
        edges[port] = after
    return edges


def _queues(view: View, net: Network, port: int) -> dict[int, float]:
    """Ports with a queue that the traffic of `port` goes on to, and how deep it is."""
    return {q: view.depth[q] for q in net.follows(port) if view.depth.get(q, 0) >= QUEUE}


def _ends(
    view: View,
    net: Network,
    edges: Mapping[int, list[int]],
    circles: list[set[int]],
    way: tuple[int, ...],
    weight: float,
) -> Iterator[Root]:
    """The roots that the pauses of the last port of `way` lead to."""
    port = way[-1]
    for circle in circles:
        if port in circle:
            yield Root("deadlock", min(circle), tuple(sorted(circle)), weight)
            return
    nexts = [after for after in edges.get(port, []) if after not in way]
    if nexts:
        total = sum(view.paused[after][0] for after in nexts)
        for after in nexts:
            share = weight * view.paused[after][0] / total
            yield from _ends(view, net, edges, circles, (*way, after), share)
        return
    behind = net.follows(port)
    queues = _queues(view, net, port)
    if view.paused[port][1] >= STORM_NS:
        yield Root("storm", port, way, weight)
    elif queues:
        for queue, depth in queues.items():
            share = weight * depth / sum(queues.values())
            yield Root(_queue(view, queue), queue, (*way, queue), share)
    elif net.host_behind(port) or (
        behind and not view.pauses_told and all(q in view.depth for q in behind)
    ):
        yield Root("storm", port, way, weight)
    else:
        yield Root("unseen", port, way, weight)


def _row(
    con: duckdb.DuckDBPyConnection, step: tuple[Any, ...], view: View, root: Root, net: Network
) -> tuple[Any, ...]:
    port, kind, seen = root.port, root.kind, True
    stopped = port if kind in ("storm", "deadlock", "unseen") else None
    if kind == "storm":
        port = int(net.back[root.port])
    elif kind == "unseen":
        port, seen = _likely(con, net, step, view, root.port), False
        kind = "queue"
    elif len(root.ports) > 1 and kind == "queue":
        stopped = root.ports[-2]
    if kind == "queue":
        own_way = not seen and root.port in view.path and port in view.path
        shared = own_way or _is_shared(con, net, step, port)
        kind = "contention" if shared else "backpressure"
    host = net.host_behind(int(net.back[port]) if kind == "storm" else port)
    device, number = net.ports[port]
    paused_ns, longest_ns = view.paused.get(stopped, (None, None)) if stopped else (None, None)
    return (
        *step[:4],
        kind,
        seen,
        device,
        number,
        label(net.ports[port]),
        host,
        None if stopped is None else label(net.ports[stopped]),
        [label(net.ports[one]) for one in root.ports],
        root.weight * view.excess_ns,
        view.depth.get(port),
        longest_ns,
        paused_ns,
        step[7],
        step[4],
    )


def _is_shared(
    con: duckdb.DuckDBPyConnection, net: Network, step: tuple[Any, ...], port: int
) -> bool:
    """Whether flows of the collective pass a port: seen there, or bound for the host behind it."""
    switch, number = net.ports[port]
    seen = con.execute(
        "SELECT bool_or(member) FROM step_flows WHERE id = ? AND switch = ? AND port = ?",
        [step[0], switch, number],
    ).fetchall()[0][0]
    if seen:
        return True
    host = net.devices[int(net.towards[port])]
    rows = con.execute(
        """SELECT 1 FROM step_waits w JOIN ranks r ON r.job = w.job AND r.rank = w.dst
        WHERE w.job = ? AND w.comm = ? AND w.seq = ? AND r.node = ?
            AND w.ended_ns > ? AND w.started_ns < ? LIMIT 1""",
        [*step[1:4], host, step[4], step[5]],
    ).fetchall()
    return bool(rows)


def _likely(
    con: duckdb.DuckDBPyConnection,
    net: Network,
    step: tuple[Any, ...],
    view: View,
    port: int,
) -> int:
    """Of the ports behind a stopped one, that where the queue must be though nobody reported it.

    The one to the host that most flows were bound for; if none is known, the step's own way. The
    stopped port itself where nothing is known beyond it.
    """
    bound = dict(
        con.execute(
            """SELECT dst_host, count(*) FROM flows
            WHERE ended_ns > ? AND started_ns < ? AND NOT is_collective GROUP BY dst_host""",
            [step[4], step[5]],
        ).fetchall()
    )
    return max(
        net.follows(port) or [port],
        key=lambda p: (
            bound.get(net.devices[int(net.towards[p])], 0),
            port in view.path and p in view.path,
        ),
    )
