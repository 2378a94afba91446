"""When and how well things are sampled: intervals, jitter, lost samples, counters' beginnings."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from oncall_lab.arrays import Bools, Floats, Ints

NICS_EVERY_NS = 250e6  # TFD 2.3: four times a second
GPUS_EVERY_NS = 1e9
HOSTS_EVERY_NS = 1e9
LATE_NS = 2e6  # mean delay of a sample: the collector is woken late
MISSED = 0.002  # share of samples that a busy collector skips
Q_COUNTER_SIZE = 2**32  # mlx5's congestion and transport counters have 32 bits


@dataclass(frozen=True)
class Grid:
    """Sampling instants of one collector on every node.

    `edges_ns`: (times + 1,), a sample is taken at the end of its window. `late_ns`: (nodes,
    times). `seen`: (nodes, times), False where a sample was missed.
    """

    edges_ns: Floats
    late_ns: Floats
    seen: Bools

    @property
    def times_ns(self) -> Floats:
        return self.edges_ns[1:]

    @property
    def window_s(self) -> Floats:
        return np.diff(self.edges_ns) * 1e-9


def grid(every_ns: float, until_ns: float, nodes: int, rng: np.random.Generator) -> Grid:
    """Samples every so often until the recording ends."""
    edges = np.arange(0.0, until_ns + 1, every_ns)
    shape = nodes, len(edges) - 1
    return Grid(edges, rng.exponential(LATE_NS, shape), rng.random(shape) >= MISSED)


def counted(rate: Floats, rng: np.random.Generator) -> Ints:
    """Whole events a window from their expected number, summed up: (devices, times)."""
    events: Ints = rng.poisson(np.maximum(rate, 0.0))
    return np.cumsum(events, axis=1, dtype=np.int64)


def beginnings(devices: int, most: float, rng: np.random.Generator) -> Ints:
    """What counters showed before: anything from 0 to `most`, small numbers as often as large."""
    values = np.floor(np.exp(rng.uniform(0.0, np.log1p(most), devices)) - 1)
    whole: Ints = values.astype(np.int64)
    return whole[:, np.newaxis]
