"""Collectives made by hand, for the network screen: a ring of eight, one step late by an incast."""

from __future__ import annotations

from dataclasses import replace

from oncall.core.errors import UsageError
from oncall.views.network.collective import NetworkView, NodeLatency, Opened, StepView
from oncall.views.network.provenance import (
    Contributor,
    FlowEdge,
    FlowNode,
    PortEdge,
    PortNode,
    Provenance,
)
from oncall.views.network.topology import Cable, Device, Hop, Role, Root, Topology
from oncall.views.network.waiting import Collective, Lane, Step, WaitingGraph
from oncall.views.snapshot import Table

from .snapshots import DP, FIRST_NS, JOB

MS = 10**6
MEMBERS, STEPS, FIRST_RANK = 8, 7, 8
STEP, LOST = 5 * MS, 4 * MS
LATE = (5, 4)  # member and step
WORST, LAST = 14, 17  # collectives


def waiting_graph(seq: int = WORST) -> WaitingGraph:
    """A ring in which every step waits for the neighbour's; one of number 14 takes too long."""
    start_ns = FIRST_NS + seq * 60 * MS
    steps: dict[tuple[int, int], Step] = {}
    for number in range(1, STEPS + 1):
        for member in range(MEMBERS):
            steps[member, number] = _step(steps, start_ns, member, number, seq)
    last = max(steps.values(), key=lambda step: step.ended_ns)
    by_key = {step.key: step for step in steps.values()}
    path = [last]
    while path[0].after is not None:
        path.insert(0, by_key[path[0].after])
    critical = {step.key for step in path}
    lanes = tuple(
        Lane(
            FIRST_RANK + member,
            _node(member),
            tuple(
                replace(step, critical=step.key in critical)
                for step in (steps[member, number] for number in range(1, STEPS + 1))
            ),
        )
        for member in range(MEMBERS)
    )
    of = next(one for one in collectives() if one.seq == seq)
    drawn = tuple(replace(step, critical=True) for step in path)
    return WaitingGraph(of, drawn, lanes, (start_ns, start_ns + of.took_ns))


def _step(
    steps: dict[tuple[int, int], Step], start_ns: int, member: int, number: int, seq: int
) -> Step:
    own, data = (steps.get((one % MEMBERS, number - 1)) for one in (member, member - 1))
    after = max((one for one in (own, data) if one), key=lambda one: one.ended_ns, default=None)
    begin = start_ns if after is None else after.ended_ns
    late = seq == WORST and (member, number) == LATE
    return Step(
        src=FIRST_RANK + member,
        dst=FIRST_RANK + (member + 1) % MEMBERS,
        step=number,
        started_ns=begin,
        ended_ns=begin + STEP + LOST * late,
        expected_ns=STEP,
        excess_ns=LOST * late,
        late=late,
        waited_for=None if after is None else "previous" if after is own else "data",
        after=None if after is None else after.key,
        gap_ns=None if after is None else 0,
        waiters=2 if number < STEPS else 0,
        src_node=_node(member),
        dst_node=_node((member + 1) % MEMBERS),
    )


def _node(member: int) -> str:
    return f"gpu{20 + member % MEMBERS:03d}"


def collectives() -> tuple[Collective, ...]:
    return tuple(
        Collective(
            JOB,
            DP,
            seq,
            "AllGather",
            MEMBERS,
            FIRST_NS + seq * 60 * MS,
            STEPS * STEP + (LOST if seq == WORST else 0),
            LOST if seq == WORST else 0.0,
            over=True,
        )
        for seq in range(LAST + 1)
    )


def network_view(key: tuple[int, int] | None = None) -> NetworkView:
    comm, seq = key or (DP, WORST)
    if comm != DP or not 0 <= seq <= LAST:
        raise UsageError(f"no steps of a collective {seq} are known here")
    flows = tuple(
        Contributor(place, 100 + place, f"{src}->gpu026", src, "gpu026", 5e5 * share, share, True,
                    ("leaf3P3",))
        for place, (src, share) in enumerate(
            (("gpu031", 0.41), ("gpu035", 0.33), ("gpu040", 0.17), ("gpu041", 0.09)), 1
        )
    )  # fmt: skip
    latencies = tuple(
        NodeLatency(_node(member), "mlx5_0", (58e3 if member == 5 else 11e3) + 137 * member,
                    3e3 + 71 * member, 62e3 if member == 5 else 14e3 + 208 * member)
        for member in (5, 7, 6, 4, 3, 2, 1, 0)
    )  # fmt: skip
    return NetworkView(collectives(), waiting_graph(seq), flows if seq == WORST else (), latencies)


def step_view(step: Step) -> StepView:
    if not step.late:
        why = "this step took as long as expected (5 ms): the network did not hold it up"
        return StepView(step, None, None, why)
    return StepView(step, topology(), provenance(step), None)


def topology() -> Topology:
    """Two spines over four leaves: leaf3's port to the receiver has the queue."""
    roles: dict[str, Role] = {
        "gpu025": "victim", "leaf2": "way", "spine1": "way", "leaf3": "root", "gpu026": "flow",
    }  # fmt: skip
    hosts = tuple(_node(member) for member in range(MEMBERS))
    tiers = (hosts, ("leaf0", "leaf1", "leaf2", "leaf3"), ("spine0", "spine1"))
    hops = (
        Hop("gpu025P1", "gpu025", "leaf2", 3_698_915.0, 5.2),
        Hop("leaf2P4", "leaf2", "spine1", 2_972_034.0, 119.6),
        Hop("spine1P3", "spine1", "leaf3", 2_448_284.0, 139.1),
        Hop("leaf3P1", "leaf3", "gpu026", None, 174.4, is_root=True),
    )
    return Topology(
        "gpu025",
        (Root("contention", "leaf3P1", "gpu026", True, 1.0, hops),),
        tuple(
            tuple(Device(name, number, roles.get(name, "other")) for name in tier)
            for number, tier in enumerate(tiers)
        ),
        (
            *(Cable(hop.device, hop.towards, paused=True) for hop in hops[:-1]),
            Cable("leaf3", "gpu026", flow=True),
        ),
        (0, 0, 0),
    )


def provenance(step: Step) -> Provenance:
    ports = (
        PortNode("gpu025P1", "gpu025", 5.2, 3_698_915.0, 18_496, own=True),
        PortNode("leaf2P4", "leaf2", 119.6, 2_972_034.0, 17_322, own=True),
        PortNode("spine1P3", "spine1", 139.1, 2_448_284.0, 18_496, own=True),
        PortNode("leaf3P1", "leaf3", 174.4, None, None, own=True, root="contention", host="gpu026"),
    )
    flows = (
        FlowNode(9, "gpu025->gpu026", own=True, member=True),
        *(FlowNode(100 + place, name, share=share) for place, (name, share) in enumerate(
            (("gpu031->gpu026", 0.41), ("gpu035->gpu026", 0.33), ("gpu040->gpu026", 0.17)), 1)),
    )  # fmt: skip
    return Provenance(
        step,
        "gpu025->gpu026",
        ports,
        flows,
        (
            *(FlowEdge(9, port.label, 9e4, 6e4) for port in ports),
            FlowEdge(101, "leaf3P1", 0, 4.4e5),
            FlowEdge(102, "leaf3P1", 0, 3.1e5),
            FlowEdge(103, "spine1P3", 0, 8e4),
            FlowEdge(103, "leaf3P1", 0, 1.5e5),
        ),
        tuple(
            PortEdge(port.label, after.label, weight)
            for port, after, weight in zip(ports, ports[1:], (0.5, 0.5, 0.34), strict=False)
        ),
        flows_left_out=1,
    )


def network_rows(opened: Opened) -> Table:
    if opened.kind == "node":
        columns = ("nic", "target_node", "network_ns", "pings")
        return Table(columns, (("mlx5_0", "gpu026", 58_000, 40),), 1)
    if opened.kind == "flow":
        columns = ("step", "src", "dst", "port", "packets", "met", "score")
        return Table(columns, ((4, 13, 14, "leaf3P1", 9_120, 440_000, 205_000),), 1)
    columns = ("port", "packets", "queue", "paused_ns", "longest_ns")
    rows = (
        ("gpu025P1", 41_200, 5.2, 3_698_915, 18_496),
        ("leaf2P4", 80_400, 119.6, 2_972_034, 17_322),
        ("leaf3P1", 52_000, 174.4, 0, None),
    )
    return Table(columns, rows, 3)
