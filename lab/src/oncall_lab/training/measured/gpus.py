"""What NVML says of each GPU: it follows from what the GPU computes, waits for and suffers.

NVML counts a GPU as used while any kernel runs. NCCL's kernels spin while they wait, so waiting
shows as low power at full use; a GPU whose host feeds it nothing shows low use.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from oncall_lab.arrays import Floats, Ints
from oncall_lab.training.measured import quantities as q
from oncall_lab.training.measured.condition import Condition, Quantity
from oncall_lab.training.measured.machine import Fleet
from oncall_lab.training.measured.sampling import Grid, beginnings, counted
from oncall_lab.training.play import Played

# NVML's clocks event reasons (nvml.h).
SW_POWER_CAP = 0x4
HW_SLOWDOWN = 0x8
SW_THERMAL = 0x20
HW_THERMAL = 0x40
HW_POWER_BRAKE = 0x80
GPU_IDLE = 0x1
COMPUTE_POWER = 0.82  # of the range between idle and limit, in dense training
WAIT_POWER = 0.30  # while NCCL's kernels spin or copy
INLET_C = 27.0
HEATING_C = 38.0  # at the power limit, in an air-cooled node
MEMORY_USED = (0.62, 0.88)  # of GPU memory, in sound training
FULL = 0.995  # of GPU memory: the rest is the driver's


@dataclass(frozen=True)
class Activity:
    """Shares of each window (devices, times) that a GPU computed, and was in an operation."""

    computing: Floats
    communicating: Floats


def activity_of(played: Played, condition: Condition, grid: Grid) -> Activity:
    """What GPUs did, read off the meetings."""
    rank = np.concatenate([m.family.members.ravel() for m in played.meetings])
    free = np.concatenate([m.free_ns.ravel() for m in played.meetings])
    arrival = np.concatenate([m.arrival_ns.ravel() for m in played.meetings])
    end = np.concatenate([m.end_ns.ravel() for m in played.meetings])
    until = played.until_ns
    free, arrival, end = (np.minimum(moment, until) for moment in (free, arrival, end))
    world = played.cluster.world_size
    order = np.argsort(rank, kind="stable")
    bounds = np.searchsorted(rank[order], np.arange(world + 1))
    computing = np.empty((world, len(grid.times_ns)))
    inside = np.empty_like(computing)
    for device in range(world):
        rows = order[bounds[device] : bounds[device + 1]]
        computing[device] = _covered(free[rows], arrival[rows], grid)
        inside[device] = _covered(arrival[rows], end[rows], grid)
    fed = condition.mean(q.HOST_SPEED, grid.edges_ns)
    return Activity(computing * fed, np.clip(inside, 0.0, 1.0))


def _covered(begin: Floats, end: Floats, grid: Grid) -> Floats:
    """Share of each window inside any of these intervals, which come one after another."""
    total = np.concatenate([[0.0], np.cumsum(end - begin)])
    at = np.stack([begin, end], axis=1).ravel()
    done = np.stack([total[:-1], total[1:]], axis=1).ravel()
    share: Floats = np.diff(np.interp(grid.edges_ns, at, done)) / np.diff(grid.edges_ns)
    return share


def gpu_columns(
    condition: Condition, fleet: Fleet, activity: Activity, grid: Grid, rng: np.random.Generator
) -> dict[str, Any]:
    """Columns of the table `gpus`, each (devices, times)."""
    machine, times = fleet.machine, grid.times_ns
    shape = len(activity.computing), len(times)

    def mean(quantity: Quantity) -> Floats:
        return condition.mean(quantity, grid.edges_ns)

    own = np.exp(0.02 * rng.standard_normal((shape[0], 1)))  # no two GPUs draw alike
    load = COMPUTE_POWER * activity.computing + WAIT_POWER * activity.communicating
    clock_share = mean(q.SM_CLOCK)
    drawn = load * own * mean(q.POWER) * (1 + 0.03 * rng.standard_normal(shape))
    power = machine.gpu_idle_w + drawn * (machine.gpu_limit_w - machine.gpu_idle_w)
    normal_clock = machine.sm_clock_max_mhz * (1 - 0.04 * np.clip(load, 0, 1))
    clock = normal_clock * clock_share + 8 * rng.standard_normal(shape)
    used = np.clip(activity.computing + activity.communicating, 0.0, 1.0)
    idle = used < 0.02
    smooth = _smoothed(load * own, times)
    place = rng.normal(0.0, 2.0, (shape[0], 1))  # of a GPU in the air stream
    heat = INLET_C + HEATING_C * smooth + place + mean(q.HEAT) + 0.4 * rng.standard_normal(shape)
    gen_loss = condition.at(q.GPU_GEN_LOSS, times)
    whole = np.ones(shape, dtype=np.int64)
    return {
        "sm_clock_mhz": (np.rint(clock / 15) * 15).clip(210, machine.sm_clock_max_mhz).astype(int),
        "power_w": np.round(power.clip(40.0, machine.gpu_limit_w * 1.02), 1),
        "temp_c": np.round(heat),
        "utilisation": np.round(np.clip(used + 0.01 * rng.standard_normal(shape), 0, 1), 2),
        "throttle_reasons": _reasons(condition, times) | np.where(idle, GPU_IDLE, 0).astype(int),
        "pcie_gen": machine.pcie_gen - gen_loss.astype(np.int64),
        "pcie_gen_max": whole * machine.pcie_gen,
        "pcie_width": condition.at(q.GPU_WIDTH, times).astype(np.int64),
        "pcie_width_max": whole * 16,
        "sm_clock_max_mhz": whole * machine.sm_clock_max_mhz,
        "power_limit_w": machine.gpu_limit_w * condition.at(q.POWER_LIMIT, times),
        "memory_bytes": whole * machine.gpu_memory_bytes,
        "memory_used_bytes": _memory_used(fleet, condition.at(q.MEMORY_FILL, times), rng),
        "pcie_replays": _from_before(mean(q.GPU_REPLAYS), 5.0, grid, rng),
        "ecc_corrected": _from_before(mean(q.ECC_CORRECTED), 8.0, grid, rng),
        "ecc_uncorrected": counted(mean(q.ECC_UNCORRECTED) * grid.window_s, rng),
        "nvlink_errors": _from_before(mean(q.NVLINK_ERRORS), 2.0, grid, rng),
        "remapped_rows": condition.at(q.REMAPPED_ROWS, times).astype(np.int64),
        "remap_failed": condition.at(q.REMAP_FAILED, times) > 0.5,
        "nvlinks": whole * machine.nvlinks,
        "nvlinks_up": machine.nvlinks - condition.at(q.NVLINKS_DOWN, times).astype(np.int64),
        "processes": 1 + condition.at(q.OTHER_PROCESSES, times).astype(np.int64),
    }


def _reasons(condition: Condition, times: Floats) -> Ints:
    bits = {
        SW_POWER_CAP: q.THROTTLED_POWER,
        SW_THERMAL: q.THROTTLED_HEAT,
        HW_THERMAL | HW_SLOWDOWN: q.THROTTLED_HARD_HEAT,
        HW_POWER_BRAKE | HW_SLOWDOWN: q.THROTTLED_BRAKE,
        HW_SLOWDOWN: q.THROTTLED_HARDWARE,
    }
    reasons = np.zeros((condition.devices, len(times)), dtype=np.int64)
    for bit, quantity in bits.items():
        reasons |= np.where(condition.at(quantity, times) > 0.5, bit, 0)
    return reasons


def _from_before(rate: Floats, most: float, grid: Grid, rng: np.random.Generator) -> Ints:
    """A counter that grows at this rate a second, from what it showed before."""
    return counted(rate * grid.window_s, rng) + beginnings(len(rate), most, rng)


def _memory_used(fleet: Fleet, more: Floats, rng: np.random.Generator) -> Ints:
    """PyTorch's allocator keeps what it got: much the same on all ranks, and steady."""
    share = rng.uniform(*MEMORY_USED) + 0.01 * rng.standard_normal((len(more), 1))
    used = np.minimum(share + more, FULL) * fleet.machine.gpu_memory_bytes
    whole: Ints = (used // 2**21 * 2**21).astype(np.int64)
    return whole


def _smoothed(load: Floats, times: Floats) -> Floats:
    """A heat sink follows its load within half a minute."""
    keep = np.exp(-np.gradient(times)[0] / 15e9) if len(times) > 1 else 0.0
    out = np.empty_like(load)
    level = load[:, :5].mean(axis=1)
    for index in range(load.shape[1]):
        level = keep * level + (1 - keep) * load[:, index]
        out[:, index] = level
    return out
