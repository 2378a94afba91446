"""One pass of micro-batches through the pipeline: a task begins when its rank is free and its
inputs are there.

Every lane runs the same program, so one step plays a task of a stage on all its ranks. Steps are
taken in an order that depends on the programs alone, never on times: the same random numbers fall
to the same tasks with a fault and without, and what a fault costs is the difference.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from oncall_lab.arrays import Floats
from oncall_lab.pipeline.calls import Call, Pattern, pattern, transfer_ns
from oncall_lab.pipeline.fault import PipelineFault
from oncall_lab.pipeline.log import OPS
from oncall_lab.pipeline.ranks import Ranks
from oncall_lab.pipeline.schedule import Exchange, Message, Program, Task

LAUNCH_NS = 10e3  # from one kernel to the next
HOST_CALL_NS = 0.7e6  # the host's pace from one call to the next, of a layer's kernels


class Passes:
    """Plays passes one after another; what is numbered goes on from one to the next."""

    def __init__(self, ranks: Ranks) -> None:
        self.ranks, self.scenario, self.layout = ranks, ranks.scenario, ranks.layout
        self.waits = not (self.scenario.overlap_p2p or self.scenario.schedule == "interleaved")
        self.last_backward: dict[int, tuple[Floats, Floats]] = {}  # stage: when ready, when done
        self._patterns: dict[tuple[int, int, str], Pattern] = {}
        self._transfers = [0] * self.scenario.pp  # Sends and Recvs of a stage so far
        self._pairs: dict[tuple[int, int], int] = defaultdict(int)
        self._groups = 0
        self._mail = _Mail()
        self._trains = True

    def play(self, programs: Sequence[Program], *, trains: bool = True) -> None:
        """Play the stages' programs in turns, each as far as its messages are known."""
        self._mail, self._trains = _Mail(), trains
        at = [0] * len(programs)
        moved = True
        while moved:
            moved = False
            for stage, items in enumerate(programs):
                while at[stage] < len(items) and self._step(stage, items[at[stage]]):
                    at[stage] += 1
                    moved = True
        if any(place < len(items) for place, items in zip(at, programs, strict=True)):
            raise AssertionError("the stages of this schedule wait for one another")

    def _step(self, stage: int, item: Task | Exchange) -> bool:
        """Play one item; False while messages are not known yet."""
        if isinstance(item, Task):
            self._compute(stage, item)
            return True
        self._post(stage, item)
        mail = self._mail
        if any(message not in mail.sent for message in item.receives):
            return False
        if self.waits and any(message not in mail.wanted for message in item.sends):
            return False
        over = self.ranks.free_ns[stage]
        for message in (*item.receives, *(item.sends if self.waits else ())):
            over = np.maximum(over, self._arrival(message))
        self.ranks.free_ns[stage] = over + LAUNCH_NS
        return True

    # ------------------------------------------------------------- computing

    def _compute(self, stage: int, task: Task) -> None:
        """A task on all ranks of a stage, call after call."""
        ranks, plan = self.ranks, self._pattern(stage, task)
        ready = ranks.free_ns[stage]
        own = ranks.pace.compute_ns(stage, task, plan.weights, ready)
        added = self._added(stage, task, len(plan.weights), ready)
        own = own + added
        own[0] += LAUNCH_NS
        entered, ended = np.empty((2, *plan.transfer_ns.shape))
        now = ready
        jitter = ranks.jitter(len(plan.calls))
        for number, call in enumerate(plan.calls):
            entered[number] = now + own[number]
            there = self.layout.together(call.role, entered[number])
            now = there + plan.transfer_ns[number] * jitter[number]
            ended[number] = now
        ranks.free_ns[stage] = now + own[-1]
        # A delay, as of a process that pauses, holds a host that is ahead; a hang its device.
        pauses = np.cumsum(np.where(np.isfinite(added), added, 0.0), axis=0)[:-1]
        self._log_calls(stage, plan, ready + pauses, entered, ended)
        ranks.tasks.add(
            task.task if self._trains else "evaluation",
            stage, self.layout.grid[stage], ready, ranks.free_ns[stage], chunk=task.chunk,
            micro_batch=task.micro_batch, own_ns=own.sum(axis=0),
            **(_call_columns(plan, entered) if ranks.tasks.kept else {}),
        )  # fmt: skip
        if task.task == "backward":
            self.last_backward[stage] = ready, ranks.free_ns[stage]

    def _added(self, stage: int, task: Task, parts: int, ready: Floats) -> Floats:
        """(parts, lanes, tp): what delays and hangs add to a computation."""
        added = np.zeros((parts, *ready.shape))
        for fault in self._striking():
            of_stage, lane, tensor = self.ranks.place(fault)
            place = Task(fault.task, fault.chunk, fault.micro_batch)
            if (of_stage, place) == (stage, task):
                added[fault.rank * 31 % parts, lane, tensor] += fault.added_ns
                self.ranks.strike(fault, float(ready[lane, tensor]))
        return added

    def _striking(self) -> list[PipelineFault]:
        """Delays and hangs of this pass."""
        now = self.ranks.iteration
        return [
            fault
            for fault in self.ranks.faults
            if fault.strikes_once and fault.iteration == now and self._trains
        ]

    def _pattern(self, stage: int, task: Task) -> Pattern:
        key = stage, task.chunk, task.task
        if key not in self._patterns:
            self._patterns[key] = pattern(self.scenario, self.layout, *key)
        return self._patterns[key]

    def _log_calls(
        self, stage: int, plan: Pattern, ready: Floats, entered: Floats, ended: Floats
    ) -> None:
        """The calls of a task. `ready`: when the host was, but for its pace, for each of them."""
        if not plan.calls:
            return
        seq = np.zeros(len(plan.calls), dtype=np.int64)
        for role in plan.roles:
            places = plan.of(role)
            seq[places] = self.ranks.numbers(role, stage, len(places))
        if not self.ranks.calls.kept:
            return
        each = (slice(None), np.newaxis, np.newaxis)
        pace = HOST_CALL_NS * np.arange(1, len(plan.calls) + 1)
        ahead = np.minimum(ready + pace[each], entered)
        self.ranks.calls.collectives(
            np.broadcast_to(self.layout.grid[stage], entered.shape), plan.comm, seq[each],
            np.array([OPS.index(call.op) for call in plan.calls])[each],
            np.array([call.bytes for call in plan.calls])[each],
            ahead if self.scenario.host_ahead else entered, entered, ended,
        )  # fmt: skip

    # ------------------------------------------------------------- between stages

    def _post(self, stage: int, exchange: Exchange) -> None:
        """The stage has arrived at a group call; asked again until it is over."""
        mail, now = self._mail, self.ranks.free_ns[stage]
        if (stage, exchange) in mail.posted:
            return
        mail.posted.add((stage, exchange))
        self._groups += 1
        for message in exchange.sends:
            mail.sent[message] = now
            mail.numbers[message, "Send"] = self._number(stage)
            mail.takes[message] = self._takes(stage, message, now)
            pair = stage, message.to_virtual() % self.scenario.pp
            self._pairs[pair] += 1
            mail.pairs[message] = self._pairs[pair]
        for message in exchange.receives:
            mail.wanted[message] = now
            mail.numbers[message, "Recv"] = self._number(stage)

    def _number(self, stage: int) -> tuple[int, int]:
        """A Send's or Recv's number on its communicator, and its group call's."""
        self._transfers[stage] += 1
        return self._transfers[stage], self._groups

    def _takes(self, stage: int, message: Message, now: Floats) -> Floats:
        """(lanes, tp): how long a message is on its way."""
        s, ranks = self.scenario, self.ranks
        crosses = self.layout.groups["pp"].crosses[stage]
        took = transfer_ns(s, Call("pp", "Broadcast", s.pp_bytes), 2, crosses)
        took = took * ranks.jitter(crosses.shape)
        for fault in ranks.faults:
            of_stage, lane, tensor = ranks.place(fault)
            lasting = fault.kind == "link" and ranks.iteration >= fault.iteration
            if lasting and of_stage == stage:
                took[lane, tensor] *= fault.factor
        for fault in self._striking():
            of_stage, lane, tensor = ranks.place(fault)
            if of_stage == stage and _names(fault, message, s.pp):
                took[lane, tensor] += fault.added_ns
                ranks.strike(fault, float(now[lane, tensor]))
        return took

    def _arrival(self, message: Message) -> Floats:
        """When a message is there; both sides are known by now, so its calls can be logged."""
        mail = self._mail
        if message not in mail.arrived:
            sent, wanted, takes = mail.sent[message], mail.wanted[message], mail.takes[message]
            # A sender that does not wait has its data on the way before the receiver asks.
            over = np.maximum(sent, wanted) + takes
            mail.arrived[message] = over if self.waits else np.maximum(sent + takes, wanted)
            self._log_message(message)
        return mail.arrived[message]

    def _log_message(self, message: Message) -> None:
        mail, ranks, pp = self._mail, self.ranks, self.scenario.pp
        virtuals = {"Send": message.virtual, "Recv": message.to_virtual()}
        posted = {"Send": mail.sent[message], "Recv": mail.wanted[message]}
        comm, arrived = self.layout.groups["pp"].comm[0], mail.arrived[message]
        for op, other in (("Send", "Recv"), ("Recv", "Send")):
            stage, chunk = virtuals[op] % pp, virtuals[op] // pp
            here, peers = self.layout.grid[stage], self.layout.grid[virtuals[other] % pp]
            seq, group = mail.numbers[message, op]
            ranks.calls.transfer(
                here, comm, seq, op, self.scenario.pp_bytes, peers, mail.pairs[message], group,
                posted[op], arrived,
            )  # fmt: skip
            ranks.tasks.add(
                f"{message.task}_{op.lower()}" if self._trains else "evaluation",
                stage, here, posted[op], arrived, chunk=chunk,
                micro_batch=message.micro_batch, peer=peers, comm=comm,
            )  # fmt: skip


class _Mail:
    """Messages of one pass, by what is known of them so far."""

    def __init__(self) -> None:
        self.posted: set[tuple[int, Exchange]] = set()
        self.sent: dict[Message, Floats] = {}
        self.wanted: dict[Message, Floats] = {}
        self.takes: dict[Message, Floats] = {}
        self.arrived: dict[Message, Floats] = {}
        self.pairs: dict[Message, int] = {}
        self.numbers: dict[tuple[Message, str], tuple[int, int]] = {}


def _names(fault: PipelineFault, message: Message, pp: int) -> bool:
    """Is this message the transmission that a delay or hang is in?"""
    return (
        fault.task == f"{message.task}_send"
        and fault.micro_batch == message.micro_batch
        and fault.chunk == message.virtual // pp
    )


def _call_columns(plan: Pattern, entered: Floats) -> dict[str, object]:
    """The columns of stage_tasks for the calls within the tensor-parallel group."""
    places = plan.of("tp")
    if not len(places):
        return {}
    mine = entered[places]
    made = np.isfinite(mine)
    known = np.where(made, mine, 0.0)
    late = np.where(made, known - np.median(known, axis=-1, keepdims=True), 0.0)
    return {
        "first_call_ns": mine[0],
        "last_call_ns": mine[-1],
        "calls": made.sum(axis=0),
        "late_ns": late.sum(axis=0),
        "last_calls": (made & (mine == mine.max(axis=-1, keepdims=True))).sum(axis=0),
    }
