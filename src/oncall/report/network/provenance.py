"""The provenance graph around one late step: the ports where its flow queued or was stopped, the
ports those waited for, and the flows that stood there (Vedrfolnir III-D1)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from oncall.analysis.common.graph import components
from oncall.report.network.waiting import Step


@dataclass(frozen=True)
class PortNode:
    """A port. `depth` is the mean queue in packets, `paused_ns` how long it had to stop during the
    step; None: not told. `root` names why waiting begins here, if it does."""

    label: str
    device: str
    depth: float | None = None
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
    circle."""
    after: dict[str, list[str]] = defaultdict(list)
    for edge in edges:
        after[edge.port].append(edge.after)
    front, seen = list(dict.fromkeys(starts)), {}
    while front:
        port = front.pop(0)
        if port not in seen:
            seen[port] = after[port]
            front += after[port]
    return [port for circle in reversed(components(seen)) for port in circle]
