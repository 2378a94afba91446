"""Operations as rows: every meeting unrolled to its ranks, with what had moved by the end."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from oncall_lab.arrays import Bools, Columns, Floats, Ints
from oncall_lab.training.algorithm import Shape, binary_tree, stalled
from oncall_lab.training.meeting import Meeting, Strain
from oncall_lab.training.play import Played
from oncall_lab.training.scenario import TrainingScenario
from oncall_lab.training.schedule import BARRIER_BYTES, LOSS_BYTES, Slot

RATE_NOISE = 0.03
CHANNEL_NOISE = 0.02
# Of a slow link, how much its far end feels: FIFOs let it wait and then go on at full speed.
FAR_END = 0.6

_ELEMENT = {BARRIER_BYTES: ("uint8", 1), LOSS_BYTES: ("float32", 4)}


@dataclass(frozen=True)
class Call:
    """What a rank asked NCCL to do, and how NCCL did it."""

    shape: Shape

    @property
    def kind(self) -> str:
        return "p2p" if self.shape.op in ("Send", "Recv") else "coll"

    @property
    def dtype(self) -> str:
        return _ELEMENT.get(self.shape.size_bytes, ("bfloat16", 2))[0]

    @property
    def count(self) -> int:
        return self.shape.size_bytes // _ELEMENT.get(self.shape.size_bytes, ("", 2))[1]


@dataclass(frozen=True)
class Operations(Columns):
    """Rows in the order they were played; all arrays (rows,). Times are true, ns since the begin.

    `call` indexes the calls of the Unroller.
    """

    call: Ints
    comm: NDArray[np.uint64]
    seq: Ints
    rank: Ints
    peer: Ints  # -1: none
    group_id: Ints  # -1: none
    arrival_ns: Floats
    end_ns: Floats
    done: Bools
    sends: Ints
    recvs: Ints
    send_rate: Floats  # NaN: unknown
    recv_rate: Floats


@dataclass(frozen=True)
class Frames:
    """Channels of the rows in flight at the end; all arrays (frames,). `row` indexes Operations."""

    row: Ints
    channel: Ints
    sends: Ints
    recvs: Ints


@dataclass(frozen=True)
class Flight:
    """One channel of a meeting's lane that is in flight at the end, with all its groups.

    `flying`: who has it in flight; `stuck`: who holds it up; `sent`, `received`: primitives done
    (all (G, n)).
    """

    meeting: Meeting
    lane: int
    shape: Shape
    channel: int
    flying: Bools
    stuck: Bools
    sent: Ints
    received: Ints


@dataclass(frozen=True)
class _Lane:
    """The part of a slot's rows that is the same each time: one lane, groups by columns, flat."""

    call: Ints
    comm: NDArray[np.uint64]
    rank: Ints
    peer: Ints
    sends: Ints
    recvs: Ints


class Unroller:
    """Turns a played training into rows."""

    def __init__(self, scenario: TrainingScenario, played: Played) -> None:
        self.scenario = scenario
        self.until_ns = played.until_ns
        self.flights: list[Flight] = []
        self._calls: dict[Call, int] = {}
        self._known_lanes: dict[tuple[int, int], _Lane] = {}
        # A piece is one lane of a meeting that anybody entered before the recording ended.
        self._pieces = [
            (meeting, number)
            for meeting in played.meetings
            if (meeting.arrival_ns <= self.until_ns).any()
            for number in range(len(meeting.slot.lanes))
        ]
        self._lanes = [self._lane(meeting.slot, number) for meeting, number in self._pieces]
        self._begins = np.cumsum([0] + [len(lane.rank) for lane in self._lanes])[:-1]

    def collect(self) -> tuple[Operations, Frames]:
        """All rows of operations that began before the recording ended, and their frames."""
        meetings = [meeting for meeting, _ in self._pieces]
        arrival = np.concatenate([m.arrival_ns.ravel() for m in meetings])
        end = np.concatenate([m.end_ns.ravel() for m in meetings])
        done = end <= self.until_ns
        call, sends, recvs = self._called()
        send_rate, recv_rate = self._rates(done, sends, recvs)
        frames = self._progress(sends, recvs)
        groups = [m.serial if len(m.slot.lanes) > 1 else -1 for m in meetings]
        operations = Operations(
            call=call,
            comm=np.concatenate([lane.comm for lane in self._lanes]),
            seq=np.concatenate(
                [np.broadcast_to(m.seq[k], m.arrival_ns.shape).ravel() for m, k in self._pieces]
            ),
            rank=np.concatenate([lane.rank for lane in self._lanes]),
            peer=np.concatenate([lane.peer for lane in self._lanes]),
            group_id=np.repeat(groups, [m.arrival_ns.size for m in meetings]),
            arrival_ns=arrival,
            end_ns=end,
            done=done,
            sends=sends,
            recvs=recvs,
            send_rate=send_rate,
            recv_rate=recv_rate,
        )
        # Only what began before the recording ended; the frames follow their rows.
        began = arrival <= self.until_ns
        row = (np.cumsum(began) - 1)[frames.row]
        return operations.where(began), dataclasses.replace(frames, row=row)

    @property
    def calls(self) -> tuple[Call, ...]:
        """What `call` of the operations indexes, once they are collected."""
        return tuple(self._calls)

    def _shape(self, slot: Slot, op: str, size_bytes: int) -> Shape:
        tree = slot.family.role in self.scenario.tree
        return slot.shape(op, tree=tree, size_bytes=size_bytes)

    def _number(self, shape: Shape) -> int:
        return self._calls.setdefault(Call(shape), len(self._calls))

    def _lane(self, slot: Slot, lane: int) -> _Lane:
        key = id(slot), lane
        if key not in self._known_lanes:
            family, ops = slot.family, slot.lanes[lane]
            groups, size = family.members.shape
            shapes = {op: self._shape(slot, op, slot.size_bytes) for op in set(ops)}
            numbers = [self._number(shapes[op]) for op in ops]
            counts = {op: shape.counts() for op, shape in shapes.items()}
            sends = [counts[op][0][i] * shapes[op].channels for i, op in enumerate(ops)]
            recvs = [counts[op][1][i] * shapes[op].channels for i, op in enumerate(ops)]
            peers = family.members[:, ::-1].ravel() if slot.is_p2p else np.full(groups * size, -1)
            self._known_lanes[key] = _Lane(
                call=np.tile(numbers, groups),
                comm=np.repeat(family.comms, size),
                rank=family.members.ravel(),
                peer=peers,
                sends=np.tile(sends, groups),
                recvs=np.tile(recvs, groups),
            )
        return self._known_lanes[key]

    def _called(self) -> tuple[Ints, Ints, Ints]:
        """Call, sends and receives when done (rows,), with what the odd ones called instead."""
        call, sends, recvs = (
            np.concatenate([getattr(lane, name) for lane in self._lanes])
            for name in ("call", "sends", "recvs")
        )
        for (meeting, _), begin in zip(self._pieces, self._begins, strict=True):
            for odd in meeting.mismatches:
                shape = self._shape(meeting.slot, odd.op, odd.size_bytes)
                row = begin + odd.group * meeting.family.size + odd.column
                call[row] = self._number(shape)
                sends[row], recvs[row] = (c[odd.column] * shape.channels for c in shape.counts())
        return call, sends, recvs

    def _rates(self, done: Bools, sends: Ints, recvs: Ints) -> tuple[Floats, Floats]:
        """Rates of primitives (rows,) while a rank was busy with them: lowest at a slow link."""
        rng = self.scenario.rng("rates")
        busy_ns = [np.repeat(m.transfer_ns, m.family.size) for m, _ in self._pieces]
        send_ns = np.concatenate(busy_ns)
        recv_ns = send_ns.copy()
        for (meeting, _), begin in zip(self._pieces, self._begins, strict=True):
            size = meeting.family.size
            for strain in meeting.strains:
                rows = slice(begin + strain.group * size, begin + (strain.group + 1) * size)
                send_factor, recv_factor = _strained(meeting, strain, self.scenario)
                send_ns[rows] *= send_factor
                recv_ns[rows] *= recv_factor

        def rate(count: Ints, busy: Floats) -> Floats:
            noise = np.exp(RATE_NOISE * rng.standard_normal(len(busy)))
            return np.where(done & (count > 0), count * noise / (busy * 1e-9), np.nan)

        return rate(sends, send_ns), rate(recvs, recv_ns)

    def _progress(self, sends: Ints, recvs: Ints) -> Frames:
        """Set the counts of what is in flight at the end, and return them by channel."""
        rng = self.scenario.rng("progress")
        found: list[tuple[Ints, Ints, Ints, Ints]] = []
        for (meeting, lane), begin in zip(self._pieces, self._begins, strict=True):
            flying = (meeting.arrival_ns <= self.until_ns) & (meeting.end_ns > self.until_ns)
            if not flying.any():
                continue
            rows = begin + np.flatnonzero(flying)
            sends[rows] = recvs[rows] = 0
            shape = self._shape(meeting.slot, meeting.slot.lanes[lane][0], meeting.slot.size_bytes)
            stuck, share = _held_up(meeting, self.until_ns)
            for channel in range(shape.channels):
                sent, received = self._channel(meeting, lane, stuck, share, rng)
                self.flights.append(
                    Flight(meeting, lane, shape, channel, flying, stuck, sent, received)
                )
                sends[rows] += sent[flying]
                recvs[rows] += received[flying]
                number = np.full(len(rows), channel)
                found.append((rows, number, sent[flying], received[flying]))
        nothing = np.empty((4, 0), dtype=np.int64)
        return Frames(*(np.concatenate(part) for part in zip(nothing, *found, strict=True)))

    def _channel(
        self,
        meeting: Meeting,
        lane: int,
        stuck: Bools,
        share: Floats,
        rng: np.random.Generator,
    ) -> tuple[Ints, Ints]:
        """One channel's sends and receives (G, n): some channels are a little further."""
        ops = meeting.slot.lanes[lane]
        noise = np.exp(CHANNEL_NOISE * rng.standard_normal((len(stuck), 1)))
        parts = []
        for op in dict.fromkeys(ops):
            shape = self._shape(meeting.slot, op, meeting.slot.size_bytes)
            total = np.maximum(*shape.counts())
            reached = np.rint(share * noise * total).astype(np.int64)
            parts.append((op, stalled(shape, stuck, np.clip(reached, 0, np.maximum(total - 1, 0)))))
        if len(parts) == 1:
            return parts[0][1]
        # Send and Recv: each column as its own op sees it.
        sends, recvs = (np.empty_like(parts[0][1][0]) for _ in range(2))
        for op, (of_sends, of_recvs) in parts:
            column = ops.index(op)
            sends[:, column], recvs[:, column] = of_sends[:, column], of_recvs[:, column]
        return sends, recvs


def _held_up(meeting: Meeting, until_ns: float) -> tuple[Bools, Floats]:
    """Who holds the operation up (G, n), and after which share of it."""
    stuck = meeting.arrival_ns > until_ns
    share = np.zeros(stuck.shape)
    for stall in meeting.stalls:
        stuck[stall.group, stall.column] = True
        share[stall.group, stall.column] = stall.share
    # Nobody: the recording simply ended first, and all are as far as time allowed.
    moving = ~stuck.any(axis=1)
    took = meeting.transfer_ns * meeting.stretch
    part = np.clip((until_ns - meeting.last_ns[moving]) / took[moving], 0.0, 1.0)
    stuck[moving] = True
    share[moving] = part[:, np.newaxis]
    return stuck, share


def _strained(
    meeting: Meeting, strain: Strain, scenario: TrainingScenario
) -> tuple[Floats, Floats]:
    """How much longer each column (n,) was busy sending and receiving through one slow link."""
    size = meeting.family.size
    send, recv = np.ones(size), np.ones(size)
    send[strain.column] = recv[strain.column] = strain.factor
    felt = 1 + FAR_END * (strain.factor - 1)
    op = meeting.slot.lanes[0][strain.column]
    if meeting.slot.is_p2p:
        other = 1 - strain.column
        send[other] = recv[other] = felt
    elif op == "AllToAll":
        rest = np.arange(size) != strain.column
        send[rest] = recv[rest] = 1 + (felt - 1) / (size - 1)
    elif meeting.family.role in scenario.tree and op == "AllReduce":
        near = _tree_neighbours(size, strain.column)
        send[near] = recv[near] = felt
    else:
        before, after = (strain.column - 1) % size, (strain.column + 1) % size
        send[before] = np.maximum(send[before], felt)
        recv[after] = np.maximum(recv[after], felt)
    return send, recv


@cache
def _tree_neighbours(size: int, column: int) -> list[int]:
    parent = binary_tree(size).parent
    near = np.flatnonzero(parent == column).tolist()
    return [*near, int(parent[column])] if parent[column] >= 0 else near
