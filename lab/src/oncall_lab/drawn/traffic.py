"""Experiments as Pulse 8.1 makes them, and healthy jobs, drawn from a seed.

Table 4 lists which failure is injected where and how badly: 58 combinations as printed, of which
the paper says it made 57. Table 3 has two cases more, which Table 4 leaves out: `beyond_table_4`.
Where a failure strikes, and how the job, its links and their measurement are, is drawn.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import Any, TypeAlias

import numpy as np

from oncall_lab.traffic.fault import TrafficFault
from oncall_lab.traffic.scenario import TrafficScenario

MIB = 2**20
_TRAININGS = ("gpt2", "mixtral")
_ALL = (*_TRAININGS, "neighbour_exchange")
_LESS: tuple[dict[str, Any], ...] = tuple({"bandwidth": share} for share in (0.5, 0.4, 0.3, 0.2))
_Line: TypeAlias = tuple[str, tuple[dict[str, Any], ...], tuple[str, ...]]
# Failure, severities, workloads (Table 4).
TABLE_4: tuple[_Line, ...] = (
    ("gpu_error", ({},), _TRAININGS),
    ("cuda_error", ({},), _TRAININGS),
    ("gpu_throttling", tuple({"power_w": w} for w in (350.0, 300.0, 250.0, 200.0)), _TRAININGS),
    ("cpu_throttling", ({},), _TRAININGS),
    ("cpu_contention", ({"cpu_busy": 0.9}, {"cpu_busy": 1.0}), _TRAININGS),
    ("nic_down", ({},), _ALL),
    ("pcie_downgrade", _LESS, _ALL),
    # Loopback traffic takes 50 to 80 %: that much less is left.
    ("pcie_contention", _LESS, _ALL),
    ("congestion", tuple({"bandwidth": share} for share in (0.5, 0.6, 0.7, 0.8)), _ALL),
    ("cross_numa", ({},), ("gpt2",)),
)
BEYOND_TABLE_4: tuple[_Line, ...] = (
    ("misaligned_memory", ({},), ("gpt2",)),
    ("moe_imbalance", ({},), ("mixtral",)),
    ("pcie_downgrade", ({"bandwidth": 0.7},), ("all_to_one",)),
    ("congestion", ({"bandwidth": 0.5},), ("one_to_all",)),
)


def table_4(seed: int) -> Iterator[TrafficScenario]:
    """The 58 experiments, each with random numbers of its own."""
    yield from _experiments(seed, TABLE_4)


def beyond_table_4(seed: int) -> Iterator[TrafficScenario]:
    """Cases of Table 3 and appendix D that Table 4 leaves out."""
    yield from _experiments(seed, BEYOND_TABLE_4)


def healthy(seed: int, workload: str) -> TrafficScenario:
    """A job without a failure."""
    rng = np.random.default_rng([seed, zlib.crc32(f"healthy {workload}".encode())])
    return TrafficScenario(**_job(rng, workload))


def _experiments(seed: int, table: tuple[_Line, ...]) -> Iterator[TrafficScenario]:
    for kind, severities, workloads in table:
        for workload in workloads:
            for number, severity in enumerate(severities):
                key = zlib.crc32(f"{kind} {workload} {number}".encode())
                rng = np.random.default_rng([seed, key])
                values = _job(rng, workload)
                world = TrafficScenario(**values).world_size
                rank = int(
                    rng.integers(1 if workload in ("all_to_one", "one_to_all") else 0, world)
                )
                iteration = int(rng.integers(3, 5))
                fault = TrafficFault(kind, rank, iteration, **severity)
                yield TrafficScenario(**values, faults=(fault,))


def _job(rng: np.random.Generator, workload: str) -> dict[str, Any]:
    """How a job, its links and their measurement may be: 10 to 14 iterations."""
    micro_batches = {"gpt2": (2, 4, 6), "mixtral": (2, 3)}.get(workload, (1,))
    return {
        "workload": workload,
        "seed": int(rng.integers(2**31)),
        "iterations": int(rng.integers(10, 15)) * (1 if workload in _TRAININGS else 2),
        "micro_batches": int(rng.choice(micro_batches)),
        "forward_ns": int(rng.uniform(12, 30) * 1e6),
        "dp_bytes": int(rng.choice((256, 384, 512))) * MIB,
        "dp_buckets": int(rng.choice((1, 1, 2))),
        "pp_bytes": int(rng.choice((8, 16, 32))) * MIB,
        "ep_bytes": int(rng.choice((32, 48, 64))) * MIB,
        "exchange_bytes": int(rng.choice((64, 128))) * MIB,
        "imbalance": float(rng.uniform(0.1, 0.5)),
        "distributed_optimizer": bool(rng.random() < 0.8),
        "channels": int(rng.choice((2, 2, 4))),
        "jitter": float(rng.uniform(0.01, 0.04)),
        "headers": float(rng.uniform(0.01, 0.025)),
        "retransmissions": float(rng.choice((0.0, 0.001, 0.005))),
        "source": str(rng.choice(("dpa", "wr"))),
        "lost_epochs": float(rng.choice((0.0, 0.0, 0.002))),
        "device_times": bool(rng.random() < 0.3),
        "clock_offset_ns": int(rng.choice((20_000, 100_000, 1_000_000))),
        "clock_error_ns": int(rng.choice((2_000, 10_000, 50_000))),
    }
