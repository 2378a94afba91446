"""Transfers between nodes as a proxy thread sees them: steps done, and what the next one waits for.

Only data that crosses nodes goes through the proxy; neighbours on one node exchange it by
themselves. Rings and pairs are modelled, trees and all-to-all leave no transfers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from oncall_lab.training.algorithm import CHUNK_BYTES, FIFO_STEPS, SMALL_BYTES
from oncall_lab.training.cluster import Cluster
from oncall_lab.training.meeting import Meeting
from oncall_lab.training.operations import Flight
from oncall_lab.training.play import Played
from oncall_lab.training.scenario import TrainingScenario

STEP_NS = 50_000.0  # of one step while data moves
WIRE_SHARE = 0.6  # of a transfer, the time that its steps spend posted and not completed


class Row(NamedTuple):
    """One transfer; times are true, ns since the begin."""

    comm: int
    seq: int
    kind: str
    rank: int
    channel: int
    peer: int
    comm_peer: int
    direction: str
    steps: int
    steps_done: int
    waits_for: str | None
    since_ns: float
    started_ns: float
    ended_ns: float | None
    gpu_wait_ns: int
    peer_wait_ns: int
    wire_wait_ns: int


def in_flight(
    scenario: TrainingScenario, played: Played, flights: Sequence[Flight]
) -> Iterator[Row]:
    """The transfers of operations in flight when the recording ends."""
    nics = _broken_nics(scenario, played)
    for flight in flights:
        if flight.shape.algo == "TREE" or flight.shape.op == "AllToAll":
            continue
        for group, sender, receiver in _edges(played.cluster, flight.meeting, flight.lane):
            for column, sends in ((sender, True), (receiver, False)):
                if flight.flying[group, column]:
                    edge = _Edge(flight, group, sender, receiver, nics, played.until_ns)
                    yield edge.row(sends)


def finished(scenario: TrainingScenario, played: Played) -> Iterator[Row]:
    """Transfers over when the recording ends, one channel of each, with what they waited for.

    Before the last member comes a sender waits for room if its receiver is that member, else for
    data. While data moves a slow link holds up its own steps on the wire; all others are starved
    or held back by what it lacks.
    """
    for meeting in played.meetings:
        family = meeting.family
        for lane, ops in enumerate(meeting.slot.lanes):
            tree = family.role in scenario.tree
            shape = meeting.slot.shape(ops[0], tree=tree)
            if meeting.slot.size_bytes < SMALL_BYTES or shape.algo == "TREE":
                continue
            if shape.op == "AllToAll":
                continue
            slow = {(strain.group, strain.column): strain.factor for strain in meeting.strains}
            steps = max(int(counts.max()) for counts in shape.counts())
            for group, sender, receiver in _edges(played.cluster, meeting, lane):
                if meeting.end_ns[group].max() > played.until_ns:
                    continue
                factor = max(slow.get((group, c), 1.0) for c in (sender, receiver))
                for column, sends in ((sender, True), (receiver, False)):
                    other = receiver if sends else sender
                    yield _over(meeting, lane, group, (column, other), sends, factor, steps)


def _over(
    meeting: Meeting,
    lane: int,
    group: int,
    columns: tuple[int, int],
    sends: bool,
    factor: float,
    steps: int,
) -> Row:
    family, (mine, other) = meeting.family, columns
    entered, last = float(meeting.arrival_ns[group, mine]), float(meeting.last_ns[group])
    nominal = float(meeting.transfer_ns[group])
    on_wire = nominal * WIRE_SHARE * factor
    elsewhere = nominal * float(meeting.stretch[group]) - on_wire
    early, late_peer = last - entered, meeting.arrival_ns[group, other] >= last
    if sends:
        room = early * late_peer + elsewhere / 2
        waits = early - early * late_peer + elsewhere / 2, room, on_wire
    else:
        waits = elsewhere / 2, 0.0, early + on_wire + elsewhere / 2
    gpu, peer, wire = (round(max(wait, 0.0)) for wait in waits)
    return Row(
        comm=int(family.comms[group]),
        seq=int(meeting.seq[lane, mine]),
        kind="p2p" if meeting.slot.is_p2p else "coll",
        rank=int(family.members[group, mine]),
        channel=0,
        peer=int(family.members[group, other]),
        comm_peer=family.stage + other if meeting.slot.is_p2p else other,
        direction="send" if sends else "recv",
        steps=steps,
        steps_done=steps,
        waits_for=None,
        since_ns=float(meeting.end_ns[group, mine]),
        started_ns=entered,
        ended_ns=float(meeting.end_ns[group, mine]),
        gpu_wait_ns=gpu,
        peer_wait_ns=peer,
        wire_wait_ns=wire,
    )


def _broken_nics(scenario: TrainingScenario, played: Played) -> frozenset[int]:
    """Ranks whose hardware fault is in the NIC; of those left open, every other one on average."""
    rng = scenario.rng("hardware")
    found: set[int] = set()
    for effect in played.effects:
        fault = effect.fault
        if fault.kind == "H3":
            nic = rng.random() < 0.5
            if effect.strikes and (fault.how == "nic" or (fault.how == "hardware" and nic)):
                found.update(fault.ranks)
    return frozenset(found)


def _edges(cluster: Cluster, meeting: Meeting, lane: int) -> Iterator[tuple[int, int, int]]:
    """(group, sender's column, receiver's column) of what crosses nodes."""
    groups, size = meeting.family.members.shape
    ops = meeting.slot.lanes[lane]
    if meeting.slot.is_p2p:
        pairs = [(ops.index("Send"), ops.index("Recv"))]
    else:
        pairs = [(column, (column + 1) % size) for column in range(size)]
    nodes = cluster.nodes[meeting.family.members]
    for group in range(groups):
        for sender, receiver in pairs:
            if nodes[group, sender] != nodes[group, receiver]:
                yield group, sender, receiver


class _Edge:
    """One channel's way from a sender to a receiver, as it stands."""

    def __init__(
        self,
        flight: Flight,
        group: int,
        sender: int,
        receiver: int,
        broken: frozenset[int],
        until_ns: float,
    ) -> None:
        self.flight = flight
        self.group = group
        self.columns = sender, receiver
        self.sent = int(flight.sent[group, sender])
        self.received = int(flight.received[group, receiver])
        counts = flight.shape.counts()
        self.steps = max(int(counts[0].max()), int(counts[1].max()))
        self.moving = bool(flight.stuck[group].all())
        members = flight.meeting.family.members[group]
        self.dead_wire = not self.moving and bool(
            broken & {int(members[sender]), int(members[receiver])}
        )
        if np.isinf(flight.meeting.stretch[group]):
            # No fault of the operation's own: the network between these two is stopped.
            self.dead_wire = bool(flight.stuck[group, [sender, receiver]].any())
        self.until_ns = until_ns

    def row(self, sends: bool) -> Row:
        meeting, group = self.flight.meeting, self.group
        mine, other = self.columns if sends else self.columns[::-1]
        done = self.sent if sends else self.received
        family = meeting.family
        over = done >= self.steps and not self.moving
        since = self._since(mine)
        entered = float(meeting.arrival_ns[group, mine])
        return Row(
            comm=int(family.comms[group]),
            seq=int(meeting.seq[self.flight.lane, mine]),
            kind="p2p" if meeting.slot.is_p2p else "coll",
            rank=int(family.members[group, mine]),
            channel=self.flight.channel,
            peer=int(family.members[group, other]),
            comm_peer=family.stage + other if meeting.slot.is_p2p else other,
            direction="send" if sends else "recv",
            steps=self.steps,
            steps_done=done,
            waits_for=None if over else self._sender() if sends else self._receiver(),
            since_ns=since,
            started_ns=entered,
            ended_ns=since if over else None,
            gpu_wait_ns=0,
            peer_wait_ns=0,
            wire_wait_ns=0,
        )

    def _sender(self) -> str:
        ahead = self.sent - self.received
        if self.dead_wire:
            return "send_wire"
        if ahead >= FIFO_STEPS and not self._is_stuck(0):
            return "send_peer"
        return "send_gpu"

    def _receiver(self) -> str:
        if self.dead_wire or self.sent <= self.received:
            return "recv_wire"
        return "recv_gpu"

    def _is_stuck(self, side: int) -> bool:
        return bool(self.flight.stuck[self.group, self.columns[side]])

    def _since(self, column: int) -> float:
        """When it last moved: a step ago, or soon after the last member that could had come."""
        meeting, group = self.flight.meeting, self.group
        if self.moving:
            return max(float(meeting.arrival_ns[group, column]), self.until_ns - STEP_NS)
        arrivals = meeting.arrival_ns[group]
        here = arrivals[arrivals <= self.until_ns]
        return float(here.max()) + float(meeting.transfer_ns[group])


def columns_of(rows: Sequence[Row]) -> Mapping[str, list[Any]]:
    """The rows as columns of the table `transfers`, times still true."""
    columns: dict[str, list[Any]] = {
        name: [row[index] for row in rows] for index, name in enumerate(Row._fields)
    }
    columns["bytes"] = [row.steps_done * CHUNK_BYTES for row in rows]
    return columns
