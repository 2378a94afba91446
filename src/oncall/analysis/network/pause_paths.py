"""From a late step to where its waiting begins: along its path, then along the pauses.

A port that had to stop was stopped by the device it leads to. That device stops others because
its own egress fills: a port of it is stopped in turn (the pause spreads from there), or has a
queue (there traffic contends), or neither: then it pauses without a reason of its own, a storm.
Ports that stop each other in a cycle never go on: a deadlock (Vedrfolnir III-D2; Hawkeye).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from oncall.analysis.common.graph import components
from oncall.analysis.network.network_paths import Network
from oncall.analysis.network.step_views import View
from oncall.evidence import relation


@relation(
    "pause_spans",
    reads=["switch_pauses"],
    columns=[
        ("switch", "VARCHAR", "", "the device that had to stop"),
        "port",
        ("started_ns", "BIGINT", "ns", "the pause"),
        ("ended_ns", "BIGINT", "ns", "the resume, else the last instant it is known of"),
        ("over", "BOOLEAN", "", "the resume was recorded"),
        ("by_switch", "VARCHAR", "", "the device that paused it: its link's other end"),
        ("by_port", "INTEGER", "", "the port that sent the pause"),
    ],
    source="IEEE 802.1Qbb; Vedrfolnir III-C3",
)
def pause_spans() -> str:
    """A port's pauses. One that is repeated before it ends goes on."""
    return """
        WITH changes AS (
            SELECT * FROM switch_pauses WHERE at_ns IS NOT NULL AND paused IS NOT NULL
            QUALIFY paused IS DISTINCT FROM
                coalesce(lag(paused) OVER (PARTITION BY switch, port ORDER BY at_ns), false)),
        spans AS (
            SELECT switch, port, at_ns AS started_ns, paused,
                lead(at_ns) OVER (PARTITION BY switch, port ORDER BY at_ns) AS ended_ns
            FROM changes),
        -- Where every step ended, traffic flowed again: a pause without its end was not recorded
        -- to its end. Where one goes on, so may the pause.
        newest AS (
            SELECT greatest(
                (SELECT max(at_ns) FROM switch_pauses),
                (SELECT max(coalesce(ended_ns, started_ns)) FROM flow_steps
                 WHERE EXISTS (FROM flow_steps WHERE ended_ns IS NULL)),
                (SELECT max(at_ns) FROM switch_ports
                 WHERE EXISTS (FROM flow_steps WHERE ended_ns IS NULL))) AS at_ns),
        ends AS (
            SELECT a AS switch, a_port AS port, b AS by_switch, b_port AS by_port FROM links
            UNION SELECT b, b_port, a, a_port FROM links)
        SELECT s.switch, s.port, s.started_ns, coalesce(s.ended_ns, n.at_ns) AS ended_ns,
            s.ended_ns IS NOT NULL AS over, e.by_switch, e.by_port
        FROM spans s LEFT JOIN ends e USING (switch, port) CROSS JOIN newest n
        WHERE s.paused
    """


@dataclass(frozen=True)
class Root:
    """Where a late step's waiting begins.

    `kind`: queue, storm, deadlock, unseen (of a device that reported no queues), or overrun
    (a queue that is no cause; such roots count only where there is no other). `ports`
    is the way there from the step's own path, the root's port last; for a storm that is the port
    that was stopped, for a deadlock they are the cycle. `weight`: its share of the excess.
    """

    kind: str
    port: int
    ports: tuple[int, ...]
    weight: float


def roots(view: View, net: Network) -> list[Root]:
    """Where the waiting of one late step begins, the shares of its excess summing to at most one.

    Pauses explain as much as they lasted, traffic that contends on the path itself what ports gave
    it of the other time, or all the rest. A port's queue is its pauses' doing where these are most
    of the loss.
    """
    starts = [port for port in view.path if _stops(view, port)]
    stopped_ns = max((view.paused[port][0] for port in starts), default=0.0)
    direct = {
        port: share
        for port, share in view.shared.items()
        if share > 0
        and view.depth.get(port, 0) >= view.thresholds.least_queue
        and view.paused.get(port, (0.0, 0))[0] < view.thresholds.mainly * view.excess_ns
    }
    shared_ns = 0.0
    if direct:
        shared_ns = max(direct.values()) * max(view.duration_ns - stopped_ns, 0.0)
        shared_ns = max(shared_ns, view.excess_ns - stopped_ns)
    lost_ns = max(view.excess_ns, stopped_ns + shared_ns, 1.0)
    each = shared_ns / lost_ns / (sum(direct.values()) or 1.0)
    found = [Root(_queue(view, port), port, (port,), each * direct[port]) for port in direct]
    share = stopped_ns / lost_ns / max(len(starts), 1)
    edges = spreading(view, net)
    storm_ns = view.thresholds.storm_ns
    cycles = [
        set(cycle)
        for cycle in components(edges)
        if len(cycle) > 1 and all(view.paused[port][1] >= storm_ns for port in cycle)
    ]
    for start in starts:
        found += _ends(view, net, edges, cycles, (start,), share)
    causes = [root for root in found if root.kind != "overrun"] or found
    scale = sum(root.weight for root in found) / (sum(root.weight for root in causes) or 1.0)
    best: dict[tuple[str, int], Root] = {}
    for root in sorted(causes, key=lambda root: -len(root.ports)):
        key = root.kind, root.port
        old = best.get(key)
        weight = root.weight * scale + (old.weight if old else 0)
        ports = old.ports if old else root.ports
        best[key] = Root(root.kind, root.port, ports, weight)
    return sorted(best.values(), key=lambda root: (-root.weight, root.port))


def _queue(view: View, port: int) -> str:
    return "overrun" if port in view.overrun else "queue"


def _stops(view: View, port: int) -> bool:
    """Whether a port's pauses explain a good part of what the step lost."""
    return view.paused.get(port, (0.0, 0))[0] > view.thresholds.paused * view.excess_ns


def spreading(view: View, net: Network) -> dict[int, list[int]]:
    """Stopped port -> the ports, stopped too, that its device waited for."""
    edges: dict[int, list[int]] = {}
    storm_ns, spreads = view.thresholds.storm_ns, view.thresholds.spreads
    for port, (stopped, longest) in view.paused.items():
        if stopped <= 0:
            continue
        after = [
            other
            for other in net.follows(port)
            if view.paused.get(other, (0.0, 0))[0] >= spreads * stopped
            # One long pause is not made of the short ones of a queue that fills and drains.
            and (longest < storm_ns or view.paused[other][1] >= spreads * longest)
        ]
        if longest >= storm_ns:
            # Traffic in a loop is on no shortest path; stopped ports show it. Both ends
            # of a link stop each other only where packets are sent back as they came: in a loop.
            after += [
                other
                for other in net.of_device.get(int(net.towards[port]), [])
                if other not in after and view.paused.get(other, (0.0, 0))[1] >= storm_ns
            ]
        edges[port] = after
    return edges


def _own_next(view: View, port: int, nexts: list[int]) -> list[int]:
    """Of the ports that one on the step's path waits for, that where the step's own packets wait.

    A buffer holds back whoever sent what is in it: packets queued elsewhere do not delay this
    sender while its own next port is stopped as long.
    """
    own = [
        after
        for after in nexts
        if port in view.path
        and after in view.path
        and view.paused[after][0] >= view.thresholds.mainly * view.paused[port][0]
    ]
    return own or nexts


def queues_behind(view: View, net: Network, port: int) -> dict[int, float]:
    """Ports with a queue that the traffic of `port` goes on to, and how deep it is."""
    return {
        after: view.depth[after]
        for after in net.follows(port)
        if view.depth.get(after, 0) >= view.thresholds.least_queue
    }


def _ends(
    view: View,
    net: Network,
    edges: Mapping[int, list[int]],
    cycles: list[set[int]],
    way: tuple[int, ...],
    weight: float,
) -> Iterator[Root]:
    """The roots that the pauses of the last port of `way` lead to."""
    port = way[-1]
    for cycle in cycles:
        if port in cycle:
            yield Root("deadlock", min(cycle), tuple(sorted(cycle)), weight)
            return
    nexts = _own_next(view, port, [after for after in edges.get(port, []) if after not in way])
    if nexts:
        total = sum(view.paused[after][0] for after in nexts)
        for after in nexts:
            share = weight * view.paused[after][0] / total
            yield from _ends(view, net, edges, cycles, (*way, after), share)
        return
    behind = net.follows(port)
    queues = queues_behind(view, net, port)
    if view.paused[port][1] >= view.thresholds.storm_ns:
        yield Root("storm", port, way, weight)
    elif queues:
        for queue, depth in queues.items():
            share = weight * depth / sum(queues.values())
            yield Root(_queue(view, queue), queue, (*way, queue), share)
    elif net.host_behind(port) or (
        behind and not view.has_pause_spans and all(q in view.depth for q in behind)
    ):
        yield Root("storm", port, way, weight)
    else:
        yield Root("unseen", port, way, weight)
