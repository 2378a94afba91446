"""What each kind of fault brings into the network, and where (Vedrfolnir II-B, IV-A).

Flows in the collective's way are placed on its ports; storms on a port of its flows; incasts for
backpressure at a host that has no part in it. Deadlock and loop are what routes become that go up
again after they went down.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from oncall.core.errors import UsageError
from oncall_lab.network.collective import Messages
from oncall_lab.network.flow import Flow, Injected, Storm
from oncall_lab.network.routing import Path, hashed, meetings, ways
from oncall_lab.network.scenario import NetworkFault, NetworkScenario
from oncall_lab.network.topology import FatTree

Routes = tuple[Path, ...]
TIME_TO_LIVE = 64  # hops of a packet
_TRIES = 400


@dataclass(frozen=True)
class Place:
    """The network before the fault: the collective's hosts and ways, and the dice."""

    scenario: NetworkScenario
    tree: FatTree
    hosts: tuple[int, ...]
    messages: Messages
    routes: Routes
    steps: Sequence[Sequence[int]]
    rng: np.random.Generator

    @property
    def used(self) -> set[int]:
        """Ports that the collective passes."""
        return {port for path in self.routes for port in path}

    @property
    def others(self) -> list[int]:
        """Hosts that have no part in the collective."""
        return [host for host in range(self.tree.hosts) if host not in self.hosts]

    def pick(self, among: Sequence[int]) -> int:
        if not among:
            raise UsageError("faults: no place is left for one; use fewer members or a larger tree")
        return int(among[int(self.rng.integers(len(among)))])

    def flow(self, src: int, dst: int, size: int, at_ns: float) -> Flow:
        """A flow on the way that switches hash it onto."""
        src_port = int(self.rng.integers(49152, 65536))
        path = hashed(self.tree, src, dst, src_port)
        return Flow(src, dst, path, size, at_ns, src_port, self.scenario.congestion_control)

    def flow_where(
        self,
        src: Sequence[int],
        dst: Sequence[int],
        fits: Callable[[Flow], bool],
        size: int,
        at: float,
    ) -> Flow:
        """A flow between some of these hosts that `fits`. Raises UsageError if none is found."""
        for _ in range(_TRIES):
            ends = self.pick(src), self.pick(dst)
            if ends[0] != ends[1]:
                flow = self.flow(*ends, size, at)
                if fits(flow):
                    return flow
        raise UsageError(
            "faults: no flow fits into this network; use another seed or a larger tree"
        )


def inject(fault: NetworkFault, place: Place) -> tuple[Injected, Routes]:
    """What the fault brings, and the ways that the collective takes because of it."""
    return _KINDS[fault.kind](fault, place)


def innocent(place: Place, count: int) -> list[Flow]:
    """Flows of others that share no port with the collective, at any time of it."""
    used = place.used

    def apart(flow: Flow) -> bool:
        return not used & set(flow.path)

    found = []
    for _ in range(count):
        size = int(place.rng.uniform(0.1, 2) * place.scenario.step_bytes)
        at_ns = float(place.rng.uniform(0, 20e6))
        try:
            found.append(place.flow_where(place.others, place.others, apart, size, at_ns))
        except UsageError:
            break
    return found


# -------------------------------------------------------------------- kinds


def _contention(fault: NetworkFault, place: Place) -> tuple[Injected, Routes]:
    """1 to 6 flows, each on a port of the collective, beginning at different times (IV-A)."""
    rng, used = place.rng, place.used

    def meets(flow: Flow) -> bool:
        return bool(used & set(flow.path[1:-1]))

    count = fault.count or int(rng.integers(1, 7))
    length_ns = _length_ns(place)
    everybody = range(place.tree.hosts)
    flows = []
    for number in range(count):
        size = fault.bytes or int(rng.uniform(20, 1000) / 360 * place.scenario.step_bytes)
        at_ns = fault.at_ns if number == 0 else float(rng.uniform(0, 0.8 * length_ns))
        flows.append(place.flow_where(everybody, everybody, meets, size, at_ns))
    first = min(flow.at_ns for flow in flows)
    return Injected(fault.kind, first, tuple(flows)), place.routes


def _incast(fault: NetworkFault, place: Place) -> tuple[Injected, Routes]:
    """3 to 8 flows to one member that begin together (IV-A)."""
    return _converging(fault, place, place.pick(place.hosts), range(place.tree.hosts)), place.routes


def _converging(
    fault: NetworkFault,
    place: Place,
    target: int,
    among: Sequence[int],
    ports: tuple[int, ...] = (),
) -> Injected:
    rng = place.rng
    senders = [host for host in among if host != target]
    count = min(fault.count or int(rng.integers(3, 9)), len(senders))
    if count < 3:
        raise UsageError("faults: an incast takes three senders; use fewer members")
    flows = []
    for src in rng.choice(senders, count, replace=False).tolist():
        size = fault.bytes or int(rng.uniform(20, 200) / 360 * place.scenario.step_bytes)
        flows.append(place.flow(src, target, size, fault.at_ns + float(rng.uniform(0, 20_000))))
    return Injected(fault.kind, fault.at_ns, tuple(flows), ports=ports)


def _backpressure(fault: NetworkFault, place: Place) -> tuple[Injected, Routes]:
    """An incast to a host without part in the collective; its senders heed no marks.

    Pauses reach the collective where a way of the incast and one of its own lead over the same
    port, short of the last one. Of many draws that one is taken where the fewest do, and where
    the incast's own ways meet latest: so pauses cost more than what flows take from each other.
    """
    best: tuple[float, Injected] | None = None
    for _ in range(_TRIES // 4):
        target = place.pick(place.others)
        root = place.tree.between[place.tree.edge_of(target), target]
        brought = _converging(fault, place, target, place.others, (root,))
        shared = sum(len(place.used.intersection(flow.path)) for flow in brought.flows)
        cost = (shared + _merging(brought.flows)) / len(brought.flows)
        if shared and (best is None or cost < best[0]):
            best = cost, brought
    if best is None:
        raise UsageError("faults: no incast of other hosts comes near the collective")
    flows = tuple(replace(flow, controlled=False) for flow in best[1].flows)
    return replace(best[1], flows=flows), place.routes


def _merging(flows: Sequence[Flow]) -> int:
    """Ports, short of the last one, that several of these flows pass."""
    times = Counter(port for flow in flows for port in flow.path[:-1])
    return sum(number > 1 for number in times.values())


def _storm(fault: NetworkFault, place: Place) -> tuple[Injected, Routes]:
    """A switch tells a port that the collective passes to pause, for 10 to 100 ms / 6 (IV-A).

    The paper's steps are six times as long as ours by default: 360 MB at 100 Gb/s.
    """
    scale = place.scenario.step_bytes / 360e6 * 12.5e9 / place.scenario.network_bytes_per_s
    lasting = fault.lasting_ns or float(place.rng.uniform(10e6, 100e6)) * scale
    path = place.routes[place.pick(range(len(place.routes)))]
    port = place.pick(path[:-1])  # into a switch: hosts that pause are slow receivers
    storm = Storm(port, fault.at_ns, fault.at_ns + lasting)
    return Injected(fault.kind, fault.at_ns, storms=(storm,), ports=(port ^ 1,)), place.routes


def _slow_receiver(fault: NetworkFault, place: Place) -> tuple[Injected, Routes]:
    """A member takes in more slowly than its link brings: its NIC pauses the switch, on and off.

    A NIC's buffer is some hundred kilobytes deep, so pauses and spells of sending take tens of
    microseconds; how much of the time is a matter of what is wrong with the host.
    """
    rng = place.rng
    scale = place.scenario.step_bytes / 360e6 * 12.5e9 / place.scenario.network_bytes_per_s
    lasting = fault.lasting_ns or float(rng.uniform(50e6, 200e6)) * scale
    share, spell_ns = float(rng.uniform(0.4, 0.8)), float(rng.uniform(100e3, 300e3))
    port = place.routes[place.pick(range(len(place.routes)))][-1]
    begins = fault.at_ns + np.arange(0.0, lasting, spell_ns)
    storms = tuple(Storm(port, at, at + share * spell_ns) for at in begins.tolist())
    return Injected(fault.kind, fault.at_ns, storms=storms, ports=(port ^ 1,)), place.routes


def _imbalance(fault: NetworkFault, place: Place) -> tuple[Injected, Routes]:
    """Two flows of the collective are hashed onto one uplink, and its neighbour stays empty."""
    tree, routes = place.tree, place.routes
    for _ in range(_TRIES):
        one = place.pick(range(len(routes)))
        src, dst = (place.hosts[member] for member in place.messages.pairs[one])
        moved = list(routes)
        among = ways(tree, src, dst)
        moved[one] = among[place.pick(range(len(among)))]
        met = meetings(moved, place.steps)
        loads = {port for path in moved for port in path}
        ports = [port for port in met if _idle_beside(place, port, loads, met[port])]
        if ports and len(ports) == len(met):
            at_ns = 0.0
            return Injected(fault.kind, at_ns, ports=tuple(sorted(ports))), tuple(moved)
    raise UsageError("faults: no two flows of the collective can meet beside an empty link")


def _idle_beside(place: Place, port: int, loads: set[int], flows: Sequence[int]) -> bool:
    """Whether another port of that device leads one of the flows there too, and carries nothing."""
    tree = place.tree
    for flow in flows:
        src, dst = (place.hosts[member] for member in place.messages.pairs[flow])
        useful = {other for way in ways(tree, src, dst) for other in way}
        device = tree.device_of[port]
        if any(
            tree.device_of[other] == device and other != port and other not in loads
            for other in useful
        ):
            return True
    return False


def _deadlock(fault: NetworkFault, place: Place) -> tuple[Injected, Routes]:
    """Two flows go up, down and up again around two edge and two aggregation switches of a pod.

    Each uplink failed for one of them, so that it bounces; a slow receiver then fills all buffers
    of the cycle for a moment, and it never opens again (Hu et al., HotNets 2016).
    """
    tree, rng = place.tree, place.rng
    for _ in range(_TRIES):
        pod = int(rng.integers(tree.k))
        edges = rng.choice(tree.half, 2, replace=False).tolist()
        planes = rng.choice(tree.half, 2, replace=False).tolist()
        one, two = (tree.edge(pod, place_) for place_ in edges)
        upper, lower = (tree.aggregation(pod, plane) for plane in planes)
        cycle = tree.ports_along([one, upper, two, lower, one])
        if not set(cycle) & place.used:
            continue
        size = fault.bytes or 4 * place.scenario.step_bytes
        flows = []
        for first, turn, last in ((one, (upper, two), lower), (two, (lower, one), upper)):
            src = place.pick([h for h in range(tree.hosts) if tree.edge_of(h) == first])
            dst = place.pick([h for h in range(tree.hosts) if tree.pod_of(h) != pod])
            plane = planes[0] if last == upper else planes[1]
            rest = [
                tree.core(plane, int(rng.integers(tree.half))),
                tree.aggregation(tree.pod_of(dst), plane),
                tree.edge_of(dst),
                dst,
            ]
            path = tree.ports_along([src, first, *turn, last, *rest])
            port = int(rng.integers(49152, 65536))
            flows.append(Flow(src, dst, path, size, fault.at_ns, port, controlled=False))
        storms = tuple(Storm(flow.path[-1], fault.at_ns + 2e5, fault.at_ns + 2e6) for flow in flows)
        return Injected(fault.kind, fault.at_ns, tuple(flows), storms, cycle), place.routes
    raise UsageError("faults: no cycle of ports comes near the collective")


def _loop(fault: NetworkFault, place: Place) -> tuple[Injected, Routes]:
    """A flow is sent back and forth between an aggregation and an edge switch until its packets
    have lived too long. It is slow, but passes each port of the loop dozens of times."""
    tree, rng = place.tree, place.rng
    for _ in range(_TRIES):
        src, dst = place.pick(place.others), place.pick(place.others)
        if src == dst or tree.edge_of(src) == tree.edge_of(dst):
            continue
        way = place.flow(src, dst, 1, 0.0)
        up = int(tree.towards[way.path[1]])  # the aggregation switch
        pod = tree.pod_of(src)
        wrong = [tree.edge(pod, e) for e in range(tree.half)]
        wrong = [edge for edge in wrong if edge not in (tree.edge_of(src), tree.edge_of(dst))]
        turn = place.pick(wrong) if wrong else tree.edge_of(src)
        cycle = tree.ports_along([up, turn, up])
        if not set(cycle) & place.used:
            continue
        rounds = (TIME_TO_LIVE - 2) // 2
        path = (*way.path[:2], *(cycle * rounds))
        share = float(rng.uniform(0.5, 0.9)) / rounds
        length = 3 * _length_ns(place) * place.scenario.network_bytes_per_s / 1e9
        size = fault.bytes or int(share * length)
        flow = Flow(src, dst, path, size, fault.at_ns, way.src_port, False, share, lost=True)
        return Injected(fault.kind, fault.at_ns, (flow,), ports=cycle), place.routes
    raise UsageError("faults: no loop comes near the collective")


def _length_ns(place: Place) -> float:
    """About how long the collective takes alone."""
    messages = place.messages
    each = messages.bytes[messages.src == 0].sum()
    return float(each) / place.scenario.network_bytes_per_s * 1e9


_KINDS = {
    "CONTENTION": _contention,
    "INCAST": _incast,
    "PFC_BACKPRESSURE": _backpressure,
    "PFC_STORM": _storm,
    "PFC_LOOP_DEADLOCK": _deadlock,
    "FORWARDING_LOOP": _loop,
    "LOAD_IMBALANCE": _imbalance,
    "SLOW_RECEIVER": _slow_receiver,
}
