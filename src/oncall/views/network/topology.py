"""The network in tiers, by how far from hosts, with the way that pauses took from root to victim.

Of a large network those devices are drawn that the way or the flow passes, and some beside them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from oncall.analysis.network.network_paths import FAR, UNKNOWN, Network, Port, label
from oncall.core.nodeset import natural
from oncall.core.printable import clean
from oncall.evidence.incident import Incident
from oncall.views.network.provenance import late_step_id
from oncall.views.network.waiting import Collective, Step

Role = Literal["victim", "root", "way", "flow", "other"]


@dataclass(frozen=True)
class Device:
    """A host (tier 0) or a switch."""

    name: str
    tier: int
    role: Role = "other"


@dataclass(frozen=True)
class Cable:
    """A link between two devices. `paused`: it lies on the way of the pauses, which came from `b`
    to `a`; `flow`: the critical flow went from `a` to `b` on it."""

    a: str
    b: str
    paused: bool = False
    flow: bool = False


@dataclass(frozen=True)
class Hop:
    """A port of the way from the victim to the root, with what happened to it."""

    label: str
    device: str
    towards: str
    paused_ns: float | None = None
    depth: float | None = None
    is_root: bool = False


@dataclass(frozen=True)
class Root:
    """Where the step's waiting begins. `share` is its part of what the step lost."""

    kind: str
    label: str
    host: str | None
    seen: bool
    share: float
    hops: tuple[Hop, ...]


@dataclass(frozen=True)
class Topology:
    """`tiers` from hosts up, devices in drawing order; `left_out` of each tier are not drawn.
    `notes`: what else is seen at the root, a sentence each."""

    victim: str
    roots: tuple[Root, ...]
    tiers: tuple[tuple[Device, ...], ...]
    cables: tuple[Cable, ...]
    left_out: tuple[int, ...]
    notes: tuple[str, ...] = ()

    @property
    def root(self) -> Root | None:
        """The one that most of the step's loss leads to."""
        return self.roots[0] if self.roots else None

    @property
    def drawn(self) -> int:
        return sum(map(len, self.tiers))


MOST_OF_TIER = 16
IDLE = 0.1  # of the busy port's packets


def topology(
    incident: Incident, net: Network, collective: Collective, step: Step
) -> Topology | None:
    """The network with the way from a late step to where its waiting begins; None where neither
    is known."""
    number = late_step_id(incident, collective, step)
    if number is None:
        return None
    roots = _roots(incident, net, number)
    taken = _taken(incident, net, number)
    if not roots and not len(net.ports):
        return None
    passed = [net.devices[int(net.device_of[port])] for port in taken]
    roles = _roles(step.src_node, roots, [*passed, step.dst_node])
    tiers, left_out = _tiers(net, roles)
    drawn = {device.name for tier in tiers for device in tier}
    cables = _cables(net, drawn, roots, taken)
    notes = tuple(_notes(incident, collective, roots[0])) if roots else ()
    return Topology(step.src_node, roots, tiers, cables, left_out, notes)


def _notes(incident: Incident, collective: Collective, root: Root) -> Iterator[str]:
    """Flows in a forwarding loop through the root, and links beside it that are idle."""
    incident.provide(("forwarding_loops", "network_roots"))
    loops = incident.con.execute(
        "SELECT name, ports FROM forwarding_loops "
        "WHERE list_contains(ports, ?) AND name IS NOT NULL ORDER BY flow LIMIT 2",
        [root.label],
    ).fetchall()
    for name, ports in loops:
        yield f"{clean(name)} is in a forwarding loop there: {clean(' > '.join(ports))}"
    beside = incident.con.execute(
        f"""
        SELECT idle_label, max(idle_packets)::BIGINT, max(packets)::BIGINT FROM network_roots
        WHERE comm = ? AND seq = ? AND label = ?
        GROUP BY idle_label HAVING max(idle_packets) < {IDLE} * max(packets) ORDER BY 2, 1 LIMIT 2
        """,
        [*collective.key, root.label],
    ).fetchall()
    for name, packets, busy in beside:
        yield f"{clean(name)} also leads there but sent {packets:,} packets, not {busy:,}"


def _roots(incident: Incident, net: Network, number: int) -> tuple[Root, ...]:
    """Where the congestion starts, the most lost time first, each with the ports on the path."""
    rows = incident.con.execute(
        """SELECT kind, label, host, seen, lost_ns / sum(lost_ns) OVER (), spread
        FROM network_roots WHERE id = ? ORDER BY lost_ns DESC, label""",
        [number],
    ).fetchall()
    pauses_by_port = {
        name: (paused_ns, depth)
        for name, paused_ns, depth in incident.con.execute(
            "SELECT switch || 'P' || port, paused_ns, depth FROM step_ports WHERE id = ?", [number]
        ).fetchall()
    }
    places = {label(port): place for place, port in enumerate(net.ports)}
    return tuple(
        Root(
            kind,
            clean(name),
            host and clean(host),
            seen,
            share or 0.0,
            tuple(
                _hop(net, places, pauses_by_port, port, name)
                for port in dict.fromkeys([*spread, *([name] if kind != "deadlock" else [])])
            ),
        )
        for kind, name, host, seen, share, spread in rows
    )


def _hop(
    net: Network,
    places: Mapping[str, int],
    pauses_by_port: Mapping[str, tuple[float | None, float | None]],
    port: str,
    root: str,
) -> Hop:
    paused_ns, depth = pauses_by_port.get(port, (None, None))
    place = places.get(port)
    if place is None:
        return Hop(clean(port), clean(port.rpartition("P")[0]), "", paused_ns, depth, port == root)
    device = net.devices[int(net.device_of[place])]
    towards = net.devices[int(net.towards[place])]
    towards = "" if towards.startswith(UNKNOWN) else towards
    return Hop(clean(port), clean(device), clean(towards), paused_ns, depth, port == root)


def _taken(incident: Incident, net: Network, number: int) -> list[int]:
    """The ports at which the step's own flow was seen."""
    rows: list[Port] = incident.con.execute(
        "SELECT DISTINCT switch, port FROM step_flows WHERE id = ? AND own", [number]
    ).fetchall()
    return [net.number[port] for port in rows if port in net.number]


def _roles(victim: str, roots: tuple[Root, ...], taken: list[str]) -> dict[str, Role]:
    """What each device has to do with it; the strongest counts."""
    roles: dict[str, Role] = dict.fromkeys(taken, "flow")
    for root in roots[1:]:
        roles[root.hops[-1].device] = "way"
    for root in roots[:1]:
        for hop in root.hops:
            roles[hop.device] = "way"
    if victim:
        roles[victim] = "victim"
    for root in roots[:1]:
        roles[root.label.rpartition("P")[0]] = "root"
    return roles


def _tiers(
    net: Network, roles: Mapping[str, Role]
) -> tuple[tuple[tuple[Device, ...], ...], tuple[int, ...]]:
    """Devices by their distance from the nearest host, in an order with few crossings."""
    if not len(net.ports) or not len(net.hosts):
        return (), ()
    away = net.distances.min(axis=0)
    known = [not name.startswith(UNKNOWN) for name in net.devices]
    place = np.zeros(len(net.devices))
    near = _near(net, roles)
    tiers: list[tuple[Device, ...]] = []
    left_out = []
    for tier in range(int(away[away < FAR].max()) + 1):
        members = [number for number in np.flatnonzero(away == tier).tolist() if known[number]]
        _settle(net, away, place, members, tier)
        members.sort(key=lambda number: (place[number], natural(net.devices[number])))
        for rank, number in enumerate(members):
            place[number] = rank / max(len(members), 1)
        kept = _kept([net.devices[number] for number in members], roles, near)
        tiers.append(tuple(Device(clean(one), tier, roles.get(one, "other")) for one in kept))
        left_out.append(len(members) - len(kept))
    return tuple(tiers), tuple(left_out)


def _settle(
    net: Network, away: NDArray[np.int16], place: NDArray[np.float64], members: list[int], tier: int
) -> None:
    """Put each device of a tier over the middle of those below that it is linked to."""
    for number in members:
        below = [
            place[net.towards[port]]
            for port in net.of_device.get(number, [])
            if away[net.towards[port]] == tier - 1
        ]
        place[number] = sum(below) / len(below) if below else 0.0


def _near(net: Network, roles: Mapping[str, Role]) -> set[str]:
    """The devices that are linked to one that has a role."""
    return {
        net.devices[int(net.towards[port])]
        for name in roles
        if name in net.device
        for port in net.of_device.get(net.device[name], [])
    }


def _kept(names: list[str], roles: Mapping[str, Role], near: set[str]) -> list[str]:
    """All that have a role, and as far as there is room those beside them, then others."""
    if len(names) <= MOST_OF_TIER:
        return names
    ranked = sorted(names, key=lambda name: (name not in roles, name not in near))
    kept = set(ranked[:MOST_OF_TIER])
    return [name for name in names if name in kept]


def _cables(
    net: Network, drawn: set[str], roots: tuple[Root, ...], taken: list[int]
) -> tuple[Cable, ...]:
    paused = {
        hop.label
        for root in roots[:1]
        for hop in root.hops
        if hop.paused_ns and not (hop.is_root and root.kind == "storm")  # that one stops others
    }
    flow = set(taken)
    cables = []
    for port, (device, other, back) in enumerate(
        zip(net.device_of.tolist(), net.towards.tolist(), net.back.tolist(), strict=True)
    ):
        a, b = net.devices[device], net.devices[other]
        if a not in drawn or b not in drawn:
            continue
        here = (label(net.ports[port]) in paused, port in flow)
        there = (label(net.ports[back]) in paused, back in flow)
        if any(here) or (not any(there) and port < back):
            cables.append(Cable(a, b, *here))
    return tuple(cables)
