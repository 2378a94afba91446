"""Experiments as VenusTrace 5.1 makes them, drawn from a seed: hangs and delays at random places.

A delay is 50 ms to 30 s against forwards of about 40 ms; whether it costs anything is for the
schedule to say. Beside them ranks and links that stay slow, spells of slowness every minute or
so (VenusTrace 2.2), and jobs that nobody is to blame for.
"""

from __future__ import annotations

import zlib
from dataclasses import replace
from typing import Any

import numpy as np

from oncall.core.errors import UsageError
from oncall_lab.pipeline.fault import COMPUTATIONS, TRANSMISSIONS, PipelineFault
from oncall_lab.pipeline.scenario import PipelineScenario

EXPERIMENTS = ("hang", "delay", "slow", "sporadic", "healthy", "design")
MS = 10**6
SECOND = 10**9
# tp, pp, dp, cp, ep
_SIZES = (
    (2, 4, 1, 1, 1), (2, 4, 2, 1, 1), (2, 4, 4, 1, 1), (2, 2, 4, 1, 1), (4, 4, 2, 1, 1),
    (8, 4, 2, 1, 1), (2, 8, 2, 1, 1), (2, 4, 2, 2, 1), (2, 4, 4, 1, 2), (4, 2, 4, 1, 4),
)  # fmt: skip
_DESIGNS: tuple[dict[str, Any], ...] = (
    {"last_stage": 0.6},
    {"long_sequences": 0.4},
    {"garbage_every": 4, "garbage_together": True},
    {"garbage_every": 16, "garbage_together": False, "iterations": 24},
    {"routing": 0.3, "tp": 2, "pp": 4, "dp": 4, "cp": 1, "ep": 4},
)


def experiment(kind: str, seed: int) -> PipelineScenario:
    """One experiment of a kind. Raises UsageError if there is no such kind."""
    if kind not in EXPERIMENTS:
        raise UsageError(f"no experiment `{kind}`; known are {', '.join(EXPERIMENTS)}")
    rng = np.random.default_rng([seed, zlib.crc32(f"experiment {kind}".encode())])
    values = _job(rng)
    # A trainer that tells its tasks knows its groups.
    values["roles_recorded"] |= values["recorder"] == "tasks"
    if kind == "hang":
        values["recorder"] = "hooks"  # who tells tasks alone does not tell when that was read
    if kind == "design":
        design = _DESIGNS[int(rng.integers(len(_DESIGNS)))]
        return _make(values | {"schedule": "1F1B", "chunks": 1} | design)
    if kind == "sporadic":
        # Minutes of training: a spell is to come three times and more.
        values |= {"iterations": 100, "tp": 2, "pp": 4, "dp": 2, "cp": 1, "ep": 1, "layers": 1}
        values |= {"micro_batches": 8, "micro_batches_from": 0, "schedule": "1F1B", "chunks": 1}
    sound = _make(values)
    if kind == "healthy":
        return sound
    return replace(sound, faults=(_fault(rng, kind, sound),))


def _job(rng: np.random.Generator) -> dict[str, Any]:
    """How a job and its recording may be."""
    tp, pp, dp, cp, ep = _SIZES[int(rng.integers(len(_SIZES)))]
    schedule = str(rng.choice(("1F1B", "1F1B", "1F1B", "interleaved", "GPipe")))
    return {
        "seed": int(rng.integers(2**31)),
        "schedule": schedule,
        "chunks": int(rng.choice((2, 2, 3))) if schedule == "interleaved" else 1,
        "tp": tp, "pp": pp, "dp": dp, "cp": cp, "ep": ep,
        "micro_batches": int(rng.choice((4, 8, 8, 12, 16))),
        "micro_batches_from": int(rng.random() < 0.1),  # does it begin with half of them?
        "layers": int(rng.choice((1, 2, 3))),
        "iterations": int(rng.integers(10, 16)),
        "sequence_parallel": bool(rng.random() < 0.5),
        "distributed_optimizer": bool(rng.random() < 0.7),
        "overlap_gradients": bool(rng.random() < 0.4),
        "overlap_p2p": bool(rng.random() < 0.4),
        "forward_ns": int(rng.uniform(20, 60) * MS),
        "dp_bytes": int(rng.choice((256, 512, 1024))) * 2**20,
        "jitter": float(rng.uniform(0.005, 0.04)),
        "last_stage": float(rng.choice((0.0, 0.0, 0.15))),
        "long_sequences": float(rng.choice((0.0, 0.0, 0.05))),
        "evaluate_every": int(rng.choice((0, 0, 0, 6))),
        "checkpoint_every": int(rng.choice((0, 0, 0, 7))),
        "configuration_stated": bool(rng.random() < 0.6),
        "roles_recorded": bool(rng.random() < 0.5),
        "host_ahead": bool(rng.random() < 0.3),
        "recorder": str(rng.choice(("hooks", "tasks"), p=(0.85, 0.15))),
        "holes": float(rng.choice((0.0, 0.0, 0.0, 0.002))),
        "starts_in": float(rng.choice((0.0, 0.4))),
        "clock_offset_ns": int(rng.choice((100_000, 2_000_000, 50_000_000))),
        "clock_error_ns": int(rng.choice((20_000, 100_000, 500_000))),
        "clocks_measured": bool(rng.random() < 0.7),
    }  # fmt: skip


def _make(values: dict[str, Any]) -> PipelineScenario:
    """A scenario of these values, as far as they go together."""
    pp, chunks = values["pp"], values["chunks"]
    if values["schedule"] == "interleaved":
        if pp < 3:
            values |= {"schedule": "1F1B", "chunks": 1}
            chunks = 1
        values["micro_batches"] = pp * max(1, values["micro_batches"] // pp)
        values["micro_batches_from"] = 0
    values["micro_batches"] = max(pp, values["micro_batches"])
    values["micro_batches_from"] *= values["micro_batches"] // 2
    return PipelineScenario(**{**values, "layers": values["layers"] * pp * chunks})


def _fault(rng: np.random.Generator, kind: str, sound: PipelineScenario) -> PipelineFault:
    """From the fourth whole iteration on: the baseline is known by then (VenusTrace 3.3)."""
    rank = int(rng.integers(sound.world_size))
    iteration = int(rng.integers(5, sound.iterations - 1))
    if kind == "slow":
        if rng.random() < 0.25:
            return PipelineFault("link", _sender(sound, rank), iteration, factor=100.0)
        return PipelineFault("slow", rank, iteration, factor=float(rng.uniform(1.5, 3)))
    if kind == "sporadic":
        baseline_ns = 3 * sound.forward_ns * (sound.micro_batches + sound.pp)
        period_ns = int(rng.uniform(20, 30)) * baseline_ns
        return PipelineFault(
            "sporadic", rank, 5, factor=float(rng.uniform(1.6, 3)), period_ns=period_ns,
            lasting_ns=int(rng.uniform(1, 3) * baseline_ns),
        )  # fmt: skip
    values: dict[str, Any] = {
        "task": str(rng.choice((*COMPUTATIONS, *TRANSMISSIONS), p=(0.35, 0.35, 0.15, 0.15))),
        "micro_batch": int(rng.integers(sound.micro_batches_in(iteration))),
        "chunk": int(rng.integers(sound.chunks)),
    }
    if kind == "delay":
        values["delay_ns"] = int(np.exp(rng.uniform(np.log(50 * MS), np.log(30 * SECOND))))
    if values["task"] in TRANSMISSIONS:
        stage = rank // (sound.tp * sound.lanes)
        end = (sound.pp - 1, sound.chunks - 1) if values["task"] == "forward_send" else (0, 0)
        if (stage, values["chunk"]) == end:
            values["task"] = values["task"].removesuffix("_send")
    return PipelineFault(kind, rank, iteration, **values)


def _sender(sound: PipelineScenario, rank: int) -> int:
    """A rank that sends to the next stage: any but the last stage's."""
    of_stage = sound.tp * sound.lanes
    return rank if rank < of_stage * (sound.pp - 1) else rank - of_stage
