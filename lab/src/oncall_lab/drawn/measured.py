"""Random scenarios with everything measured: jobs of 16 to 64 ranks on 2 to 8 nodes, minutes long.

Gradients are some GiB a rank, as of models of tens of billions of parameters, so that NICs are
busy for a good part of every step.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from oncall.core.errors import UsageError
from oncall.core.units import NS_PER_S
from oncall_lab.training.cluster import build
from oncall_lab.training.fault import MEASURED_WAYS, TrainingFault
from oncall_lab.training.scenario import TrainingScenario

GIB = 2**30
# tp, pp, dp, GPUs a node: data-parallel groups, and mostly stages too, lie across nodes.
_LAYOUTS = (
    (8, 1, 2, 8), (8, 1, 4, 8), (8, 2, 2, 8), (8, 2, 4, 8), (4, 2, 4, 8), (4, 2, 8, 8),
    (4, 1, 8, 8), (4, 1, 4, 4), (4, 2, 2, 4), (4, 2, 4, 4), (2, 2, 8, 8),
)  # fmt: skip
# What NCCL gets of 100, 200 and 400 Gb/s: 80 to 96 % (TFD 2.3).
_RATES = (10.5e9, 21e9, 42e9)
# Of a NIC that nobody uses, nobody notices.
_ON_NICS = ("PCIE_LINK", "PCIE_PORT", "NIC", "CABLE", "LINK", "SWITCH", "PFC_DEADLOCK")
_DURATIONS_S = (180, 300)
_BASELINE_S = (80, 130)


def measured_scenario(
    rng: np.random.Generator,
    seed: int,
    kinds: Sequence[str],
    severity: int | None,
    from_start: bool,
) -> TrainingScenario:
    """A job with faults of these kinds on different nodes where there are enough of them.

    Raises UsageError for kinds that act on the training only: those are drawn without measuring.
    """
    for kind in kinds:
        if kind not in MEASURED_WAYS:
            raise UsageError(f"{kind} is drawn without measurements")
    values = _job(rng, seed)
    job = TrainingScenario(**values)
    free = [int(node) for node in rng.permutation(job.nodes)]
    begin = 0 if from_start else int(rng.uniform(*_BASELINE_S) * NS_PER_S)
    faults = []
    for kind in kinds:
        own = np.random.default_rng([seed, zlib.crc32(kind.encode())])
        how = str(own.choice(MEASURED_WAYS[kind]))
        level = int(own.integers(1, 4)) if severity is None else severity
        rank = _rank(own, job, kind, free)
        # A job is laid out as it begins.
        since = 0 if kind == "PATTERN" else begin
        faults.append(TrainingFault(kind, (rank,), since, how=how, severity=level))
    return TrainingScenario(**values, faults=tuple(faults))


def _rank(rng: np.random.Generator, job: TrainingScenario, kind: str, free: list[int]) -> int:
    """A rank that the kind of fault matters to, on a node that has no fault yet where possible."""
    suitable = _suitable(job, kind)
    node_of = {rank: rank // job.gpus_per_node for rank in suitable}
    nodes = [node for node in free if node in node_of.values()]
    node = nodes[0] if nodes else int(rng.choice(list(node_of.values())))
    if node in free:
        free.remove(node)
    return int(rng.choice([rank for rank in suitable if node_of[rank] == node]))


def _suitable(job: TrainingScenario, kind: str) -> list[int]:
    """Ranks that load batches; ranks whose NIC carries gradients; all."""
    every = np.arange(job.world_size)
    if kind == "DATA_LOADER":
        return [rank for rank in every.tolist() if rank < job.tp * job.dp and rank % job.tp == 0]
    if kind not in _ON_NICS:
        return [int(rank) for rank in every]
    cluster = build(job)
    carries = np.zeros(job.world_size, dtype=np.bool_)
    for family in cluster.families.values():
        if family.role == "dp":
            nodes = cluster.nodes[family.members]
            outwards = nodes != np.roll(nodes, -1, axis=1)
            carries[family.members[outwards]] = True
    return [int(rank) for rank in (every[carries] if carries.any() else every)]


def _job(rng: np.random.Generator, seed: int) -> dict[str, Any]:
    tp, pp, dp, gpus = (int(size) for size in _LAYOUTS[rng.integers(len(_LAYOUTS))])
    rate = float(rng.choice(_RATES))
    # A step in which gradients take 15 to 40 % of the time, at this network.
    dp_s = float(rng.uniform(0.3, 0.9))
    dp_bytes = int(dp_s * rate / 2) // 2**20 * 2**20
    micro_batches = int(rng.choice((2, 4, 4, 8)))
    step_s = dp_s * float(rng.uniform(1.5, 4.0))
    forward_s = step_s / 3 / (micro_batches + pp - 1)
    nvlink = 180e9 if rate < 40e9 else 350e9
    tp_operations = int(rng.choice((1, 2, 2)))
    # Tensor parallelism takes 10 to 25 % of a computation; its many operations as a few.
    tp_s = forward_s * float(rng.uniform(0.1, 0.25)) / tp_operations
    tp_bytes = int(tp_s * nvlink / (2 * (tp - 1) / tp)) // 2**20 * 2**20
    return {
        "job": f"simulated-{seed}",
        "seed": seed,
        "tp": tp,
        "pp": pp,
        "dp": dp,
        "gpus_per_node": gpus,
        "measured": True,
        "recorder": "hooks",
        "duration_ns": int(rng.uniform(*_DURATIONS_S)) * NS_PER_S,
        "network_bytes_per_s": rate,
        "nvlink_bytes_per_s": nvlink,
        "micro_batches": micro_batches,
        "forward_ns": int(forward_s * NS_PER_S),
        "tp_operations": tp_operations,
        "tp_bytes": tp_bytes,
        "pp_bytes": int(rng.choice((32, 64, 128))) * 2**20,
        "dp_bytes": dp_bytes,
        "dp_buckets": int(rng.choice((1, 2, 4))),
        "distributed_optimizer": bool(rng.random() < 0.7),
        "jitter": float(rng.uniform(0.01, 0.025)),
        "warm_up_steps": int(rng.integers(0, 5)),
        "warm_up_factor": float(rng.uniform(1.2, 2.5)),
        "checkpoint_every_ns": int(rng.choice((0, 0, 90))) * NS_PER_S,
        "checkpoint_ns": int(rng.uniform(3, 8)) * NS_PER_S,
        "clock_offset_ns": int(rng.choice((10**5, 10**6, 10**7))),
        "hiccup_every_ns": int(rng.choice((0, 0, 90))) * NS_PER_S,
        "hiccup_ns": int(rng.uniform(0.05, 0.25) * NS_PER_S),
        "links_known": bool(rng.random() < 0.3),
        "ping_clock": str(rng.choice(("nic", "nic", "kernel"))),
    }
