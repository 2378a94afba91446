"""Random scenarios for measuring accuracy: like clusters and faults that are met, healthy or sick.

Severities are such that an engineer would want to know: a slow rank makes steps longer, a slow
link takes a transfer from unnoticed to dominant.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from oncall.errors import UsageError
from oncall.simulate.cluster import Cluster, build
from oncall.simulate.fault import WAYS, Fault
from oncall.simulate.scenario import Scenario
from oncall.units import NS_PER_S

MINUTE = 60 * NS_PER_S
MIB = 2**20
# How often a draw without wishes is healthy, has one fault, has two.
_NUMBER_OF_FAULTS = (0.2, 0.7, 0.1)
_SIZES = ((2, 1, 4), (2, 2, 4), (4, 1, 4), (4, 2, 2), (4, 2, 4), (8, 1, 4), (2, 4, 4), (8, 2, 4))
_SIZES_OF_16_NODES = ((8, 1, 16), (4, 4, 8), (8, 2, 8))


def random_scenario(
    seed: int,
    faults: Sequence[str] | None = None,
    *,
    large: bool = False,
    from_start: bool = False,
) -> Scenario:
    """A scenario drawn from `seed`.

    `faults`: the classes wanted, () for healthy, None to draw them too. `large`: 128 ranks
    instead of 8 to 64. `from_start`: slow faults are there from the first step.
    Raises UsageError for a class that does not exist.
    """
    rng = np.random.default_rng([seed, 0x0CA11])
    kinds = _kinds(rng) if faults is None else tuple(faults)
    for kind in kinds:
        if kind not in WAYS:
            raise UsageError(f"no fault class `{kind}`; known are {', '.join(WAYS)}")
    values = _job(rng, seed, large) | _ordinary(rng)
    sound = Scenario(**values)
    drawer = _FaultDrawer(rng, sound, build(sound), from_start)
    drawn = tuple(drawer.draw(kind) for kind in kinds)
    return Scenario(**values | _sight(rng, sound, drawn), faults=drawn)


def _kinds(rng: np.random.Generator) -> tuple[str, ...]:
    number = int(rng.choice(3, p=_NUMBER_OF_FAULTS))
    return tuple(str(kind) for kind in rng.choice(tuple(WAYS), size=number, replace=False))


def _job(rng: np.random.Generator, seed: int, large: bool) -> dict[str, Any]:
    sizes = _SIZES_OF_16_NODES if large else _SIZES
    tp, pp, dp = (int(size) for size in sizes[rng.integers(len(sizes))])
    return {
        "job": f"simulated-{seed}",
        "seed": seed,
        "tp": tp,
        "pp": pp,
        "dp": dp,
        "ep": int(rng.choice((1, 1, 1, 2))),
        "duration_ns": 6 * MINUTE,
        "micro_batches": int(rng.choice((2, 4, 4))),
        "forward_ns": int(rng.uniform(80, 240)) * 10**6,
        "tp_operations": int(rng.choice((1, 2, 3))),
        "tp_bytes": int(rng.choice((128, 256, 384))) * MIB,
        "dp_bytes": int(rng.choice((1024, 2048, 4096))) * MIB,
        "dp_buckets": int(rng.choice((1, 1, 2))),
        "distributed_optimizer": bool(rng.random() < 0.7),
        "tree": (("world",), ("world", "dp"), ())[int(rng.choice(3, p=(0.15, 0.15, 0.7)))],
    }


def _ordinary(rng: np.random.Generator) -> dict[str, Any]:
    """Disturbances of healthy training, each there or not."""

    def sometimes(share: float, low_s: float, high_s: float) -> int:
        there = rng.random() < share
        return round(rng.uniform(low_s, high_s) * NS_PER_S) if there else 0

    return {
        "jitter": float(rng.uniform(0.01, 0.03)),
        "warm_up_steps": int(rng.integers(0, 5)),
        "warm_up_factor": float(rng.uniform(1.2, 3.0)),
        "checkpoint_every_ns": sometimes(0.5, 60, 150),
        "checkpoint_ns": round(rng.uniform(3, 25) * NS_PER_S),
        "barrier_every": int(rng.choice((0, 0, 10, 50))),
        "hiccup_every_ns": sometimes(0.5, 60, 200),
        "hiccup_ns": round(rng.uniform(0.1, 0.8) * NS_PER_S),
        "burst_every_ns": sometimes(0.3, 60, 200),
        "clock_offset_ns": int(rng.choice((10**5, 10**6, 10**7, 2 * 10**7))),
    }


def _sight(rng: np.random.Generator, sound: Scenario, faults: Sequence[Fault]) -> dict[str, Any]:
    """Holes and silent nodes; never the node whose ranks are to be found."""
    guilty = {rank // sound.gpus_per_node for fault in faults for rank in fault.ranks}
    free = [node for node in range(sound.nodes) if node not in guilty]
    blind = rng.random() < 0.1 and sound.nodes > 3 and free
    return {
        "holes": float(rng.choice((0.0, 0.0, 0.002, 0.01))),
        "missing_nodes": (int(rng.choice(free)),) if blind else (),
    }


class _FaultDrawer:
    """Draws faults on different ranks."""

    def __init__(
        self, rng: np.random.Generator, sound: Scenario, cluster: Cluster, from_start: bool
    ) -> None:
        self.rng = rng
        self.sound = sound
        self.cluster = cluster
        self.from_start = from_start
        self.taken: set[int] = set()
        # Two hangs at once must both come to act before the first has stopped the other.
        self.hang_ns = round(rng.uniform(60, 170) * NS_PER_S)

    def draw(self, kind: str) -> Fault:
        return {
            "H1": self._not_entered,
            "H2": self._inconsistent,
            "H3": self._hardware,
            "S1": self._slow_compute,
            "S2": self._slow_link,
            "S3": self._mixed,
        }[kind]()

    def _rank(self) -> int:
        free = [rank for rank in range(self.sound.world_size) if rank not in self.taken]
        rank = int(self.rng.choice(free))
        self.taken.add(rank)
        return rank

    def _choice(self, *options: str) -> str:
        return str(self.rng.choice(options))

    def _slow_from(self) -> int:
        return 0 if self.from_start else round(self.rng.uniform(125, 160) * NS_PER_S)

    def _collective_roles(self) -> list[str]:
        roles = [role for role in ("tp", "dp", "ep") if getattr(self.sound, role) > 1]
        return [*roles, *(("tp",) if "tp" in roles else ())]

    def _not_entered(self) -> Fault:
        how = self._choice("stop", "stop", "stop", "crash", "vanish")
        return Fault("H1", (self._rank(),), self.hang_ns, how=how)

    def _inconsistent(self) -> Fault:
        how = self._choice("operation", "operation", "smaller", "larger")
        outcome = self._choice("stuck", "odd_finishes") if how == "operation" else ""
        role = self._choice(*self._collective_roles())
        return Fault("H2", (self._rank(),), self.hang_ns, role=role, how=how, outcome=outcome)

    def _hardware(self) -> Fault:
        role = self._choice(*self._collective_roles())
        progress = float(self.rng.uniform(0.02, 0.95))
        return Fault("H3", (self._rank(),), self.hang_ns, role=role, progress=progress)

    def _slow_compute(self) -> Fault:
        how = self._choice("throttle", "throttle", "pauses", "data")
        rank, factor = self._rank(), float(self.rng.uniform(1.7, 4.0))
        ranks: tuple[int, ...] = (rank,)
        if how == "data":
            # A long sample is on every rank of its replica, stage after stage.
            replica = rank // self.sound.tp % self.sound.dp
            ranks = tuple(int(r) for r in self.cluster.grid[:, replica].ravel())
            self.taken.update(ranks)
        if how != "pauses":
            return Fault("S1", ranks, self._slow_from(), how=how, factor=factor)
        pause = round(self.rng.uniform(0.4, 1.5) * NS_PER_S)
        period = round(self.rng.uniform(4, 12) * NS_PER_S)
        return Fault("S1", ranks, self._slow_from(), how=how, pause_ns=pause, period_ns=period)

    def _slow_link(self) -> Fault:
        role = self._choice("dp", "tp") if self.sound.dp > 1 else "tp"
        factor = float(self.rng.uniform(12, 30) if role == "dp" else self.rng.uniform(30, 60))
        return Fault("S2", (self._rank(),), self._slow_from(), role=role, factor=factor)

    def _mixed(self) -> Fault:
        """Late into its tensor-parallel operations and slow in them, about as much of each."""
        s = self.sound
        factor = float(self.rng.uniform(1.4, 2.0))
        cuts = s.tp_operations + (2 if s.ep > 1 else 0) + 1
        # Computation before a forward operation is one cut long, before a backward one two.
        late_ns = (factor - 1) * 1.5 * s.forward_ns / cuts
        share = 2 * (s.tp - 1) / s.tp
        transfer_ns = share * s.tp_bytes / s.nvlink_bytes_per_s * 1e9
        balance = float(self.rng.uniform(0.42, 0.58))
        link = 1 + late_ns * (1 - balance) / balance / transfer_ns
        at_ns, rank = self._slow_from(), self._rank()
        return Fault("S3", (rank,), at_ns, role="tp", factor=factor, link_factor=link)
