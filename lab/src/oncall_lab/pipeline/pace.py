"""How long ranks compute: jitter, warm-up, lengths of samples, routing, and slow ranks."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from oncall_lab.arrays import Floats
from oncall_lab.pipeline.fault import PipelineFault
from oncall_lab.pipeline.layout import Layout
from oncall_lab.pipeline.scenario import PipelineScenario
from oncall_lab.pipeline.schedule import Task


class Pace:
    """Draws computing times task by task. Faults change them, but never what is drawn."""

    def __init__(
        self, scenario: PipelineScenario, layout: Layout, faults: Sequence[PipelineFault]
    ) -> None:
        self.scenario, self.layout = scenario, layout
        self.faults = faults
        self._rng = scenario.rng("computing")
        self._design = scenario.rng("design")
        self._iteration = -1
        self._lengths: Floats = np.ones((1, 1))
        self._routing: Floats = np.ones((scenario.pp, scenario.lanes, scenario.tp))

    def begin(self, iteration: int, micro_batches: int) -> None:
        """Draw what an iteration has in store: lengths of samples and what experts get."""
        s = self.scenario
        self._iteration = iteration
        replicas = np.exp(s.long_sequences * self._design.standard_normal((micro_batches, s.dp)))
        self._lengths = np.repeat(replicas, s.cp, axis=1)  # (micro-batches, lanes)
        fresh = np.exp(s.routing * self._design.standard_normal((s.pp, s.lanes, 1)))
        self._routing = np.broadcast_to(fresh, (s.pp, s.lanes, s.tp))

    def compute_ns(self, stage: int, task: Task, weights: Floats, now_ns: Floats) -> Floats:
        """(len(weights), lanes, tp): computing times between the calls of a task."""
        s = self.scenario
        base = s.forward_ns / s.chunks * (1 if task.task == "forward" else 2)
        if stage == s.pp - 1 and task.chunk == s.chunks - 1:
            base *= 1 + s.last_stage
        factor = self._lengths[task.micro_batch, :, np.newaxis] * self._routing[stage]
        factor = factor * self.warm_up() * self.slowness(stage, now_ns)
        shape = (len(weights), s.lanes, s.tp)
        jitter = np.exp(s.jitter * self._rng.standard_normal(shape))
        times: Floats = base * weights[:, np.newaxis, np.newaxis] * factor * jitter
        return times

    def other_ns(self, stage: int, normal_ns: float, now_ns: Floats) -> Floats:
        """(lanes, tp): time of a computation that is no task, such as the optimizer's."""
        shape = (self.scenario.lanes, self.scenario.tp)
        jitter = np.exp(self.scenario.jitter * self._rng.standard_normal(shape))
        times: Floats = normal_ns * jitter * self.slowness(stage, now_ns) * self.warm_up()
        return times

    def warm_up(self) -> float:
        """Compilation, caches and allocation make the first iterations longer."""
        s = self.scenario
        left = s.warm_up_iterations - self._iteration
        return 1 + (s.warm_up_factor - 1) * max(0, left) / max(1, s.warm_up_iterations)

    def slowness(self, stage: int, now_ns: Floats) -> Floats:
        """(lanes, tp): how many times as long ranks compute as when they are sound."""
        s = self.scenario
        slow = np.ones((s.lanes, s.tp))
        for fault in self.faults:
            if fault.kind not in ("slow", "sporadic") or self._iteration < fault.iteration:
                continue
            of_stage, lane, tensor = np.unravel_index(fault.rank, self.layout.grid.shape)
            if of_stage == stage and self._in_spell(fault, float(now_ns[lane, tensor])):
                slow[lane, tensor] *= fault.factor
        return slow

    def _in_spell(self, fault: PipelineFault, now_ns: float) -> bool:
        if fault.kind == "slow":
            return True
        return bool(np.isfinite(now_ns)) and now_ns % fault.period_ns < fault.lasting_ns
