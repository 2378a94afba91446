"""What operations send through NICs over time: each edge of a ring, tree or pair between nodes.

Bytes move evenly from when the last member has entered until the operation ends. Integrated over
the run, a NIC's counters show what its operations moved.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from oncall_lab.arrays import Floats, Ints
from oncall_lab.training.algorithm import Shape, binary_tree
from oncall_lab.training.cluster import Cluster
from oncall_lab.training.play import Played
from oncall_lab.training.scenario import TrainingScenario
from oncall_lab.training.schedule import Slot


@dataclass(frozen=True)
class Flows:
    """Data from one NIC to another; all arrays (flows,). Times are true, ns since the begin."""

    sender: Ints
    receiver: Ints
    begin_ns: Floats
    end_ns: Floats
    size_bytes: Floats
    devices: int

    def sent(self) -> list[Curve]:
        """Bytes sent by each NIC since the begin."""
        return self._curves(self.sender)

    def received(self) -> list[Curve]:
        """Bytes received by each NIC since the begin."""
        return self._curves(self.receiver)

    @cached_property
    def shares(self) -> Floats:
        """(devices, devices): of what a NIC (row) sends, the share that each other receives."""
        total = np.zeros((self.devices, self.devices))
        np.add.at(total, (self.sender, self.receiver), self.size_bytes)
        shares: Floats = total / np.maximum(total.sum(axis=1, keepdims=True), 1.0)
        return shares

    def _curves(self, device: Ints) -> list[Curve]:
        order = np.argsort(device, kind="stable")
        bounds = np.searchsorted(device[order], np.arange(self.devices + 1))
        return [self._curve(order[bounds[d] : bounds[d + 1]]) for d in range(self.devices)]

    def _curve(self, rows: Ints) -> Curve:
        if not len(rows):
            return Curve(np.zeros(1), np.zeros(1))
        begin, end = self.begin_ns[rows], self.end_ns[rows]
        rate = self.size_bytes[rows] / np.maximum(end - begin, 1.0)
        at = np.concatenate([begin, end])
        order = np.argsort(at)
        speed = np.cumsum(np.concatenate([rate, -rate])[order])
        done = np.cumsum(speed[:-1] * np.diff(at[order]))
        return Curve(np.append(0.0, at[order]), np.concatenate([[0.0, 0.0], done]))


@dataclass(frozen=True)
class Curve:
    """A total that grows linearly between instants."""

    at_ns: Floats
    total: Floats

    def at(self, times_ns: Floats) -> Floats:
        return np.interp(times_ns, self.at_ns, self.total)


def flows_of(scenario: TrainingScenario, played: Played) -> Flows:
    """Everything that operations moved between nodes while the recording ran."""
    edges: dict[int, tuple[Ints, Ints, Ints, Floats]] = {}
    parts: list[tuple[Ints, Ints, Floats, Floats, Floats]] = []
    for meeting in played.meetings:
        slot = meeting.slot
        if not slot.family.network.any():
            continue
        if id(slot) not in edges:
            edges[id(slot)] = _edges(scenario, played.cluster, slot)
        group, sender, receiver, size_bytes = edges[id(slot)]
        begin = meeting.last_ns[group]
        end = begin + (meeting.transfer_ns * meeting.stretch)[group]
        parts.append((sender, receiver, begin, end, size_bytes))
    if not parts:
        nothing = np.empty(0)
        none = np.empty(0, dtype=np.int64)
        return Flows(none, none, nothing, nothing, nothing, scenario.world_size)
    columns = [np.concatenate(column) for column in zip(*parts, strict=True)]
    moved = np.isfinite(columns[3]) & (columns[2] <= played.until_ns)
    sender, receiver, begin, end, size_bytes = (column[moved] for column in columns)
    return Flows(sender, receiver, begin, end, size_bytes, scenario.world_size)


def _edges(
    scenario: TrainingScenario, cluster: Cluster, slot: Slot
) -> tuple[Ints, Ints, Ints, Floats]:
    """Group, sender, receiver and bytes of every edge of a slot that crosses nodes."""
    family = slot.family
    found: list[tuple[Ints, Ints, Ints, Floats]] = []
    for ops in slot.lanes:
        tree = family.role in scenario.tree
        shape = slot.shape(ops[0], tree=tree)
        for sender, receiver, size_bytes in _pattern(shape, ops):
            one, other = family.members[:, sender], family.members[:, receiver]
            apart = np.flatnonzero(cluster.nodes[one] != cluster.nodes[other])
            nics = cluster.nic_of[one[apart]], cluster.nic_of[other[apart]]
            found.append((apart, *nics, np.full(len(apart), size_bytes)))
    group, sender_rank, receiver_rank, size = (
        np.concatenate(column) for column in zip(*found, strict=True)
    )
    return group, sender_rank, receiver_rank, size


def _pattern(shape: Shape, ops: tuple[str, ...]) -> list[tuple[int, int, float]]:
    """(sender's column, receiver's column, bytes) of an operation's edges."""
    n, size = shape.ranks, float(shape.size_bytes)
    if shape.op in ("Send", "Recv"):
        return [(ops.index("Send"), ops.index("Recv"), size)]
    if shape.algo == "TREE":
        parent = binary_tree(n).parent.tolist()
        pairs = [(child, up) for child, up in enumerate(parent) if up >= 0]
        return [(a, b, size) for one in pairs for a, b in (one, one[::-1])]
    if shape.op == "AllToAll":
        return [(a, b, size / n) for a in range(n) for b in range(n) if a != b]
    share = {"AllReduce": 2 * (n - 1) / n, "ReduceScatter": (n - 1) / n, "AllGather": n - 1.0}
    each = size * share.get(shape.op, 1.0)
    return [(column, (column + 1) % n, each) for column in range(n)]
