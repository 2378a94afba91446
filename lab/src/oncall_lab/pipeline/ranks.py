"""The ranks of a job while it is played: when each is free, and what each has called so far.

Times are ns since the job began; infinity is "never". Arrays of a stage are (lanes, tp).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from oncall_lab.arrays import Floats, Ints
from oncall_lab.pipeline.calls import Call, transfer_ns
from oncall_lab.pipeline.fault import PipelineFault
from oncall_lab.pipeline.layout import Layout, lay_out
from oncall_lab.pipeline.log import OPS, Calls, Tasks
from oncall_lab.pipeline.pace import Pace
from oncall_lab.pipeline.scenario import PipelineScenario

LEAVE_NS = 1.5e3  # mean spread of leaving times


class Ranks:
    """All ranks. `free_ns[stage]` is replaced, never changed: who has read it may keep it."""

    def __init__(
        self, scenario: PipelineScenario, faults: Sequence[PipelineFault], *, recorded: bool
    ) -> None:
        self.scenario, self.faults = scenario, faults
        self.layout: Layout = lay_out(scenario)
        self.pace = Pace(scenario, self.layout, faults)
        self.rng = scenario.rng("transfers")
        of_tasks = scenario.recorder == "tasks"
        self.calls, self.tasks = (
            Calls(kept=recorded and not of_tasks),
            Tasks(kept=recorded and of_tasks),
        )
        self.free_ns: list[Floats] = [np.zeros((scenario.lanes, scenario.tp))] * scenario.pp
        self.struck_ns: dict[PipelineFault, float] = {}
        self.iteration = 0
        self._sequence: dict[tuple[str, int], int] = defaultdict(int)

    def place(self, fault: PipelineFault) -> tuple[int, int, int]:
        """Stage, lane and place in the tensor-parallel group of a fault's rank."""
        stage, lane, tensor = np.unravel_index(fault.rank, self.layout.grid.shape)
        return int(stage), int(lane), int(tensor)

    def strike(self, fault: PipelineFault, now_ns: float) -> None:
        """A fault comes to act, if its rank gets there at all."""
        if np.isfinite(now_ns):
            self.struck_ns[fault] = now_ns

    def numbers(self, role: str, stage: int, count: int) -> Ints:
        """The next sequence numbers of a role's communicators on a stage; all lanes count alike."""
        done = self._sequence[role, stage]
        self._sequence[role, stage] += count
        return np.arange(done + 1, done + 1 + count, dtype=np.int64)

    def jitter(self, shape: int | tuple[int, ...]) -> Floats:
        """Factors of transfer times."""
        factors: Floats = np.exp(self.scenario.jitter * self.rng.standard_normal(shape))
        return factors

    def collective(
        self, stage: int, role: str, op: str, size_bytes: int, entered: Floats,
        called: Floats | None = None,
    ) -> Floats:  # fmt: skip
        """A collective of groups within a stage; returns when each rank leaves it. `called`: by
        the host, where the device enters later."""
        groups = self.layout.groups[role]
        call = Call(role, op, size_bytes)
        took = transfer_ns(self.scenario, call, groups.members.shape[1], groups.crosses[stage])
        there: Floats = self.layout.together(role, entered) + took * self.jitter(1)[0]
        ended: Floats = there + self._leaving(entered.shape)
        seq = self.numbers(role, stage, 1)[0]
        self.calls.collectives(
            self.layout.grid[stage], groups.comm[stage], seq, OPS.index(op), size_bytes,
            entered if called is None else called, entered, ended,
        )  # fmt: skip
        return ended

    def everyone(self, role: str, op: str, size_bytes: int) -> None:
        """A collective of groups that reach across stages, as soon as each rank is free."""
        if role not in self.layout.groups:
            return
        groups = self.layout.groups[role]
        free = np.stack(self.free_ns)
        entered = free.ravel()[groups.members]
        call = Call(role, op, size_bytes)
        crosses = groups.crosses.ravel()[groups.members]
        took = transfer_ns(self.scenario, call, groups.members.shape[1], crosses)
        ended = entered.max(axis=1, keepdims=True) + took + self._leaving(entered.shape)
        comm = np.broadcast_to(groups.comms[:, np.newaxis], entered.shape)
        self.calls.collectives(
            groups.members, comm, self.numbers(role, 0, 1)[0], OPS.index(op), size_bytes,
            entered, entered, ended,
        )  # fmt: skip
        free.ravel()[groups.members] = ended
        self.free_ns = list(free)

    def _leaving(self, shape: tuple[int, ...]) -> Floats:
        leaving: Floats = LEAVE_NS * self.rng.standard_exponential(shape)
        return leaving
