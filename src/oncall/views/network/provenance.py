"""The provenance graph around one late step: the ports where its flow queued or was stopped, the
ports those waited for, and the flows that stood there (Vedrfolnir III-D1)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, replace

from oncall.analysis.common.graph import components
from oncall.analysis.network.network_paths import Network, label
from oncall.core.printable import clean
from oncall.evidence.incident import Incident
from oncall.views.network.waiting import Collective, Step


@dataclass(frozen=True)
class PortNode:
    """A port. `depth` is the mean queue in packets, `deep` whether packets wait in it, `paused_ns`
    how long it had to stop during the step; None: no data. `root` names why waiting begins here,
    if it does."""

    label: str
    device: str
    depth: float | None = None
    deep: bool | None = None
    paused_ns: float | None = None
    longest_ns: int | None = None
    own: bool = False  # the step's flow was seen here
    root: str | None = None
    host: str | None = None  # behind it


@dataclass(frozen=True)
class FlowNode:
    """A flow. `share` is its part of what all others contributed to the collective being late."""

    flow: int
    name: str
    own: bool = False
    member: bool = False
    share: float | None = None


@dataclass(frozen=True)
class FlowEdge:
    """A flow at a port: `waits` is w(f, p), the packets of others it met; `fills` is w(p, f), its
    part of the queue. Both in packets, summed over packets that met them."""

    flow: int
    port: str
    waits: float
    fills: float


@dataclass(frozen=True)
class PortEdge:
    """A stopped port and one it waited for; `weight` is the traffic ratio w(p, p). None: that one
    has no queue that traffic goes to, it sends pauses."""

    port: str
    after: str
    weight: float | None


@dataclass(frozen=True)
class Provenance:
    """`ports` in the order of the way: those first that the step met first."""

    step: Step
    name: str  # of its flow
    ports: tuple[PortNode, ...]
    flows: tuple[FlowNode, ...]
    flow_edges: tuple[FlowEdge, ...]
    port_edges: tuple[PortEdge, ...]
    flows_left_out: int = 0
    ports_left_out: int = 0

    def flow(self, number: int) -> FlowNode:
        return next(one for one in self.flows if one.flow == number)

    def at(self, port: str) -> tuple[FlowEdge, ...]:
        """The flows at a port, those that fill it most first."""
        edges = [edge for edge in self.flow_edges if edge.port == port]
        return tuple(sorted(edges, key=lambda edge: (-edge.fills, edge.flow)))

    def after(self, port: str) -> tuple[PortEdge, ...]:
        """The ports that one waited for."""
        return tuple(edge for edge in self.port_edges if edge.port == port)


def reached(starts: Iterable[str], edges: Iterable[PortEdge]) -> list[str]:
    """The ports on the way from `starts`, each before those it waits for as far as there is no
    cycle."""
    after: dict[str, list[str]] = defaultdict(list)
    for edge in edges:
        after[edge.port].append(edge.after)
    front, seen = list(dict.fromkeys(starts)), {}
    while front:
        port = front.pop(0)
        if port not in seen:
            seen[port] = after[port]
            front += after[port]
    return [port for cycle in reversed(components(seen)) for port in cycle]


RELATIONS = (
    *("late_steps", "provenance_edges", "step_ports", "step_flows"),
    *("network_roots", "contributors", "late_ends"),
)
MOST_PORTS, MOST_FLOWS = 12, 10


@dataclass(frozen=True)
class Contributor:
    """A flow that is not the collective's, by its part in the lateness. `share` is None where no
    late step of the critical path was seen."""

    place: int
    flow: int
    name: str
    src_host: str
    dst_host: str
    score: float
    share: float | None
    meets: bool
    ports: tuple[str, ...]


def late_step_id(incident: Incident, collective: Collective, step: Step) -> int | None:
    """The number that a late step has among those followed into the network; None: it is not one
    of those. Makes ready what is read here."""
    incident.provide(RELATIONS)
    rows = incident.con.execute(
        "SELECT id FROM late_steps WHERE comm = ? AND seq = ? AND src = ? AND dst = ? AND step = ?",
        [*collective.key, *step.key],
    ).fetchall()
    return int(rows[0][0]) if rows else None


def contributors(incident: Incident, collective: Collective) -> tuple[Contributor, ...]:
    """Flows by what they contributed to a collective, the first to be acted upon first."""
    incident.provide(RELATIONS)
    rows = incident.con.execute(
        "SELECT place, flow, name, src_host, dst_host, score, share, meets, ports "
        "FROM contributors WHERE comm = ? AND seq = ? ORDER BY place",
        list(collective.key),
    ).fetchall()
    return tuple(
        Contributor(
            place,
            flow,
            clean(name or ""),
            clean(src_host or ""),
            clean(dst_host or ""),
            score,
            share,
            meets,
            tuple(map(clean, ports or ())),
        )
        for place, flow, name, src_host, dst_host, score, share, meets, ports in rows
    )


def provenance(
    incident: Incident, net: Network, collective: Collective, step: Step
) -> Provenance | None:
    """The graph around the flow of a late step; None where nothing was reported of its time."""
    number = late_step_id(incident, collective, step)
    if number is None:
        return None
    ports, seen = _ports(incident, number), _flows_at(incident, number)
    roots, stopped = _roots(incident, number)
    edges = _port_edges(incident, number)
    drawn = {(edge.port, edge.after) for edge in edges}
    edges += [edge for edge in stopped if (edge.port, edge.after) not in drawn]
    own = [edge.port for edge, flow in seen if flow.own]
    order = reached([*_starts(incident, number), *_by_distance(net, step.src_node, own)], edges)
    known = [port for port in order if port in ports or port in roots]
    # Where nothing happened, neither did packets meet others nor had the port to stop.
    happened = {port for port, node in ports.items() if node.deep or node.paused_ns}
    shown = [port for port in known if port in roots or port in happened][:MOST_PORTS]
    if not shown:
        return None
    fills: dict[int, float] = {}
    nodes = {flow.flow: flow for _, flow in seen}
    for edge, flow in seen:
        if edge.port in shown:
            fills[edge.flow] = fills.get(edge.flow, 0.0) + edge.fills + (1e18 if flow.own else 0.0)
    kept = sorted(fills, key=lambda flow: (-fills[flow], flow))[:MOST_FLOWS]
    shares = {one.flow: one.share for one in contributors(incident, collective)}
    return Provenance(
        step=step,
        name=next((flow.name for flow in nodes.values() if flow.own), f"{step.pair}"),
        ports=tuple(
            replace(
                ports.get(port, PortNode(port, port.rpartition("P")[0])),
                own=port in own,
                root=roots.get(port, (None, None))[0],
                host=roots.get(port, (None, None))[1],
            )
            for port in shown
        ),
        flows=tuple(replace(nodes[flow], share=shares.get(flow)) for flow in kept),
        flow_edges=tuple(e for e, _ in seen if e.port in shown and e.flow in kept),
        port_edges=tuple(e for e in edges if e.port in shown and e.after in shown),
        flows_left_out=len(fills) - len(kept),
        ports_left_out=len(known) - len(shown),
    )


def _by_distance(net: Network, host: str, ports: list[str]) -> list[str]:
    """Ports of a way, from its sender on."""
    row = net.row_of(host)
    if row is None:
        return sorted(ports)
    away = {
        label(port): int(net.distances[row][device])
        for port, device in zip(net.ports, net.device_of.tolist(), strict=True)
    }
    return sorted(ports, key=lambda port: (away.get(port, 0), port))


def _ports(incident: Incident, number: int) -> dict[str, PortNode]:
    rows = incident.con.execute(
        "SELECT switch || 'P' || port, switch, depth, deep, paused_ns, longest_ns "
        "FROM step_ports WHERE id = ?",
        [number],
    ).fetchall()
    return {row[0]: PortNode(clean(row[0]), clean(row[1]), *row[2:]) for row in rows}


def _flows_at(incident: Incident, number: int) -> list[tuple[FlowEdge, FlowNode]]:
    """Each flow at each port, with both weights."""
    rows = incident.con.execute(
        """
        WITH weights AS (
            SELECT flow, switch, port, sum(weight) FILTER (kind = 'flow_port') AS waits,
                sum(weight) FILTER (kind = 'port_flow') AS fills
            FROM provenance_edges WHERE id = $id AND kind <> 'port_port' GROUP BY ALL)
        SELECT f.flow, f.switch || 'P' || f.port, coalesce(w.waits, 0), coalesce(w.fills, 0),
            f.name, f.own, f.member
        FROM step_flows f LEFT JOIN weights w USING (flow, switch, port)
        WHERE f.id = $id ORDER BY f.flow, f.switch, f.port
        """,
        {"id": number},
    ).fetchall()
    return [
        (FlowEdge(flow, clean(port), waits, fills), FlowNode(flow, clean(name), own, member))
        for flow, port, waits, fills, name, own, member in rows
    ]


def _port_edges(incident: Incident, number: int) -> list[PortEdge]:
    rows = incident.con.execute(
        "SELECT switch || 'P' || port, next_switch || 'P' || next_port, weight "
        "FROM provenance_edges WHERE id = ? AND kind = 'port_port' ORDER BY weight DESC, 1, 2",
        [number],
    ).fetchall()
    return [PortEdge(clean(port), clean(after), weight) for port, after, weight in rows]


def _starts(incident: Incident, number: int) -> list[str]:
    """The ports of the ways to the roots, of those that cost most first."""
    rows = incident.con.execute(
        "SELECT spread FROM network_roots WHERE id = ? ORDER BY lost_ns DESC, label", [number]
    ).fetchall()
    return [clean(port) for (spread,) in rows for port in spread or ()]


def _roots(
    incident: Incident, number: int
) -> tuple[dict[str, tuple[str, str | None]], list[PortEdge]]:
    """Where waiting begins: kind and host by port, and the port that each had stopped."""
    rows = incident.con.execute(
        "SELECT label, kind, host, paused_label FROM network_roots WHERE id = ? ORDER BY lost_ns",
        [number],
    ).fetchall()
    roots = {clean(port): (kind, host and clean(host)) for port, kind, host, _ in rows}
    stopped = [
        PortEdge(clean(paused), clean(port), None)
        for port, kind, _, paused in rows
        if paused not in (None, port) and kind != "deadlock"
    ]
    return roots, stopped


def why_unseen(incident: Incident, collective: Collective, step: Step) -> str | None:
    """Why nothing is known beyond a late step; None where something is."""
    number = late_step_id(incident, collective, step)
    if number is None:
        return (
            "only the worst late steps of the collectives with the most lost time are traced into "
            "the network"
        )
    ((roots, ports),) = incident.con.execute(
        "SELECT (SELECT count(*) FROM network_roots WHERE id = $id), "
        "(SELECT count(*) FROM step_ports WHERE id = $id)",
        {"id": number},
    ).fetchall()
    if roots:
        return None
    paused = incident.con.execute(
        "SELECT node, nic, rx_pauses, tor_port FROM late_ends WHERE comm = ? AND seq = ? "
        "AND side = 'sender' AND node = ? AND rx_pauses > 0 ORDER BY rx_pauses DESC LIMIT 1",
        [*collective.key, step.src_node],
    ).fetchall()
    for node, nic, frames, port in paused:
        where = f"from upstream of ToR port {clean(port)}" if port else "by its switch"
        return (
            f"NIC {clean(nic)} of {clean(node)} was paused {where} ({frames:,} frames); "
            "the cause needs switch data"
        )
    if not ports:
        return "no switch or NIC data from this time; switch data would show what delayed this step"
    return "no switch reported a queue or a pause on the path of this step"
