"""Iteration after iteration: ranks compute, enter an operation, and leave when its data is there.

Who waits for whom follows from the traffic itself. Ranks of a tensor-parallel group, which is a
node, enter everything together but for microseconds, as an AllReduce ends every layer; so a slow
GPU delays its node (Pulse D.4). Infinity is "never".
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from oncall_lab.arrays import Floats, Ints
from oncall_lab.traffic.conditions import GOODPUT, Conditions
from oncall_lab.traffic.exchange import Flows, play_exchange
from oncall_lab.traffic.fault import TrafficFault
from oncall_lab.traffic.operations import CallLog, Calls
from oncall_lab.traffic.proxy import ProxySteps, noticed, proxy_steps
from oncall_lab.traffic.ring import Ring
from oncall_lab.traffic.scenario import TrafficScenario
from oncall_lab.traffic.slices import NO_SLICES, NOTHING_EXPECTED, Expected, Slices, whole_bytes
from oncall_lab.traffic.tree import Tree
from oncall_lab.traffic.workload import CUSTOM, lay_out, routing, volumes
from oncall_lab.training.cluster import Cluster
from oncall_lab.training.schedule import Slot

NVLINK_BYTES_PER_NS = 350.0
LAUNCH_NS = 10e3
SKEW_NS = 4e3  # between tensor-parallel ranks as they enter, on average
COMPUTE_JITTER = 0.01
LL_LINE_BYTES = 16
ROUTING_KEPT = 0.7  # of one micro-batch's routing in the next


@dataclass(frozen=True)
class Played:
    """What happened: all calls, all slices, and when recording ended (ns since the job began)."""

    cluster: Cluster
    conditions: Conditions
    calls: Calls
    slices: Slices
    expected: Expected
    steps: ProxySteps | None  # where a profiler plugin tells of them
    until_ns: float


def play(scenario: TrafficScenario) -> Played:
    """Play a scenario to its last iteration, or until nobody can go on."""
    return _Training(scenario).play()


class _Training:
    def __init__(self, scenario: TrafficScenario) -> None:
        self.scenario = scenario
        self.cluster, self.slots = lay_out(scenario)
        self.conditions = Conditions(scenario, self.cluster)
        self.rng = scenario.rng("training")
        self.wire = scenario.rng("wire")
        self.proxy = scenario.rng("proxy")
        self.log = CallLog(self.cluster.world_size, scenario.rng("host"))
        self.free_ns: Floats = np.zeros(self.cluster.world_size)
        self.parts: list[Slices] = []
        self.steps: list[ProxySteps] = []
        self.expected: list[Expected] = []
        self.operations = 0
        self._tensor_group = self.cluster.grid.reshape(-1, scenario.tp)
        self._routing: dict[int, Floats] = {}
        self._is_back: dict[int, bool] = {}

    def play(self) -> Played:
        for iteration in range(self.scenario.iterations):
            if not np.isfinite(self.free_ns).any():
                break
            stops = {f: self._stopping_slot(f) for f in self.scenario.faults if f.stops}
            for number, slot in enumerate(self.slots):
                for fault in self.scenario.faults:
                    if fault.iteration == iteration and stops.get(fault, 0) == number:
                        self._strike(fault)
                self._do(slot)
        calls, slices = self.log.calls(), whole_bytes(Slices.joined([NO_SLICES, *self.parts]))
        expected = Expected.joined([NOTHING_EXPECTED, *self.expected])
        until = self._until(calls, slices)
        steps = ProxySteps.joined(self.steps) if self.steps else None
        return Played(self.cluster, self.conditions, calls, slices, expected, steps, until)

    def _strike(self, fault: TrafficFault) -> None:
        """As its rank goes on, if it does."""
        now = float(self.free_ns[fault.rank])
        if np.isfinite(now):
            self.conditions.strike(fault, now)

    def _until(self, calls: Calls, slices: Slices) -> float:
        """The last thing that happened, and then as long as a hang is watched."""
        moments = [calls.entered_ns, calls.ended_ns, slices.end_ns]
        last = max(float(m.max(where=np.isfinite(m), initial=0.0)) for m in moments)
        hangs = not np.isfinite(self.free_ns).all()
        return last + (self.scenario.observe_after_ns if hangs else 1e6)

    def _stopping_slot(self, fault: TrafficFault) -> int:
        """Before which operation of an iteration a rank stops: any of its node's. A NIC that is to
        go down does so in its next operation between nodes, whenever that is."""
        if fault.kind == "nic_down":
            return 0
        mine = [
            number
            for number, slot in enumerate(self.slots)
            if slot.family.place(fault.rank) is not None
            and (slot.family.role == "tp" or self.scenario.tp == 1)
        ]
        return int(self.rng.choice(mine)) if mine else 0

    # ------------------------------------------------------------- one operation

    def _do(self, slot: Slot) -> None:
        entered = self._enter(slot)
        role = slot.family.role
        if slot.lanes[0][0] in CUSTOM.values() or role == "ep":
            ended = self._exchange_in_groups(slot, entered)
        elif role == "pp":
            ended = self._pipeline(slot, entered)
        elif role == "dp":
            ended = self._collective(slot, entered)
        else:
            ended = self._small(slot, entered)
        self.free_ns[slot.family.members] = ended + LAUNCH_NS

    def _enter(self, slot: Slot) -> Floats:
        """(G, n): when each member's kernel starts."""
        members, conditions = slot.family.members, self.conditions
        compute = np.broadcast_to(np.array(slot.compute_ns), members.shape)
        if slot.family.role == "ep":
            compute = compute * self._route(slot)
        jitter = np.exp(COMPUTE_JITTER * self.rng.standard_normal(members.shape))
        moment = self.free_ns[members] + compute * conditions.compute[members] * jitter
        moment = np.where(conditions.stopped[members], np.inf, moment)
        if slot.family.role == "tp" or self.scenario.tp == 1:
            return moment
        everyone = np.full(self.cluster.world_size, -np.inf)
        everyone[members] = moment
        together = everyone[self._tensor_group].max(axis=1)
        everyone[self._tensor_group] = together[:, np.newaxis]
        entered: Floats = everyone[members]
        return entered + SKEW_NS * self.rng.standard_exponential(members.shape)

    def _route(self, slot: Slot) -> Floats:
        """(G, n): how much the experts of each member compute before this all-to-all, against the
        mean: as much as they got before tokens go back, and the mean before they are sent."""
        family = slot.family
        stage = family.stage
        self._is_back[stage] = not self._is_back.get(stage, True)
        if self._is_back[stage]:
            shares: Floats = self._routing[stage] * family.size
            return shares
        groups = len(family.members)
        fresh = routing(self.rng, groups, family.size, self.conditions.imbalance)
        before = self._routing.get(stage, fresh)
        self._routing[stage] = ROUTING_KEPT * before + (1 - ROUTING_KEPT) * fresh
        return np.ones(family.members.shape)

    def _sent(self, slices: Slices) -> None:
        """Keep what was sent, as the threads that sent it saw it."""
        seen = noticed(slices, self.conditions.links, self.proxy)
        self.parts.append(seen)
        if self.scenario.device_times:
            self.steps.append(proxy_steps(seen, self.conditions.links, self.proxy))

    def _number_groups(self, groups: int) -> Ints:
        numbers = self.operations + np.arange(groups)
        self.operations += groups
        return numbers

    def _small(self, slot: Slot, entered: Floats) -> Floats:
        """Within a node, or a few bytes of everybody: over when the last one is there."""
        family, op = slot.family, slot.lanes[0][0]
        last = entered.max(axis=1, keepdims=True)
        takes = 2 * slot.size_bytes / NVLINK_BYTES_PER_NS
        ended: Floats = last + takes + 20e3 + 1e3 * self.rng.standard_exponential(entered.shape)
        number = self._few_bytes(slot, last, ended) if family.role == "world" else -1
        for group, ranks in enumerate(family.members):
            called = self.log.call_ns(ranks, entered[group])
            self.log.collective(
                int(family.comms[group]), op, "RING", slot.size_bytes, number,
                ranks, called, entered[group], ended[group],
            )  # fmt: skip
        return ended

    def _few_bytes(self, slot: Slot, last: Floats, ended: Floats) -> int:
        """The last rank of each node sends what NCCL's LL protocol makes of a small AllReduce to
        the first rank of the next: 16 bytes a step. Returns the operation's number."""
        (number,) = self._number_groups(1)
        if np.isfinite(last).all():
            local, n = self.cluster.local, self.cluster.world_size
            sender = np.flatnonzero(local == local.max())
            one = np.ones(len(sender))
            begin, end = one * float(last[0, 0]), one * float(ended.min())
            self.parts.append(
                Slices(
                    operation=np.full(len(sender), number),
                    sender=sender,
                    peer=(sender + 1) % n,
                    channel=np.zeros(len(sender), dtype=np.int64),
                    bytes=one * 2 * (n - 1) * LL_LINE_BYTES,
                    posted_ns=begin,
                    begin_ns=begin,
                    end_ns=end,
                    completed_ns=end,
                )
            )
            self.expected.append(
                Expected(np.full(len(sender), number), sender, (sender + 1) % n,
                         2 * one * slot.size_bytes * (n - 1) / n)
            )  # fmt: skip
        return int(number)

    def _collective(self, slot: Slot, entered: Floats) -> Floats:
        s, family, op = self.scenario, slot.family, slot.lanes[0][0]
        whole = slot.size_bytes * (family.size if op == "AllGather" else 1)
        self._disable_nics(slot, entered, whole * (2 if op == "AllReduce" else 1))
        numbers = self._number_groups(len(family.members))
        if op == "AllReduce" and s.algorithm == "tree":
            plan: Tree | Ring = Tree(family.size, whole, s.channels, s.slice_bytes)
        else:
            plan = Ring(op, family.size, whole, s.channels, s.slice_bytes)
        slices, ended = plan.play(
            family.members, entered, self.conditions.links, s.buffer_slices, self.wire
        )
        self._sent(replace(slices, operation=numbers[slices.operation]))
        self.expected.append(plan.expected(numbers, family.members))
        passed = whole if op == "AllReduce" else whole // family.size  # as NCCL's caller counts
        for group, ranks in enumerate(family.members):
            called = self.log.call_ns(ranks, entered[group])
            self.log.collective(
                int(family.comms[group]), op, plan.algorithm, passed, int(numbers[group]),
                ranks, called, entered[group], ended[group],
            )  # fmt: skip
        return ended

    def _disable_nics(self, slot: Slot, entered: Floats, volume: float) -> None:
        """A NIC that is to go down does so in the middle of this operation, if it is its own."""
        for fault in tuple(self.conditions.nics_to_disable):
            place = slot.family.place(fault.rank)
            if place is not None and np.isfinite(entered[place[0]]).all():
                rate = self.scenario.network_bytes_per_s / 1e9 * GOODPUT
                share = self.rng.uniform(0.2, 0.7)
                at = float(entered[place[0]].max()) + share * volume / rate
                self.conditions.disable_nic(fault, at)

    def _pipeline(self, slot: Slot, entered: Floats) -> Floats:
        """Sends and receives between two stages, both directions in one group call."""
        members = slot.family.members
        size = np.zeros((len(members), 2, 2))
        for lane in slot.lanes:
            sender = lane.index("Send")
            size[:, sender, 1 - sender] = slot.size_bytes
        return self._groups_of_transfers(slot, entered, size)

    def _exchange_in_groups(self, slot: Slot, entered: Floats) -> Floats:
        family, op = slot.family, slot.lanes[0][0]
        shares = np.ones(family.members.shape)
        if family.role == "ep":
            shares = self._routing[family.stage]
            op = "AllToAllBack" if self._is_back[family.stage] else "AllToAll"
        size = volumes(family, op, slot.size_bytes, shares)
        self._disable_nics(slot, entered, float(size[0].sum(axis=1).max()))
        return self._groups_of_transfers(slot, entered, size)

    def _groups_of_transfers(self, slot: Slot, entered: Floats, size: Floats) -> Floats:
        """`size` (G, n, n) bytes from each member to each, as Sends and Recvs of one group call."""
        s, members = self.scenario, slot.family.members
        numbers = self._number_groups(len(members))
        group, source, target = np.nonzero(size)
        between = source != target
        g, a, b = group[between], source[between], target[between]
        flows = Flows(
            operation=numbers[g],
            sender=members[g, a],
            receiver=members[g, b],
            bytes=size[g, a, b],
            sender_entered_ns=entered[g, a],
            receiver_entered_ns=entered[g, b],
        )
        slices, arrived = play_exchange(
            flows,
            self.conditions.links,
            float(s.buffer_slices * s.slice_bytes),
            float(s.slice_bytes),
            self.wire,
        )
        self._sent(slices)
        self.expected.append(Expected(flows.operation, flows.sender, flows.receiver, flows.bytes))
        done = np.repeat(entered[:, :, np.newaxis], members.shape[1], axis=2)
        both = np.maximum(arrived, flows.receiver_entered_ns)
        sent, received = done.copy(), done.copy().transpose(0, 2, 1)
        sent[g, a, b], received[g, a, b] = both, both
        self._log_transfers(slot, entered, size, numbers, sent, received)
        ended: Floats = np.maximum(sent.max(axis=2), received.max(axis=1))
        return ended

    def _log_transfers(
        self, slot: Slot, entered: Floats, size: Floats, numbers: Ints, sent: Floats,
        received: Floats,
    ) -> None:  # fmt: skip
        members = slot.family.members
        called = np.empty(members.shape)
        for column in range(members.shape[1]):
            called[:, column] = self.log.call_ns(members[:, column], entered[:, column])
        for g, ranks in enumerate(members):
            comm, number = int(slot.family.comms[g]), int(numbers[g])
            for a, rank in enumerate(ranks):
                group = self.log.group()
                call = comm, number, group, float(called[g, a]), float(entered[g, a])
                for b in np.flatnonzero(size[g, a] + size[g, :, a]):
                    for op, volume, ended in (
                        ("Send", size[g, a, b], sent[g, a, b]),
                        ("Recv", size[g, b, a], received[g, b, a]),
                    ):
                        if volume:
                            self._log_transfer(call, op, int(rank), int(ranks[b]), volume, ended)

    def _log_transfer(
        self, call: tuple[int, int, int, float, float], op: str, rank: int, peer: int,
        volume: float, ended: float,
    ) -> None:  # fmt: skip
        comm, number, group, called, entered = call
        self.log.transfer(
            comm, op, rank, peer, int(volume), number if rank != peer else -1,
            group, called, entered, float(ended),
        )  # fmt: skip
