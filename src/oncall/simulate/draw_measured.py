"""Random scenarios with everything measured: jobs of 16 to 64 ranks on 2 to 8 nodes, minutes long.

Gradients are some GiB a rank, as of models of tens of billions of parameters, so that NICs are
busy for a good part of every step.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from oncall.errors import UsageError
from oncall.simulate.fault import MEASURED_WAYS, Fault
from oncall.simulate.scenario import Scenario
from oncall.units import NS_PER_S

GIB = 2**30
# tp, pp, dp, GPUs a node: data-parallel groups, and mostly stages too, lie across nodes.
_LAYOUTS = (
    (8, 1, 2, 8), (8, 1, 4, 8), (8, 2, 2, 8), (8, 2, 4, 8), (4, 2, 4, 8), (4, 2, 8, 8),
    (4, 1, 8, 8), (4, 1, 4, 4), (4, 2, 2, 4), (4, 2, 4, 4), (2, 2, 8, 8),
)  # fmt: skip
# What NCCL gets of 100, 200 and 400 Gb/s: 80 to 96 % (TFD 2.3).
_RATES = (10.5e9, 21e9, 42e9)
_DURATIONS_S = (180, 300)
_BASELINE_S = (80, 130)


def measured_scenario(
    rng: np.random.Generator,
    seed: int,
    kinds: Sequence[str],
    severity: int | None,
    from_start: bool,
) -> Scenario:
    """A job with faults of these kinds on different nodes where there are enough of them.

    Raises UsageError for kinds that act on the training only: those are drawn without measuring.
    """
    for kind in kinds:
        if kind not in MEASURED_WAYS:
            raise UsageError(f"{kind} is drawn without measurements")
    values = _job(rng, seed)
    nodes = Scenario(**values).nodes
    free = list(rng.permutation(nodes))
    begin = 0 if from_start else int(rng.uniform(*_BASELINE_S) * NS_PER_S)
    faults = []
    for kind in kinds:
        node = int(free.pop() if free else rng.integers(nodes))
        rank = node * values["gpus_per_node"] + int(rng.integers(values["gpus_per_node"]))
        how = str(rng.choice(MEASURED_WAYS[kind]))
        level = int(rng.integers(1, 4)) if severity is None else severity
        faults.append(Fault(kind, (rank,), begin, how=how, severity=level))
    return Scenario(**values, faults=tuple(faults))


def _job(rng: np.random.Generator, seed: int) -> dict[str, Any]:
    tp, pp, dp, gpus = (int(size) for size in _LAYOUTS[rng.integers(len(_LAYOUTS))])
    rate = float(rng.choice(_RATES))
    # A step in which gradients take 15 to 40 % of the time, at this network.
    dp_s = float(rng.uniform(0.3, 0.9))
    dp_bytes = int(dp_s * rate / 2) // 2**20 * 2**20
    micro_batches = int(rng.choice((2, 4, 4, 8)))
    step_s = dp_s * float(rng.uniform(1.5, 4.0))
    forward_s = step_s / 3 / (micro_batches + pp - 1)
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
        "nvlink_bytes_per_s": 180e9 if rate < 40e9 else 350e9,
        "micro_batches": micro_batches,
        "forward_ns": int(forward_s * NS_PER_S),
        "tp_operations": int(rng.choice((1, 2, 2))),
        "tp_bytes": int(rng.choice((128, 256))) * 2**20,
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
        "links_known": bool(rng.random() < 0.3),
        "ping_clock": str(rng.choice(("nic", "nic", "kernel"))),
    }
