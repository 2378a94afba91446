"""Where the waiting of each late step begins: what kind of root, which port, whose host; and where
flows meet, the parallel links of which only one is used.

The provenance graph: which flow waits for which port, and which flows and ports it waits for.

Built for each late step over the epochs that its time touches. Weights are packets: of those that
a flow's packets met in a queue, each other flow has the share it has of the port's packets in that
epoch, as flows that share a queue interleave (the paper replays each packet, which takes more than
reports). Which port waited for which follows from how pauses spread.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any

import duckdb

from oncall.analysis.network.network_paths import Network, label, network_of
from oncall.analysis.network.pause_paths import Root, queues_behind, roots, spreading
from oncall.analysis.network.step_views import INPUTS, Thresholds, View, views
from oncall.evidence import params_of, relation

_COLUMNS = [
    ("id", "INTEGER", "", "the late step"),
    ("job", "VARCHAR", "", "the job"),
    ("comm", "UBIGINT", "", "communicator"),
    ("seq", "BIGINT", "", "the collective"),
    ("kind", "VARCHAR", "", "contention, backpressure, storm, deadlock or overrun"),
    ("seen", "BOOLEAN", "", "the queue was reported; else it was inferred from pauses alone"),
    ("switch", "VARCHAR", "", "device of the root"),
    ("port", "INTEGER", "", "its port: with the queue, or that sends pauses without one"),
    ("label", "VARCHAR", "", "both"),
    ("host", "VARCHAR", "", "host behind the port, or that all it queues is bound for"),
    ("paused_label", "VARCHAR", "", "the port that was stopped by the root, if any"),
    ("spread", "VARCHAR[]", "", "ports from the path to the root; of a deadlock: the cycle"),
    ("lost_ns", "DOUBLE", "ns", "of the step's excess"),
    ("depth", "DOUBLE", "packets", "mean queue depth at the root"),
    ("longest_ns", "BIGINT", "ns", "longest pause of the port that was stopped by the root"),
    ("paused_ns", "DOUBLE", "ns", "all of that port's pauses during the step"),
    ("critical", "BOOLEAN", "", "the step is on the longest path"),
    ("over", "BOOLEAN", "", "the step has ended"),
    ("at_ns", "BIGINT", "ns", "start of the step"),
    ("packets", "DOUBLE", "packets", "through the port of a queue meanwhile; NULL: no report"),
    ("idle_label", "VARCHAR", "", "the least busy port beside it that could carry the same flow"),
    ("idle_packets", "DOUBLE", "packets", "through that one"),
]
_NONE = (None, None, None)


@relation(
    "network_roots",
    reads=["late_steps"],
    optional=INPUTS,
    empty_without=["late_steps", "step_ports"],
    columns=_COLUMNS,
    source="Vedrfolnir II-B (load imbalance), III-D2 (signatures); Hawkeye",
    params=params_of(Thresholds),
)
def network_roots(con: duckdb.DuckDBPyConnection, **params: Any) -> Mapping[str, Any]:
    """For each late step, the ports where its waiting begins, with their part of its excess."""
    net = network_of(con)
    rows: list[tuple[Any, ...]] = []
    for step, view in views(con, net, Thresholds(**params)):
        for root in roots(view, net):
            rows.append(_row(con, step, view, root, net))
    names = [column[0] for column in _COLUMNS]
    return {name: [row[i] for row in rows] for i, name in enumerate(names)}


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
        step[10],
        step[4],
        *(_least_busy_beside(view, net, step, port) if kind == "contention" and seen else _NONE),
    )


def _least_busy_beside(
    view: View, net: Network, step: tuple[Any, ...], port: int
) -> tuple[float | None, str | None, float | None]:
    """A port's packets, and the port that the step's flow might have taken and fewest others did,
    of those that reported."""
    useful = net.on_paths(step[8] or "", step[9] or "")
    beside = [
        (view.packets[other], label(net.ports[other]))
        for other in net.of_device[int(net.device_of[port])]
        if other != port and useful[other] and useful[port] and other in view.packets
    ]
    packets, name = min(beside, default=(None, None))
    return view.packets.get(port), name, packets


def _is_shared(
    con: duckdb.DuckDBPyConnection, net: Network, step: tuple[Any, ...], port: int
) -> bool:
    """Whether flows of the collective pass a port: seen there, or bound for the host behind it.

    Where they pass at one time they do at another, as routes last.
    """
    switch, number = net.ports[port]
    seen = con.execute(
        "SELECT bool_or(member) FROM step_flows WHERE id = ? AND switch = ? AND port = ?",
        [step[0], switch, number],
    ).fetchall()[0][0]
    ever = con.execute(
        """SELECT 1 FROM switch_flows s JOIN flows f USING (flow)
        WHERE s.switch = ? AND s.port = ? AND s.packets > 0 AND f.is_collective LIMIT 1""",
        [switch, number],
    ).fetchall()
    if seen or ever:
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
    """Of the ports behind a stopped one, that where the queue must be though it was not reported.

    The one that brings most flows nearer to where they were bound; if none is known, the step's own
    way. The stopped port itself where nothing is known beyond it.
    """
    bound = dict(
        con.execute(
            """SELECT dst_host, count(*) FROM flows
            WHERE ended_ns > ? AND started_ns < ? AND NOT is_collective GROUP BY dst_host""",
            [step[4], step[5]],
        ).fetchall()
    )
    return max(
        net.follows(port) or (port,),
        key=lambda p: (
            sum(count for host, count in bound.items() if _nearer(net, p, host)),
            port in view.path and p in view.path,
        ),
    )


def _nearer(net: Network, port: int, host: str | None) -> bool:
    """Whether a port lies on a shortest way to a host."""
    row = net.row_of(host or "")
    if row is None:
        return False
    away = net.distances[row]
    return bool(away[net.towards[port]] < away[net.device_of[port]])


_EDGE_COLUMNS = [
    ("id", "INTEGER", "", "the late step"),
    ("kind", "VARCHAR", "", "flow_port, port_flow or port_port"),
    ("flow", "BIGINT", "", "the flow of e(f, p) and e(p, f)"),
    ("switch", "VARCHAR", "", "device of the port; of e(p, p): of the port that waits"),
    ("port", "INTEGER", "", "the port"),
    ("next_switch", "VARCHAR", "", "of e(p, p): device of the port waited for"),
    ("next_port", "INTEGER", "", "and that port"),
    ("weight", "DOUBLE", "packets", "w(f, p), w(p, f) or the traffic ratio w(p, p)"),
    ("member", "BOOLEAN", "", "the flow is the collective's"),
]


@relation(
    "provenance_edges",
    reads=["late_steps"],
    optional=INPUTS,
    empty_without=["late_steps", "step_ports"],
    columns=_EDGE_COLUMNS,
    source="Vedrfolnir III-D1",
    params=params_of(Thresholds, of="network_roots"),
)
def provenance_edges(con: duckdb.DuckDBPyConnection, **params: Any) -> Mapping[str, Any]:
    """e(f, p), e(p, f) and e(p, p) of each late step, with the paper's weights."""
    rows = [*con.execute(_OF_FLOWS).fetchall(), *_of_pauses(con, Thresholds(**params))]
    return {column[0]: [row[i] for row in rows] for i, column in enumerate(_EDGE_COLUMNS)}


_OF_FLOWS = """
    WITH ports AS (
        SELECT id, switch, port, sum(packets) AS packets FROM step_flows GROUP BY ALL),
    queues AS (SELECT id, switch, port, queued, packets FROM step_ports WHERE packets > 0)
    SELECT f.id, 'flow_port' AS kind, f.flow, f.switch, f.port, NULL AS next_switch,
        NULL AS next_port, f.queued * (1 - f.packets / p.packets) AS weight, f.member
    FROM step_flows f JOIN ports p USING (id, switch, port)
    UNION ALL
    SELECT f.id, 'port_flow', f.flow, f.switch, f.port, NULL, NULL,
        coalesce(f.part, f.packets / q.packets * q.queued), f.member
    FROM step_flows f JOIN queues q USING (id, switch, port)
"""


def _of_pauses(con: duckdb.DuckDBPyConnection, thresholds: Thresholds) -> Iterator[tuple[Any, ...]]:
    """Which port waited for which, as pauses spread; weighted by traffic where that was metered."""
    net = network_of(con)
    meters = _meters(con, net)
    for step, view in views(con, net, thresholds):
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
                yield (step[0], "port_port", None, *ends, weight, None)


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
