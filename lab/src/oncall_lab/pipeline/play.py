"""Iteration after iteration: a pass through the pipeline, gradients, the optimizer, and pauses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oncall_lab.arrays import Floats
from oncall_lab.pipeline.fault import PipelineFault
from oncall_lab.pipeline.layout import Layout
from oncall_lab.pipeline.passing import Passes
from oncall_lab.pipeline.ranks import Ranks
from oncall_lab.pipeline.scenario import PipelineScenario
from oncall_lab.pipeline.schedule import Pipeline, forward_only, program

NORM_BYTES = 4


@dataclass(frozen=True)
class Played:
    """What happened: calls, or tasks if the recorder knows of those alone.

    spans (iterations, 2): when the first rank began and the last one ended.
    """

    layout: Layout
    calls: dict[str, NDArray[Any]]
    tasks: dict[str, NDArray[Any]]
    spans: Floats
    struck_ns: dict[PipelineFault, float]
    until_ns: float


def play(scenario: PipelineScenario) -> Played:
    """Play all iterations, or until nobody can go on."""
    return _Training(scenario, Ranks(scenario, scenario.faults, recorded=True)).play()


def spans_with(scenario: PipelineScenario, faults: Sequence[PipelineFault]) -> Floats:
    """(iterations, 2): begin and end of the same iterations with other faults."""
    return _Training(scenario, Ranks(scenario, faults, recorded=False)).play().spans


class _Training:
    def __init__(self, scenario: PipelineScenario, ranks: Ranks) -> None:
        self.scenario, self.ranks = scenario, ranks
        self.layout, self.tasks = self.ranks.layout, self.ranks.tasks
        self.passes = Passes(self.ranks)
        self.pipeline = Pipeline(scenario.pp, scenario.chunks)
        self._pauses = scenario.rng("pauses")

    def play(self) -> Played:
        ranks, spans = self.ranks, []
        for iteration in range(self.scenario.iterations):
            began = min(float(free.min()) for free in ranks.free_ns)
            if not np.isfinite(began):
                break
            ranks.iteration = ranks.calls.iteration = ranks.tasks.iteration = iteration
            self._iterate()
            spans.append((began, max(float(free.max()) for free in ranks.free_ns)))
            self._between()
        calls, tasks = ranks.calls.columns(), ranks.tasks.columns()
        ends = calls["ended_ns"] if ranks.calls.kept else tasks["ended_ns"]
        begins = calls["entered_ns"] if ranks.calls.kept else tasks["started_ns"]
        moments = (begins, ends, *ranks.free_ns)
        last = max(float(m.max(where=np.isfinite(m), initial=0.0)) for m in moments)
        hung = not all(np.isfinite(free).all() for free in ranks.free_ns)
        until = last + (self.scenario.observe_after_ns if hung else 1e6)
        return Played(self.layout, calls, tasks, np.array(spans), ranks.struck_ns, until)

    def _iterate(self) -> None:
        s, number = self.scenario, self.ranks.iteration
        micro_batches = s.micro_batches_in(number)
        self.ranks.pace.begin(number, micro_batches)
        self._collect_garbage()
        stages = range(s.pp)
        self.passes.play([program(s.schedule, self.pipeline, i, micro_batches) for i in stages])
        if "dp" in self.layout.groups:
            for stage in stages:
                self._reduce_gradients(stage)
        self._finish()

    def _collect_garbage(self) -> None:
        """On all ranks in one iteration, or on each in another."""
        s, grid = self.scenario, self.layout.grid
        if not s.garbage_every:
            return
        phase = np.zeros_like(grid) if s.garbage_together else grid * 7 % s.garbage_every
        due = (self.ranks.iteration + 1 + phase) % s.garbage_every == 0
        took = due * s.garbage_ns * np.exp(0.1 * self._pauses.standard_normal(due.shape))
        self._pause("garbage", took)

    def _pause(self, task: str, took_ns: Floats) -> None:
        """(pp, lanes, tp): every rank does something of its own for so long."""
        for stage, took in enumerate(took_ns):
            began, busy = self.ranks.free_ns[stage], took > 0
            self.ranks.free_ns[stage] = began + took
            if busy.any():
                ended = self.ranks.free_ns[stage][busy]
                self.tasks.add(task, stage, self.layout.grid[stage][busy], began[busy], ended)

    def _reduce_gradients(self, stage: int) -> None:
        s, ranks = self.scenario, self.ranks
        op = "ReduceScatter" if s.distributed_optimizer else "AllReduce"
        buckets = s.dp_buckets if s.overlap_gradients else 1
        passed = s.dp_bytes // buckets // (s.lanes if s.distributed_optimizer else 1)
        began = now = ranks.free_ns[stage]
        start, end = self.passes.last_backward[stage]
        for bucket in range(buckets):
            full = began
            if s.overlap_gradients:
                # Each bucket is full when its share of the last backward is done.
                share = (bucket + 1) / buckets
                done = np.isfinite(end)
                full = np.where(done, start, np.inf)
                full = full + share * np.where(done, end - np.where(done, start, 0.0), 0.0)
            entered = np.maximum(now, full) if bucket else full
            now = ranks.collective(stage, "dp", op, passed, entered, called=full)
        ranks.free_ns[stage] = np.maximum(now, began)
        grid = self.layout.grid[stage]
        self.tasks.add("gradients", stage, grid, began, ranks.free_ns[stage])

    def _finish(self) -> None:
        """Embeddings, the norm of all gradients, the optimizer, and parameters for everybody."""
        s, ranks = self.scenario, self.ranks
        ranks.everyone("embedding", "AllReduce", s.dp_bytes // 16)
        ranks.everyone("model", "AllReduce", NORM_BYTES)
        replicated = "dp" in self.layout.groups
        for stage in range(s.pp):
            began, grid = ranks.free_ns[stage], self.layout.grid[stage]
            done = began + ranks.pace.other_ns(stage, s.optimizer_ns, began)
            self.tasks.add("optimizer", stage, grid, began, done)
            ranks.free_ns[stage] = done
            if s.distributed_optimizer and replicated:
                passed = s.dp_bytes // 2 // s.lanes
                ranks.free_ns[stage] = ranks.collective(stage, "dp", "AllGather", passed, done)
                self.tasks.add("parameters", stage, grid, done, ranks.free_ns[stage])
        if replicated:
            last = s.pp - 1  # the loss, for the log
            ranks.free_ns[last] = ranks.collective(
                last, "dp", "AllReduce", NORM_BYTES, ranks.free_ns[last]
            )

    def _between(self) -> None:
        """What comes between iterations now and then."""
        s, number = self.scenario, self.ranks.iteration + 1
        if s.evaluate_every and number % s.evaluate_every == 0:
            stages = range(s.pp)
            programs = [forward_only(self.pipeline, stage, s.micro_batches) for stage in stages]
            self.passes.play(programs, trains=False)
        if s.checkpoint_every and number % s.checkpoint_every == 0:
            spread = np.exp(0.2 * self._pauses.standard_normal(self.layout.grid.shape))
            self._pause("checkpoint", s.checkpoint_ns * spread)
            self.ranks.everyone("world", "AllReduce", NORM_BYTES)
