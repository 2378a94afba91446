"""Cases drawn from a seed: the paper's four families, three more, and healthy (Vedrfolnir IV-A).

Sizes are those of the paper for steps of 360 MB, scaled down with the steps; topology, collective,
its place, flows and times are drawn. Not every draw delays the collective: `attempts` goes on.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import count
from typing import Any

import numpy as np

from oncall_lab.network.host_traffic import STEP_BYTES
from oncall_lab.network.scenario import NetworkFault, NetworkScenario

GIGABIT = 1e9 / 8
MOST_CHANNELS = 32
# How many cases of each kind: the paper's counts first (IV-A), then ours.
COUNTS: Mapping[str, int] = {
    "CONTENTION": 60,
    "INCAST": 60,
    "PFC_STORM": 40,
    "PFC_BACKPRESSURE": 60,
    "PFC_LOOP_DEADLOCK": 20,
    "FORWARDING_LOOP": 20,
    "LOAD_IMBALANCE": 20,
    "healthy": 60,
}


def attempts(kind: str, seed: int) -> Iterator[NetworkScenario]:
    """Scenarios of a kind of COUNTS, one after the other, until one is taken."""
    for attempt in count():
        rng = np.random.default_rng([seed, attempt, zlib.crc32(kind.encode())])
        yield _scenario(kind, seed, rng)


def unseen_attempts(kind: str, seed: int) -> Iterator[NetworkScenario]:
    """The same where no switch speaks, also of SLOW_RECEIVER: hosts tell their steps, or only
    what they sent when, and NICs are read by the collector's habit or densely."""
    rng = np.random.default_rng([seed, 0x4057, zlib.crc32(kind.encode())])
    every_ns = int(rng.choice((5, 25, 250))) * 1_000_000
    has_steps = bool(rng.random() < 0.5)
    share = float(rng.uniform(0.25, 0.5))  # of the steps: those found in traffic go round once
    for drawn in attempts(kind, seed):
        hidden = replace(drawn, reports="never", innocent=0, nics_every_ns=every_ns)
        if not has_steps and drawn.algorithm == "ring":
            step_bytes = min(int(share * drawn.step_bytes), MOST_CHANNELS * STEP_BYTES)
            hidden = replace(hidden, steps="traffic", step_bytes=step_bytes, epoch_ns=50_000)
        yield hidden


def _scenario(kind: str, seed: int, rng: np.random.Generator) -> NetworkScenario:
    network = _network(rng)
    collective = _collective(rng, network["fat_tree"], network["network_bytes_per_s"])
    step_ns = collective["step_bytes"] / network["network_bytes_per_s"] * 1e9
    faults: tuple[NetworkFault, ...] = ()
    if kind != "healthy":
        at_ns = 0 if kind == "LOAD_IMBALANCE" else int(rng.uniform(0.1, 2.5) * step_ns)
        faults = (NetworkFault(kind, at_ns),)
    if kind == "PFC_BACKPRESSURE" and rng.random() < 0.75:
        # Senders that give way are slowed by their marks rather than by pauses.
        network["congestion_control"] = False
    sight: dict[str, Any] = {
        # Whether a link was idle is known only of switches that report by themselves.
        "reports": "always" if kind == "LOAD_IMBALANCE" or rng.random() < 0.6 else "asked",
        "expectation": bool(rng.random() < 0.75),
        "innocent": int(rng.integers(0, 5)),
    }
    return NetworkScenario(
        job=f"{kind.lower()}-{seed}",
        seed=int(rng.integers(2**31)),
        faults=faults,
        **network,
        **collective,
        **sight,
    )


def _network(rng: np.random.Generator) -> dict[str, Any]:
    rate = float(rng.choice((100, 100, 200, 400))) * GIGABIT
    times = rate / (100 * GIGABIT)  # buffers grow with rates
    xoff = rng.uniform(250_000, 600_000) * times
    return {
        "fat_tree": int(rng.choice((4, 4, 4, 6, 6, 8))),
        "network_bytes_per_s": rate,
        "xoff_bytes": int(xoff),
        "xon_bytes": int(xoff - rng.uniform(150_000, 200_000) * times),
        "marking_bytes": int(rng.uniform(100_000, 400_000) * times),
        "congestion_control": bool(rng.random() < 0.6),
    }


def _collective(rng: np.random.Generator, fat_tree: int, rate: float) -> dict[str, Any]:
    most = {4: 8, 6: 12, 8: 16}[fat_tree]
    ring = bool(rng.random() < 0.8)
    members = int(rng.integers(4, most + 1)) if ring else int(rng.choice((4, 8)))
    op = str(rng.choice(("AllGather", "AllGather", "AllReduce", "ReduceScatter")))
    return {
        "members": members,
        "algorithm": "ring" if ring else "halving_doubling",
        "op": op if ring else "AllReduce",
        "step_bytes": int(rng.uniform(3e-3, 8e-3) * rate),
        "placement": str(rng.choice(("packed", "scattered"))),
        "skew_ns": int(rng.uniform(0, 300_000)),
        "jitter": float(rng.uniform(0.002, 0.02)),
    }
