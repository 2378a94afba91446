"""How conditions stretch training: work done at a pace that changes over time.

A pace is speed relative to a healthy one. What takes `work_ns` when healthy ends when the pace,
summed over time, has reached it; at pace 0 nothing moves. Operations go at the pace of the
slowest link they pass, so one slow NIC slows its whole ring (TFD 3.3).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from oncall_lab.arrays import Bools, Floats, Ints
from oncall_lab.training.algorithm import SMALL_BYTES
from oncall_lab.training.cluster import Family
from oncall_lab.training.measured import quantities as q
from oncall_lab.training.measured.condition import (
    FOREVER_NS,
    Condition,
    Quantity,
    StepDelay,
    touched,
)
from oncall_lab.training.measured.machine import Fleet
from oncall_lab.training.meeting import Meeting, Stall, Strain

# Data takes so much of a line at most: headers of 4 KiB packets, DCQCN's additive steps.
LINE_EFFICIENCY = 0.95


class Pace:
    """A speed that is constant between instants: `speed[i]` from `at_ns[i]` on."""

    def __init__(self, at_ns: Floats, speed: Floats) -> None:
        self.key = at_ns.tobytes() + speed.tobytes()
        self.at_ns = np.append(at_ns, FOREVER_NS)
        self.speed = speed
        self.done_ns = np.append(0.0, np.cumsum(np.diff(self.at_ns) * speed))

    @property
    def is_normal(self) -> bool:
        return bool((self.speed == 1.0).all())

    def ends(self, start_ns: Floats, work_ns: Floats) -> Floats:
        """When work that starts then is done; infinity if never."""
        begun = np.interp(start_ns, self.at_ns, self.done_ns)
        end: Floats = np.interp(begun + work_ns, self.done_ns, self.at_ns, right=np.inf)
        return np.where(np.isfinite(start_ns), end, np.inf)

    def now(self, at_ns: float) -> float:
        return float(self.speed[np.searchsorted(self.at_ns, at_ns, side="right") - 1])


def product(condition: Condition, quantities: Sequence[Quantity], index: int) -> Pace:
    """The pace of a device that several quantities slow."""
    return _pace([condition.series(quantity, index) for quantity in quantities], np.prod)


def slowest(paces: Sequence[Pace]) -> Pace:
    """The pace of what has to pass all of these."""
    return _pace([(pace.at_ns[:-1], pace.speed) for pace in paces], np.min)


def _pace(series: Sequence[tuple[Floats, Floats]], combine: Callable[..., Any]) -> Pace:
    moments = np.unique(np.concatenate([at for at, _ in series]))
    values = [value[np.searchsorted(at, moments, side="right") - 1] for at, value in series]
    return Pace(moments, np.asarray(combine(values, axis=0)))


class Paces:
    """Applies a run's conditions to its meetings."""

    _COMPUTE = (q.GPU_SPEED, q.HOST_SPEED)
    _NVLINK = (q.NVLINK_SPEED,)
    _WIRE = (q.WIRE_SPEED, q.NIC_SPEED, q.PROXY_SPEED)
    _NETWORK = (*_WIRE, q.LINE_RATE, q.NIC_WIDTH, q.NIC_GEN_LOSS, q.PCIE_GOODPUT)

    def __init__(self, condition: Condition, fleet: Fleet, rng: np.random.Generator) -> None:
        self.condition = condition
        self.fleet = fleet
        self.rng = rng
        self._groups: dict[tuple[str, int], list[tuple[Pace, Ints]]] = {}
        self._ranks: dict[tuple[str, int], list[tuple[Pace, Bools]]] = {}
        self._over: set[StepDelay] = set()

    def step(self, free_ns: Floats) -> None:
        """Ranks that begin their steps late do so."""
        for delay in self.condition.delays:
            ranks = list(delay.ranks)
            now = float(free_ns[ranks].min())
            if delay.begin_ns <= now < delay.end_ns and delay not in self._over:
                spread = np.exp(delay.spread * self.rng.standard_normal())
                free_ns[ranks] += delay.delay_ns * spread
                if delay.once:
                    self._over.add(delay)

    def compute(self, meeting: Meeting) -> None:
        """Computation takes longer on slow GPUs and where the host does not feed them."""
        for pace, mask in self._slow_ranks(meeting.family):
            start = meeting.free_ns[mask]
            finite = np.isfinite(start)
            took = pace.ends(start, meeting.compute_ns[mask]) - np.where(finite, start, 0.0)
            meeting.compute_ns[mask] = np.where(finite, took, meeting.compute_ns[mask])

    def transfer(self, meeting: Meeting) -> None:
        """Data takes longer over slow links: the group goes at the pace of the slowest."""
        if meeting.slot.size_bytes < SMALL_BYTES:
            return
        for pace, groups in self._slow_groups(meeting.family):
            start, work = meeting.last_ns[groups], meeting.transfer_ns[groups]
            there = np.isfinite(start)
            ended = pace.ends(start, work)
            stretch = np.where(there, (ended - np.where(there, start, 0.0)) / work, 1.0)
            for group, factor in zip(groups.tolist(), stretch.tolist(), strict=True):
                if factor == np.inf:
                    self._stand_still(meeting, group)
                elif factor > 1.0:
                    self._strain(meeting, group, factor)

    def _stand_still(self, meeting: Meeting, group: int) -> None:
        """Nothing moves from some moment on: nobody leaves."""
        stretch = self._stretch_of(meeting, group)
        meeting.stretch[group] = np.inf
        stuck = np.flatnonzero(np.isinf(stretch))
        meeting.stalls += [Stall(group, int(column), 0.3) for column in stuck]

    def _strain(self, meeting: Meeting, group: int, factor: float) -> None:
        """What slows all members alike slows the transfer; a member beyond that is its strain."""
        stretch = self._stretch_of(meeting, group)
        common = min(float(stretch.min()), factor)
        meeting.transfer_ns[group] *= common
        beyond = factor / common
        if beyond > 1.0:
            meeting.stretch[group] = max(meeting.stretch[group], beyond)
            meeting.strains.append(Strain(group, int(np.argmax(stretch)), beyond))

    def _stretch_of(self, meeting: Meeting, group: int) -> Floats:
        """(n,): how much longer the operation takes through each member's links."""
        known = self._network_paces if meeting.family.network[group] else self._nvlink_paces
        members = meeting.family.members[group].tolist()
        start, work = meeting.last_ns[group], meeting.transfer_ns[group]
        alike: dict[bytes, float] = {}
        stretch = np.ones(len(members))
        for column, rank in enumerate(members):
            pace = known.get(rank)
            if pace:
                if pace.key not in alike:
                    alike[pace.key] = float((pace.ends(start, work) - start) / work)
                stretch[column] = alike[pace.key]
        return stretch

    @cached_property
    def _compute_paces(self) -> dict[int, Pace]:
        return self._by_device(self._COMPUTE, lambda d: product(self.condition, self._COMPUTE, d))

    @cached_property
    def _nvlink_paces(self) -> dict[int, Pace]:
        return self._by_device(self._NVLINK, lambda d: product(self.condition, self._NVLINK, d))

    @cached_property
    def _network_paces(self) -> dict[int, Pace]:
        """By rank: that of the NIC it uses."""
        paces = self._by_device(self._NETWORK, self._network_pace)
        nic_of = self.fleet.nic_of.tolist()
        return {rank: paces[nic] for rank, nic in enumerate(nic_of) if nic in paces}

    def _by_device(
        self, quantities: Sequence[Quantity], pace_of: Callable[[int], Pace]
    ) -> dict[int, Pace]:
        slow = touched([c for quantity in quantities for c in self.condition.of(quantity)])
        paces = {device: pace_of(device) for device in slow.tolist()}
        return {device: pace for device, pace in paces.items() if not pace.is_normal}

    def _network_pace(self, device: int) -> Pace:
        """The slowest of wire, adapter and PCIe link; what is faster than needed does not count."""
        rate, machine = self.fleet.network_bytes_per_s, self.fleet.machine
        room = machine.line_bytes_per_s * LINE_EFFICIENCY / rate
        line = product(self.condition, (q.LINE_RATE,), device)
        # Lost packets cost their share of what goes over, a slower line only what it lacks.
        wire = product(self.condition, self._WIRE, device)
        width = self.condition.series(q.NIC_WIDTH, device)
        generations = self.condition.series(q.NIC_GEN_LOSS, device)
        goodput = self.condition.series(q.PCIE_GOODPUT, device)
        host = machine.pcie_bytes_per_s / rate
        lanes = (width[0], host * width[1] / 16)
        halved = (generations[0], 0.5 ** generations[1])
        pcie = _pace([lanes, halved, goodput], np.prod)
        wide = Pace(line.at_ns[:-1], line.speed * room)
        return slowest([wide, wire, pcie, _NORMAL])

    def _slow_ranks(self, family: Family) -> list[tuple[Pace, Bools]]:
        key = family.role, family.stage
        if key not in self._ranks:
            alike: dict[bytes, tuple[Pace, list[int]]] = {}
            for rank, pace in self._compute_paces.items():
                alike.setdefault(pace.key, (pace, []))[1].append(rank)
            masks = [(pace, np.isin(family.members, ranks)) for pace, ranks in alike.values()]
            self._ranks[key] = [(pace, mask) for pace, mask in masks if mask.any()]
        return self._ranks[key]

    def _slow_groups(self, family: Family) -> list[tuple[Pace, Ints]]:
        """Groups by the pace of their slowest link; those at the normal pace are absent."""
        key = family.role, family.stage
        if key not in self._groups:
            alike: dict[bytes, tuple[Pace, list[int]]] = {}
            for group, members in enumerate(family.members):
                paces = self._paces_of(family, group, members)
                if paces:
                    pace = slowest([_NORMAL, *paces])
                    alike.setdefault(pace.key, (pace, []))[1].append(group)
            self._groups[key] = [(pace, np.array(groups)) for pace, groups in alike.values()]
        return self._groups[key]

    def _paces_of(self, family: Family, group: int, members: Ints) -> list[Pace]:
        """Of every link a group's data passes that is not always at the normal pace."""
        if not family.network[group]:
            return [self._nvlink_paces[r] for r in members.tolist() if r in self._nvlink_paces]
        crossing = members[crosses(self.fleet, members)]
        return [self._network_paces[r] for r in crossing.tolist() if r in self._network_paces]


_NORMAL = Pace(np.zeros(1), np.ones(1))


def crosses(fleet: Fleet, members: Ints) -> Bools:
    """(n,): members of a ring whose data leaves or enters their node."""
    nodes = fleet.device_node[members]
    outwards: Bools = nodes != np.roll(nodes, -1)
    return outwards | np.roll(outwards, 1)
