"""What happens in healthy training too: slow first steps, checkpoints, late batches, jitter."""

from __future__ import annotations

import numpy as np

from oncall_lab.arrays import Floats
from oncall_lab.training.cluster import Cluster
from oncall_lab.training.scenario import TrainingScenario

BURST = 4.0  # times the ordinary jitter


class Disturbances:
    """Draws when they come, beforehand, and applies them to the times ranks become free."""

    def __init__(self, scenario: TrainingScenario, rng: np.random.Generator) -> None:
        self.scenario = scenario
        self.rng = rng
        self._next_checkpoint = float(scenario.checkpoint_every_ns or np.inf)
        self._hiccups = self._moments(scenario.hiccup_every_ns)
        self._replicas = rng.integers(scenario.dp, size=len(self._hiccups))
        self._delays = scenario.hiccup_ns * np.exp(0.5 * rng.standard_normal(len(self._hiccups)))
        self._bursts = self._moments(scenario.burst_every_ns)

    def _moments(self, mean_ns: int) -> Floats:
        """Moments of a Poisson process over the training."""
        if not mean_ns:
            return np.empty(0)
        expected = self.scenario.duration_ns / mean_ns
        gaps = self.rng.exponential(mean_ns, size=int(2 * expected) + 20)
        moments = np.cumsum(gaps)
        return moments[moments < self.scenario.duration_ns]

    def warm_up(self, step: int) -> float:
        """How many times slower a step is: the first ones compile, allocate and connect."""
        s = self.scenario
        left = max(0.0, 1 - step / s.warm_up_steps) if s.warm_up_steps else 0.0
        return 1 + (s.warm_up_factor - 1) * left

    def jitter(self, now_ns: float) -> float:
        """Spread of computations and transfers now (of the logarithm)."""
        since = now_ns - self._bursts
        burst = bool(((since >= 0) & (since < self.scenario.burst_ns)).any())
        return self.scenario.jitter * (BURST if burst else 1.0)

    def delay_batches(self, free_ns: Floats, cluster: Cluster) -> None:
        """A replica whose data loader is late begins this step late with all its first stage."""
        while len(self._hiccups):
            replica = cluster.grid[0, self._replicas[0]]
            if free_ns[replica].min() < self._hiccups[0]:
                return
            free_ns[replica] += self._delays[0]
            self._hiccups, self._replicas = self._hiccups[1:], self._replicas[1:]
            self._delays = self._delays[1:]

    def checkpoint_due(self, now_ns: float) -> bool:
        return self._next_checkpoint <= now_ns < np.inf

    def save_checkpoint(self, free_ns: Floats) -> None:
        """Every rank writes for about as long."""
        spread = np.exp(0.1 * self.rng.standard_normal(len(free_ns)))
        free_ns += self.scenario.checkpoint_ns * spread
        self._next_checkpoint += self.scenario.checkpoint_every_ns
