"""Host and device of every rank, and who waits for whom.

The host enqueues ahead of the device and stops only to read a result. The device has a compute
stream, one stream a group, and one for each direction between two ranks of unbatched sends and
receives (PyTorch has one for both directions; trainers order their calls so that it works). A
collective ends for all members at once, when the last has come and the data has moved. What can
never end has no end.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import numpy as np

from oncall_lab.jobs.fault import JobFault
from oncall_lab.jobs.layout import Group, Layout, layout
from oncall_lab.jobs.pipelines import interleaved, zero_bubble
from oncall_lab.jobs.program import (
    ELEMENT_BYTES,
    Builder,
    Call,
    Compute,
    Host,
    Item,
    Passing,
    Sync,
    Wait,
)  # fmt: skip
from oncall_lab.jobs.scenario import JobScenario
from oncall_lab.jobs.training import context_parallel, ddp, moe, reinforcement, serving, sharded

PROGRAM = {
    "ddp": ddp, "fsdp2": sharded, "zero3": sharded, "hsdp": sharded, "moe": moe,
    "context_parallel": context_parallel, "interleaved": interleaved, "zero_bubble": zero_bubble,
    "reinforcement": reinforcement, "serving": serving,
}  # fmt: skip
LATENCY_NS = 20_000.0
LAUNCH_NS = 8_000.0  # on the host, of one call
QUEUE = 48  # computations that the host may be ahead
_NEVER = float("inf")
_DRAWS = 512
_Key: TypeAlias = tuple[Any, ...]


class Task:
    """Work on a stream. `start_ns` and `end_ns` are infinite until they are known."""

    __slots__ = ("end_ns", "followers", "latest_ns", "length_ns", "needs", "open", "ready_ns",
                 "start_ns", "transfers")  # fmt: skip

    def __init__(self, ready_ns: float, length_ns: float, transfers: list[Transfer]) -> None:
        self.ready_ns, self.length_ns, self.transfers = ready_ns, length_ns, transfers
        self.start_ns = self.end_ns = _NEVER
        self.latest_ns, self.needs, self.open = 0.0, 0, len(transfers)
        self.followers: list[Task | _Rank] = []


@dataclass
class Transfer:
    """Data that moves once all `missing` members have come."""

    missing: int
    length_ns: float
    signature: tuple[str, int]
    never: bool = False
    last_ns: float = 0.0
    tasks: list[Task] = field(default_factory=list)


@dataclass(frozen=True)
class Operation:
    """A call that a rank made: the number-th of its group (collectives), or with p2p of the rank
    in its group; `parts` of sends and receives as in Passing."""

    group: Group
    name: str
    elements: int
    step: int
    number: int  # from 1
    p2p_number: int
    created_ns: float
    task: Task
    parts: tuple[tuple[str, int, int], ...] = ()
    batched: bool = False


@dataclass(frozen=True)
class Strike:
    """Where a hang began: the first call that its rank did not make as the others did."""

    rank: int
    group: Group
    name: str
    number: int
    step: int
    at_ns: float


@dataclass
class _Rank:
    rank: int
    program: list[tuple[int, Item]]
    at: int = 0
    host_ns: float = 0.0
    waits_for: Task | None = None
    tail: list[Task] = field(default_factory=list)  # what the next kernel needs
    computed: list[Task] = field(default_factory=list)
    streams: dict[_Key, Task] = field(default_factory=dict)
    tags: dict[int, Task] = field(default_factory=dict)
    numbers: dict[tuple[str, bool], int] = field(default_factory=lambda: defaultdict(int))
    links: dict[_Key, int] = field(default_factory=lambda: defaultdict(int))
    operations: list[Operation] = field(default_factory=list)
    steps: list[Task] = field(default_factory=list)


@dataclass(frozen=True)
class Played:
    """A job that ran or hung. `steps` (steps, ranks): when each rank's device ended each step,
    infinite for never; `until_ns`: the last thing that happened."""

    layout: Layout
    operations: Sequence[Sequence[Operation]]
    steps: np.ndarray[Any, np.dtype[np.float64]]
    until_ns: float
    strike: Strike | None


def play(scenario: JobScenario) -> Played:
    """Run the job of a scenario to its end, or until it hangs."""
    return _Player(scenario).play()


class _Player:
    def __init__(self, scenario: JobScenario) -> None:
        self.scenario, self.layout = scenario, layout(scenario)
        self.fault: JobFault | None = scenario.faults[0] if scenario.faults else None
        self.strike: Strike | None = None
        self.transfers: dict[_Key, Transfer] = {}
        self.noise: dict[_Key, np.ndarray[Any, Any]] = {}
        self.ready: list[Task | _Rank] = []
        self.target: Call | Passing | None = None
        self.broken: _Key | None = None
        self.samples: dict[tuple[int, ...], float] = {}
        self.ranks = [_Rank(rank, self._program(rank)) for rank in range(scenario.ranks)]

    def play(self) -> Played:
        for rank in self.ranks:
            self._advance(rank)
            self._settle()
        ends = [[task.end_ns for task in rank.steps] for rank in self.ranks]
        steps = np.full((self.scenario.steps, len(ends)), _NEVER)
        for column, each in enumerate(ends):
            steps[: len(each), column] = each
        times = [rank.host_ns for rank in self.ranks if rank.waits_for is None]
        for rank in self.ranks:
            for operation in rank.operations:
                task = operation.task
                times += [t for t in (operation.created_ns, task.start_ns, task.end_ns)]
        until = max((t for t in times if t < _NEVER), default=0.0)
        operations = [rank.operations for rank in self.ranks]
        return Played(self.layout, operations, steps, until, self.strike)

    # -------------------------------------------------------------------- programs

    def _program(self, rank: int) -> list[tuple[int, Item]]:
        """All items of a rank with their step, as its fault leaves them."""
        builder = Builder(self.scenario, self.layout.of(rank), rank, self.samples)
        for _ in range(self.scenario.steps):
            builder.begin()
            PROGRAM[self.scenario.program](builder)
        if self.fault is not None:
            for step in range(self.fault.step, self.scenario.steps):
                builder.steps[step] = self._faulty(rank, step, builder.steps[step])
        return [(step, item) for step, items in enumerate(builder.steps) for item in items]

    def _faulty(self, rank: int, step: int, items: list[Item]) -> list[Item]:
        fault = self.fault
        if fault is None or rank not in self._struck(fault):
            return items
        if fault.kind in ("slow_compute", "slow_host"):
            return [self._slower(item, fault) for item in items]
        if fault.kind == "stalls" and (step - fault.step) % fault.every == 0:
            return [Host(fault.pause_ns), *items]
        if fault.hangs and step == fault.step:
            return self._hanging(fault, items)
        return items

    def _slower(self, item: Item, fault: JobFault) -> Item:
        """A slow GPU does not slow its host; a slow host slows both."""
        launches = fault.factor if fault.kind == "slow_host" else 1.0
        if isinstance(item, Compute):
            return Compute(item.length_ns * fault.factor, item.launch_ns * launches)
        return Host(item.length_ns * launches) if isinstance(item, Host) else item

    def _struck(self, fault: JobFault) -> Sequence[int]:
        if fault.kind == "slow_host":
            return [r for rank in fault.ranks for r in self.scenario.host_ranks(rank)]
        return fault.ranks

    def _hanging(self, fault: JobFault, items: list[Item]) -> list[Item]:
        """The step of the culprit with its target marked, changed, or after another call."""
        wanted = (Call, Passing) if fault.kind == "never_calls" else Call
        places = [at for at, item in enumerate(items) if isinstance(item, wanted)]
        if not places:
            return items
        at = places[int(fault.call * len(places))]
        target = items[at]
        if isinstance(target, Call) and fault.kind == "mismatch":
            other = "broadcast" if target.op == "all_reduce" else "all_reduce"
            if fault.how == "extra":
                target = replace(target, tag=0, op=other, elements=7, after=None)
                items = [*items[:at], target, Wait(0), *items[at:]]
            elif fault.how == "size":
                target = replace(target, elements=target.elements + len(target.group.members))
            else:
                target = replace(target, op=other)
        items = list(items)
        items[at] = target
        self.target = target if isinstance(target, (Call, Passing)) else None
        return items

    # ------------------------------------------------------------------------ host

    def _advance(self, rank: _Rank) -> None:
        """Let the host go on until it waits for what is not known yet."""
        if rank.waits_for is not None:
            rank.host_ns = max(rank.host_ns, rank.waits_for.end_ns)
            rank.waits_for = None
        while rank.at < len(rank.program):
            step, item = rank.program[rank.at]
            full = isinstance(item, Compute) and len(rank.computed) >= QUEUE
            if full and self._blocks(rank, rank.computed[-QUEUE]):
                return
            if isinstance(item, Sync):
                if not rank.tail or rank.tail[0].length_ns or len(rank.tail) > 1:
                    self._compute(rank, 0.0)
                if self._blocks(rank, rank.tail[0]):
                    return
            elif item is self.target and not self._strikes(rank, step, item):
                rank.host_ns = _NEVER
                return
            else:
                self._enqueue(rank, step, item)
            rank.at += 1
            ends = rank.at == len(rank.program) or rank.program[rank.at][0] != step
            if ends:
                self._compute(rank, 0.0)
                rank.steps.append(rank.tail[0])

    def _blocks(self, rank: _Rank, task: Task) -> bool:
        """Does the host have to wait for a task whose end is not known yet?"""
        if task.end_ns < _NEVER:
            rank.host_ns = max(rank.host_ns, task.end_ns)
            return False
        if rank.waits_for is None:
            rank.waits_for = task
            task.followers.append(rank)
        return True

    def _enqueue(self, rank: _Rank, step: int, item: Item) -> None:
        if isinstance(item, Compute):
            rank.host_ns += item.launch_ns
            self._compute(rank, item.length_ns)
        elif isinstance(item, Host):
            rank.host_ns += item.length_ns
        elif isinstance(item, Wait) and item.tag in rank.tags:
            rank.tail.append(rank.tags[item.tag])
        elif isinstance(item, Call):
            rank.host_ns += LAUNCH_NS
            self._call(rank, step, item)
        elif isinstance(item, Passing):
            rank.host_ns += LAUNCH_NS * len(item.parts)
            self._pass(rank, step, item)

    def _compute(self, rank: _Rank, length_ns: float) -> None:
        task = self._task(rank, rank.tail, length_ns, [])
        rank.tail = [task]
        rank.computed.append(task)

    def _call(self, rank: _Rank, step: int, call: Call) -> None:
        group = call.group
        rank.numbers[group.name, False] += 1
        number = rank.numbers[group.name, False]
        needs = rank.tail if call.after is None else [
            rank.tags[tag] for tag in call.after if tag in rank.tags
        ]  # fmt: skip
        key = (group.name, number)
        signature = (call.op, call.elements)
        transfer = self._transfer(key, step, signature, group.members)
        transfer.never |= transfer.signature != signature or key == self.broken
        task = self._on_stream(rank, (group.name,), needs, [transfer])
        rank.tags[call.tag] = task
        self._note(rank, step, group, call.op, call.elements, task)

    def _pass(self, rank: _Rank, step: int, passing: Passing) -> None:
        group = passing.group
        transfers = []
        for way, peer, elements in passing.parts:
            link = (rank.rank, peer) if way == "send" else (peer, rank.rank)
            rank.links[group.name, *link] += 1
            key = (group.name, *link, rank.links[group.name, *link])
            transfers.append(self._transfer(key, step, ("p2p", elements), link))
        stream = (group.name,) if passing.batched else (group.name, *link)
        task = self._on_stream(rank, stream, rank.tail, transfers)
        rank.tags[passing.tag] = task
        rank.numbers[group.name, True] += 1
        name = "coalesced" if passing.batched else passing.parts[0][0]
        self._note(rank, step, group, name, passing.parts[0][2], task, passing)

    def _note(
        self, rank: _Rank, step: int, group: Group, name: str, elements: int, task: Task,
        passing: Passing | None = None,
    ) -> None:  # fmt: skip
        numbers = rank.numbers[group.name, False], rank.numbers[group.name, True]
        parts, batched = (passing.parts, passing.batched) if passing else ((), False)
        rank.operations.append(
            Operation(group, name, elements, step, *numbers, rank.host_ns, task, parts, batched)
        )

    def _strikes(self, rank: _Rank, step: int, item: Item) -> bool:
        """Note where the hang begins; does the rank make the call?"""
        fault = self.fault
        assert fault is not None and isinstance(item, (Call, Passing))
        passing = isinstance(item, Passing)
        number = rank.numbers[item.group.name, passing] + 1
        name = item.parts[0][0] if isinstance(item, Passing) else item.op
        self.strike = Strike(rank.rank, item.group, name, number, step, rank.host_ns)
        if fault.kind == "never_ends":
            self.broken = (item.group.name, number)
            if self.broken in self.transfers:
                self.transfers[self.broken].never = True
        self.target = None
        return fault.kind != "never_calls"

    # ---------------------------------------------------------------------- device

    def _on_stream(
        self, rank: _Rank, stream: _Key, needs: Sequence[Task], transfers: list[Transfer]
    ) -> Task:
        before = [rank.streams[stream]] if stream in rank.streams else []
        task = rank.streams[stream] = self._task(rank, [*needs, *before], 0.0, transfers)
        return task

    def _task(
        self, rank: _Rank, needs: Sequence[Task], length_ns: float, transfers: list[Transfer]
    ) -> Task:
        task = Task(rank.host_ns, length_ns, transfers)
        for need in needs:
            if need.end_ns < _NEVER:
                task.ready_ns = max(task.ready_ns, need.end_ns)
            else:
                need.followers.append(task)
                task.needs += 1
        if not task.needs:
            self._start(task)
        return task

    def _settle(self) -> None:
        """Follow what has become known to its end; hosts go on where it leads them."""
        while self.ready:
            item = self.ready.pop()
            if isinstance(item, Task):
                self._start(item)
            else:
                self._advance(item)

    def _start(self, task: Task) -> None:
        task.start_ns = task.ready_ns
        if not task.transfers:
            self._end(task, task.start_ns + task.length_ns)
        for transfer in task.transfers:
            transfer.tasks.append(task)
            transfer.last_ns = max(transfer.last_ns, task.start_ns)
            transfer.missing -= 1
            if transfer.missing == 0 and not transfer.never:
                for member in transfer.tasks:
                    arrived = transfer.last_ns + transfer.length_ns
                    member.latest_ns = max(member.latest_ns, arrived)
                    member.open -= 1
                    if member.open == 0:
                        self._end(member, member.latest_ns)

    def _end(self, task: Task, end_ns: float) -> None:
        task.end_ns = end_ns
        for follower in task.followers:
            if isinstance(follower, Task):
                follower.ready_ns = max(follower.ready_ns, end_ns)
                follower.needs -= 1
                if follower.needs == 0:
                    self.ready.append(follower)
            else:
                self.ready.append(follower)
        task.followers = []

    # ------------------------------------------------------------------- transfers

    def _transfer(
        self, key: _Key, step: int, signature: tuple[str, int], ends: tuple[int, ...]
    ) -> Transfer:
        known = self.transfers.get(key)
        if known is None:
            length_ns = self._length_ns(key, step, signature, ends)
            known = self.transfers[key] = Transfer(len(ends), length_ns, signature)
        return known

    def _length_ns(
        self, key: _Key, step: int, signature: tuple[str, int], ends: tuple[int, ...]
    ) -> float:
        (op, elements), s, size = signature, self.scenario, len(ends)
        crosses = len({rank // s.gpus_per_host for rank in ends}) > 1
        rate = s.network_bytes_per_s if crosses else s.nvlink_bytes_per_s
        share = {"all_reduce": 2 * (size - 1) / size, "broadcast": 1.0, "p2p": 1.0}
        data = elements * ELEMENT_BYTES * share.get(op, (size - 1) / size)
        stream, number = key[:-1], key[-1]
        if stream not in self.noise:
            draws = s.rng(f"transfers {stream}").standard_normal(_DRAWS)
            self.noise[stream] = np.maximum(0.2, 1 + 2 * s.jitter * draws)
        length_ns = (data / rate * 1e9 + LATENCY_NS) * float(self.noise[stream][number % _DRAWS])
        fault = self.fault
        if fault is None or fault.kind != "slow_link" or not crosses or step < fault.step:
            return length_ns
        return length_ns * (fault.factor if any(rank in ends for rank in fault.ranks) else 1)
