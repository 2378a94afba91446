"""What procfs and cgroupfs say of each host and of the training's processes on it."""

from __future__ import annotations

from typing import Any

import numpy as np

from oncall_lab.arrays import Bools, Floats, Ints
from oncall_lab.training.measured import quantities as q
from oncall_lab.training.measured.condition import Condition, Quantity
from oncall_lab.training.measured.machine import GIB, Fleet
from oncall_lab.training.measured.sampling import Grid, beginnings, counted

# A training process keeps about three CPUs busy: Python, NCCL's proxies, data-loading workers.
CPUS_A_PROCESS = 3.0
SYSTEM_BUSY = 0.02
NORMAL_PRESSURE = 0.004  # PSI of a host with more CPUs than runnable threads
NORMAL_IO_PRESSURE = 0.003
READ_BYTES_PER_S = 20e6  # tokens are small; what is read are shards of the data set
PROCESS_BYTES = 18 * GIB  # pinned buffers, CUDA context, workers
THREADS = 140


def host_columns(
    condition: Condition, fleet: Fleet, grid: Grid, rng: np.random.Generator
) -> dict[str, Any]:
    """Columns of the table `hosts`, each (nodes, times)."""
    machine, times = fleet.machine, grid.times_ns
    shape = fleet.nodes, len(times)
    ranks = np.bincount(fleet.device_node, minlength=fleet.nodes)[:, np.newaxis]
    normal = SYSTEM_BUSY + CPUS_A_PROCESS * ranks / machine.cpus

    def mean(quantity: Quantity) -> Floats:
        return condition.mean(quantity, grid.edges_ns)

    def noisy(value: Floats, spread: float) -> Floats:
        noise: Floats = value * np.exp(spread * rng.standard_normal(shape))
        return noise

    busy = noisy(normal + mean(q.CPU_BUSY), 0.08)
    mhz = machine.cpu_max_mhz * (0.93 - 0.08 * busy) * mean(q.CPU_CLOCK)
    pressure = noisy(NORMAL_PRESSURE + mean(q.CPU_PRESSURE), 0.3)
    io = noisy(NORMAL_IO_PRESSURE + mean(q.IO_PRESSURE), 0.4)
    memory = noisy(1e-5 + mean(q.MEMORY_PRESSURE), 0.3)
    free = 0.97 - ranks * PROCESS_BYTES / machine.memory_bytes - mean(q.MEMORY_TAKEN)
    available = noisy(np.maximum(free, 0.004) * machine.memory_bytes, 0.002)
    return {
        "cpu_busy": np.round(np.clip(busy, 0.0, 1.0), 4),
        "cpu_pressure": np.round(np.clip(pressure, 0.0, 1.0), 4),
        "cpu_mhz": np.round(mhz + 15 * rng.standard_normal(shape)),
        "memory_available_bytes": available.astype(np.int64) // 4096 * 4096,
        "io_pressure": np.round(np.clip(io, 0.0, 1.0), 4),
        "memory_pressure": np.round(np.clip(memory, 0.0, 1.0), 4),
        "cpus": np.full(shape, machine.cpus),
        "cpu_max_mhz": np.full(shape, machine.cpu_max_mhz),
        "memory_bytes": np.full(shape, machine.memory_bytes),
        "swap_used_bytes": condition.at(q.SWAPPED, times).astype(np.int64),
        "memory_corrected": counted(mean(q.MEMORY_CORRECTED) * grid.window_s, rng)
        + beginnings(fleet.nodes, 3.0, rng),
        "memory_uncorrected": counted(mean(q.MEMORY_UNCORRECTED) * grid.window_s, rng),
    }


def process_columns(
    condition: Condition, fleet: Fleet, grid: Grid, rng: np.random.Generator
) -> dict[str, Any]:
    """Columns of the table `host_processes` that are numbers, each (devices, times)."""
    times = grid.times_ns
    shape = fleet.world_size, len(times)
    window_ns = np.diff(grid.edges_ns)

    def grown(per_s: Floats, spread: float = 0.2) -> Floats:
        noise = np.exp(spread * rng.standard_normal(shape))
        total: Floats = np.cumsum(per_s * noise * grid.window_s, axis=1)
        return total

    def mean(quantity: Quantity) -> Floats:
        return condition.mean(quantity, grid.edges_ns)

    quota = condition.at(q.CPU_QUOTA, times)
    wanted = CPUS_A_PROCESS * np.exp(0.05 * rng.standard_normal(shape))
    used = wanted * mean(q.CPU_SHARE)
    began = rng.uniform(60, 600, (shape[0], 1)) * 1e9
    waited = (2e-4 + mean(q.WAITING_FOR_CPU)) * 1e9
    swapped = condition.at(q.SWAPPED_PROCESS, times)
    return {
        "cpu_ns": (began + np.cumsum(used * window_ns, axis=1)).astype(np.int64),
        "waited_ns": grown(waited, 0.3).astype(np.int64),
        "cpu_quota": np.ma.MaskedArray(quota, mask=quota <= 0),
        "throttled_ns": np.ma.MaskedArray(
            grown(mean(q.QUOTA_THROTTLED) * 1e9).astype(np.int64), mask=quota <= 0
        ),
        "cpus_allowed": _cpus_allowed(condition, fleet, times),
        "major_faults": counted((0.02 + mean(q.MAJOR_FAULTS)) * grid.window_s, rng)
        + beginnings(shape[0], 2000.0, rng),
        "rss_bytes": (PROCESS_BYTES * np.exp(0.02 * rng.standard_normal((shape[0], 1))) - swapped)
        .clip(GIB)
        .astype(np.int64),
        "swap_bytes": swapped.astype(np.int64),
        "read_bytes": (
            beginnings(shape[0], 1e11, rng) + grown(READ_BYTES_PER_S + mean(q.READ_RATE), 0.5)
        ).astype(np.int64),
        "numa_nodes": _numa_nodes(condition, fleet, times),
        "threads": np.full(shape, THREADS) + rng.integers(0, 9, (shape[0], 1)),
    }


def _unbound(condition: Condition, times: Floats) -> Bools:
    """(devices, times): processes that may use every CPU of their host."""
    bound = (condition.at(q.CPUS_ALLOWED, times) > 0) | (condition.at(q.FOREIGN_NUMA, times) > 0)
    unbound: Bools = (condition.at(q.UNBOUND, times) > 0) & ~bound
    return unbound


def _cpus_allowed(condition: Condition, fleet: Fleet, times: Floats) -> Ints:
    """(devices, times): the CPUs of a process's NUMA node, unless it has more or fewer."""
    machine, few = fleet.machine, condition.at(q.CPUS_ALLOWED, times)
    normal = np.where(_unbound(condition, times), machine.cpus, machine.cpus // machine.numa_nodes)
    return np.where(few > 0, few, normal).astype(np.int64)


def _numa_nodes(condition: Condition, fleet: Fleet, times: Floats) -> Ints:
    """(devices, times): the NUMA node whose CPUs a process may use; their number: all nodes."""
    own = np.array([fleet.numa_node(device) for device in range(fleet.world_size)])
    foreign = condition.at(q.FOREIGN_NUMA, times) > 0.5
    nodes: Ints = np.where(foreign, fleet.machine.numa_nodes - 1 - own[:, np.newaxis], own[:, None])
    return np.where(_unbound(condition, times), fleet.machine.numa_nodes, nodes)
