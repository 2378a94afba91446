"""Operations as rows: every meeting unrolled to its ranks, with what had moved by the end."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oncall.simulate.algorithm import Bools, Floats, Shape, binary_tree, shape_of, stalled
from oncall.simulate.cluster import Ints
from oncall.simulate.meeting import Meeting, Strain
from oncall.simulate.scenario import Scenario
from oncall.simulate.schedule import BARRIER_BYTES, LOSS_BYTES, Slot
from oncall.simulate.training import Played, rng_of

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
class Operations:
    """Rows in the order they were played; all arrays (rows,). Times are true, ns since the begin.

    `call` indexes `calls`. `channel_*` are the probing frames of the rows in flight.
    """

    calls: tuple[Call, ...]
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

    def __init__(self, scenario: Scenario, played: Played) -> None:
        self.scenario = scenario
        self.played = played
        self.calls: dict[Call, int] = {}
        self._lanes: dict[tuple[int, int], _Lane] = {}

    def collect(self) -> tuple[Operations, Frames]:
        """All rows of operations that began before the recording ended, and their frames."""
        until = self.played.until_ns
        pieces = list(self._pieces())
        lanes = [self._lane(m.slot, lane) for m, lane in pieces]
        begins = np.cumsum([0] + [len(lane.rank) for lane in lanes])

        def flat(name: str) -> Any:
            return np.concatenate([getattr(lane, name) for lane in lanes])

        arrival = np.concatenate([m.arrival_ns.ravel() for m, _ in pieces])
        end = np.concatenate([m.end_ns.ravel() for m, _ in pieces])
        busy = np.concatenate([np.repeat(m.transfer_ns, m.slot.family.size) for m, _ in pieces])
        operations = Operations(
            calls=(),
            call=flat("call"),
            comm=flat("comm"),
            seq=np.concatenate([np.tile(m.seq[k], len(m.transfer_ns)) for m, k in pieces]),
            rank=flat("rank"),
            peer=flat("peer"),
            group_id=np.concatenate(
                [
                    np.full(m.arrival_ns.size, m.serial if len(m.slot.lanes) > 1 else -1)
                    for m, _ in pieces
                ]
            ),
            arrival_ns=arrival,
            end_ns=end,
            done=end <= until,
            sends=flat("sends"),
            recvs=flat("recvs"),
            send_rate=busy,
            recv_rate=busy.copy(),
        )
        self._apply_mismatches(operations, pieces, begins)
        operations = self._with_rates(operations, pieces, begins)
        frames = self._apply_progress(operations, pieces, begins)
        return self._started(operations, frames)

    def _pieces(self) -> Iterator[tuple[Meeting, int]]:
        for meeting in self.played.meetings:
            if (meeting.arrival_ns <= self.played.until_ns).any():
                for lane in range(len(meeting.slot.lanes)):
                    yield meeting, lane

    def _shape(self, slot: Slot, op: str, size_bytes: int) -> Shape:
        tree = slot.family.role in self.scenario.tree
        return shape_of(op, size_bytes, slot.family.size, tree, self.scenario.channels)

    def _number(self, shape: Shape) -> int:
        return self.calls.setdefault(Call(shape), len(self.calls))

    def _lane(self, slot: Slot, lane: int) -> _Lane:
        key = id(slot), lane
        if key not in self._lanes:
            family, ops = slot.family, slot.lanes[lane]
            groups, size = family.members.shape
            shapes = {op: self._shape(slot, op, slot.size_bytes) for op in set(ops)}
            numbers = [self._number(shapes[op]) for op in ops]
            counts = {op: shape.counts() for op, shape in shapes.items()}
            sends = [counts[op][0][i] * shapes[op].channels for i, op in enumerate(ops)]
            recvs = [counts[op][1][i] * shapes[op].channels for i, op in enumerate(ops)]
            peers = family.members[:, ::-1].ravel() if slot.is_p2p else np.full(groups * size, -1)
            self._lanes[key] = _Lane(
                call=np.tile(numbers, groups),
                comm=np.repeat(family.comms, size),
                rank=family.members.ravel(),
                peer=peers,
                sends=np.tile(sends, groups),
                recvs=np.tile(recvs, groups),
            )
        return self._lanes[key]

    def _apply_mismatches(
        self, operations: Operations, pieces: list[tuple[Meeting, int]], begins: Ints
    ) -> None:
        for (meeting, _), begin in zip(pieces, begins[:-1], strict=True):
            for odd in meeting.mismatches:
                shape = self._shape(meeting.slot, odd.op, odd.size_bytes)
                row = begin + odd.group * meeting.family.size + odd.column
                operations.call[row] = self._number(shape)
                for counts, total in zip(
                    (operations.sends, operations.recvs), shape.counts(), strict=True
                ):
                    counts[row] = total[odd.column] * shape.channels

    def _with_rates(
        self, operations: Operations, pieces: list[tuple[Meeting, int]], begins: Ints
    ) -> Operations:
        """Rates of primitives while a rank was busy with them: the slow end's are lowest."""
        rng = rng_of(self.scenario, "rates")
        send_busy, recv_busy = operations.send_rate, operations.recv_rate
        for (meeting, _), begin in zip(pieces, begins[:-1], strict=True):
            for strain in meeting.strains:
                rows = slice(
                    begin + strain.group * meeting.family.size,
                    begin + (strain.group + 1) * meeting.family.size,
                )
                send_factor, recv_factor = _strained(meeting, strain, self.scenario)
                send_busy[rows] *= send_factor
                recv_busy[rows] *= recv_factor
        rates = []
        for count, busy in ((operations.sends, send_busy), (operations.recvs, recv_busy)):
            noise = np.exp(RATE_NOISE * rng.standard_normal(len(busy)))
            known = operations.done & (count > 0)
            rates.append(np.where(known, count * noise / (busy * 1e-9), np.nan))
        return dataclasses.replace(
            operations, calls=tuple(self.calls), send_rate=rates[0], recv_rate=rates[1]
        )

    def _apply_progress(
        self, operations: Operations, pieces: list[tuple[Meeting, int]], begins: Ints
    ) -> Frames:
        """Counts of what is in flight at the end, by channel and in sum."""
        rng = rng_of(self.scenario, "progress")
        until = self.played.until_ns
        found: list[tuple[Ints, Ints, Ints, Ints]] = []
        for (meeting, lane), begin in zip(pieces, begins[:-1], strict=True):
            flying = (meeting.arrival_ns <= until) & (meeting.end_ns > until)
            if not flying.any():
                continue
            rows = begin + np.flatnonzero(flying)
            operations.sends[rows] = 0
            operations.recvs[rows] = 0
            shape = self._shape(meeting.slot, meeting.slot.lanes[lane][0], meeting.slot.size_bytes)
            stuck, share = _standing(meeting, until)
            for channel in range(shape.channels):
                sends, recvs = self._channel(meeting, lane, stuck, share, rng)
                operations.sends[rows] += sends[flying]
                operations.recvs[rows] += recvs[flying]
                found.append((rows, np.full(len(rows), channel), sends[flying], recvs[flying]))
        if not found:
            empty = np.empty(0, dtype=np.int64)
            return Frames(empty, empty, empty, empty)
        return Frames(*(np.concatenate(part) for part in zip(*found, strict=True)))

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

    def _started(self, operations: Operations, frames: Frames) -> tuple[Operations, Frames]:
        """Only what began before the end of the recording; frames follow their rows."""
        started = operations.arrival_ns <= self.played.until_ns
        index = np.cumsum(started) - 1
        return take(operations, started), dataclasses.replace(frames, row=index[frames.row])


def take(operations: Operations, keep: Bools) -> Operations:
    """The rows of `operations` where `keep`."""
    columns = {
        item.name: getattr(operations, item.name)[keep]
        for item in dataclasses.fields(operations)
        if item.name != "calls"
    }
    return dataclasses.replace(operations, **columns)


def _standing(meeting: Meeting, until_ns: float) -> tuple[Bools, Floats]:
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


def _strained(meeting: Meeting, strain: Strain, scenario: Scenario) -> tuple[Floats, Floats]:
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
