"""A small training job, played task by task: the truth that relations about stages are held to."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from oncall.evidence import Incident

MS = 1_000_000
START_NS = 1_755_590_104_000_000_000
Key = tuple[int, int, int, int, str]  # iteration, replica, stage, micro-batch, task


@dataclass(frozen=True)
class Played:
    """A job: its shape, how long tasks take (`forward` by stage), and what `delays` which task.

    `slow` delays one tensor rank of a task, else all its ranks work as long. `links` delays the
    transfer to a task. `ahead` shifts a stage's clock.
    """

    pp: int = 4
    dp: int = 1
    tp: int = 2
    micro_batches: int = 8
    iterations: int = 8
    forward: Sequence[int] = (100 * MS,) * 4
    transfer: int = 1 * MS
    jitter: float = 0.01
    delays: Mapping[Key, int] = field(default_factory=dict)
    links: Mapping[Key, int] = field(default_factory=dict)
    lengths: Mapping[tuple[int, int, int], float] = field(default_factory=dict)
    slow_tensor_rank: int = 0
    ahead: Mapping[int, int] = field(default_factory=dict)
    hang: Key | None = None
    seed: int = 7

    def order(self, stage: int) -> list[tuple[str, int]]:
        """1F1B on one stage: (task, micro-batch) in turn."""
        warm = min(self.pp - 1 - stage, self.micro_batches)
        turns = [("forward", m) for m in range(warm)]
        for m in range(self.micro_batches - warm):
            turns += [("forward", warm + m), ("backward", m)]
        rest = range(self.micro_batches - warm, self.micro_batches)
        return turns + [("backward", m) for m in rest]

    def rows(self) -> list[dict[str, Any]]:
        rng = np.random.default_rng(self.seed)
        rows: list[dict[str, Any]] = []
        begin = START_NS
        for iteration in range(self.iterations):
            ends = [self._pipeline(iteration, r, begin, rng, rows) for r in range(self.dp)]
            if None in ends:
                break
            begin = max(e for e in ends if e is not None) + 50 * MS
        return rows

    def _pipeline(
        self, iteration: int, replica: int, begin: int, rng: Any, rows: list[dict[str, Any]]
    ) -> int | None:
        """Play one pipeline's iteration; its end, or None if it hangs."""
        left = [self.order(stage) for stage in range(self.pp)]
        free = [begin] * self.pp
        done: dict[tuple[int, str, int], int] = {}
        moved = True
        while moved:
            moved = False
            for stage in range(self.pp):
                while left[stage]:
                    task, batch = left[stage][0]
                    key = (iteration, replica, stage, batch, task)
                    before = stage - 1 if task == "forward" else stage + 1
                    needs = (before, task, batch)
                    has_input = 0 <= before < self.pp
                    if has_input and needs not in done:
                        break
                    ready = free[stage]
                    if has_input:
                        arrives = done[needs] + self.transfer + self.links.get(key, 0)
                        ready = max(ready, arrives)
                    took = self.forward[stage] * (2 if task == "backward" else 1)
                    took *= self.lengths.get((iteration, replica, batch), 1.0)
                    took = int(took * (1 + self.jitter * abs(rng.normal())))
                    late = self.delays.get(key, 0)
                    if key == self.hang:
                        rows += self._task(key, ready, None, took, 0)
                        left[stage] = []
                        break
                    end = ready + took + late
                    rows += self._task(key, ready, end, took, late)
                    done[stage, task, batch] = free[stage] = end
                    left[stage].pop(0)
                    moved = True
        whole = len(done) == 2 * self.pp * self.micro_batches
        return max(free) if whole else None

    def _task(
        self, key: Key, start: int, end: int | None, took: int, late: int
    ) -> list[dict[str, Any]]:
        iteration, replica, stage, batch, task = key
        shift = self.ahead.get(stage, 0)
        calls = 8
        reported = []
        for place in range(self.tp):
            slow = place == self.slow_tensor_rank and self.tp > 1
            reported.append(
                {
                    "job": "j",
                    "rank": (stage * self.dp + replica) * self.tp + place,
                    "iteration": iteration,
                    "task": task,
                    "stage": stage,
                    "chunk": 0,
                    "micro_batch": batch,
                    "started_ns": start + shift,
                    "ended_ns": None if end is None else end + shift,
                    "calls": calls,
                    "own_ns": took + (late if slow or self.tp == 1 else 0),
                    "late_ns": late if slow else 0,
                    "last_calls": (calls if slow else 0) if late else calls // self.tp,
                    "whole": end is not None,
                    "source": "calls",
                }
            )
        return reported

    def incident(self) -> Incident:
        rows = self.rows()
        made = Incident.empty()
        made.append("stage_tasks", {name: [row[name] for row in rows] for name in rows[0]})
        world = self.pp * self.dp * self.tp
        ranks = list(range(world))
        made.append("jobs", {"job": "j", "world_size": world, "tp": self.tp, "pp": self.pp})
        nodes = [f"n{rank // (self.dp * self.tp)}" for rank in ranks]
        made.append("ranks", {"job": "j", "rank": ranks, "node": nodes})
        return made


@pytest.fixture
def played() -> Iterator[Callable[..., Incident]]:
    """Play a job with these properties; its evidence."""
    made: list[Incident] = []

    def play(**fields: Any) -> Incident:
        made.append(Played(**fields).incident())
        return made[-1]

    yield play
    for incident in made:
        incident.close()
