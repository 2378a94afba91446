"""Random scenarios for measuring accuracy: like clusters and faults that are met, healthy or sick.

Severities are such that an engineer would want to know: a slow rank computes half as long again
and more, a slow link makes its transfers last several times what the operation usually takes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from oncall.core.errors import UsageError
from oncall.core.units import NS_PER_S
from oncall_lab.drawn.measured import measured_scenario
from oncall_lab.training.algorithm import shape_of
from oncall_lab.training.cluster import Cluster, build
from oncall_lab.training.fault import MEASURED_WAYS, WAYS, TrainingFault
from oncall_lab.training.scenario import TrainingScenario

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
    severity: int | None = None,
    measured: bool = False,
) -> TrainingScenario:
    """A scenario drawn from `seed`.

    `faults`: the classes wanted, () for healthy, None to draw them too. `large`: 128 ranks
    instead of 8 to 64. `from_start`: slow faults are there from the first step. Faults of
    devices and hosts, or `measured`: NICs, GPUs and hosts are measured, too; `severity`: 1 to 3,
    None: any.
    Raises UsageError for a class that does not exist.
    """
    rng = np.random.default_rng([seed, 0x0CA11])
    kinds = _kinds(rng) if faults is None else tuple(faults)
    for kind in kinds:
        if kind not in {**WAYS, **MEASURED_WAYS}:
            known = ", ".join((*WAYS, *MEASURED_WAYS))
            raise UsageError(f"no fault class `{kind}`; known are {known}")
    if measured or any(kind in MEASURED_WAYS for kind in kinds):
        return measured_scenario(rng, seed, kinds, severity, from_start)
    values = _job(rng, seed, large) | _ordinary(rng)
    if "S3" in kinds:
        # Large, frequent operations: otherwise waiting always outweighs the transfer.
        values |= {"ep": 1, "tp_operations": 3, "tp_bytes": 384 * MIB, "forward_ns": 90 * 10**6}
    sound = TrainingScenario(**values)
    drawer = _FaultDrawer(rng, sound, build(sound), kinds, from_start)
    drawn = tuple(drawer.draw(kind) for kind in kinds)
    return TrainingScenario(**values | _sight(rng, sound, drawn), faults=drawn)


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
        "hiccup_every_ns": sometimes(0.5, 150, 400),
        "hiccup_ns": round(rng.uniform(0.1, 0.8) * NS_PER_S),
        "burst_every_ns": sometimes(0.3, 150, 400),
        "clock_offset_ns": int(rng.choice((10**5, 10**6, 10**7, 2 * 10**7))),
    }


def _sight(
    rng: np.random.Generator, sound: TrainingScenario, faults: Sequence[TrainingFault]
) -> dict[str, Any]:
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
        self,
        rng: np.random.Generator,
        sound: TrainingScenario,
        cluster: Cluster,
        kinds: Sequence[str],
        from_start: bool,
    ) -> None:
        self.rng = rng
        self.sound = sound
        self.cluster = cluster
        self.taken: set[int] = set()
        self.slow_ns = 0 if from_start else round(rng.uniform(125, 160) * NS_PER_S)
        # Slowness needs time to show before a hang ends it. Two hangs come at the same moment,
        # so that both act before one has stopped the other.
        slow = any(kind.startswith("S") for kind in kinds)
        self.hang_ns = round(rng.uniform(*((320, 350) if slow else (60, 170))) * NS_PER_S)

    def draw(self, kind: str) -> TrainingFault:
        return {
            "H1": self._not_entered,
            "H2": self._inconsistent,
            "H3": self._hardware,
            "S1": self._slow_compute,
            "S2": self._slow_link,
            "S3": self._mixed,
        }[kind]()

    def _rank(self) -> int:
        """A rank without a fault; one time in three a neighbour of one that has."""
        free = [rank for rank in range(self.sound.world_size) if rank not in self.taken]
        tp = self.sound.tp
        near = [rank for rank in free if rank // tp in {taken // tp for taken in self.taken}]
        rank = int(self.rng.choice(near if near and self.rng.random() < 0.33 else free))
        self.taken.add(rank)
        return rank

    def _choice(self, *options: str) -> str:
        return str(self.rng.choice(options))

    def _collective_roles(self) -> list[str]:
        roles = [role for role in ("tp", "dp", "ep") if getattr(self.sound, role) > 1]
        return [*roles, *(("tp",) if "tp" in roles else ())]

    def _not_entered(self) -> TrainingFault:
        how = self._choice("stop", "stop", "stop", "crash", "vanish")
        role = self._choice(*self._collective_roles(), *(("pp",) if self.sound.pp > 1 else ()))
        return TrainingFault("H1", (self._rank(),), self.hang_ns, role=role, how=how)

    def _inconsistent(self) -> TrainingFault:
        how = self._choice("operation", "operation", "smaller", "larger")
        outcome = self._choice("stuck", "odd_finishes") if how == "operation" else ""
        role = self._choice(*self._collective_roles())
        return TrainingFault(
            "H2", (self._rank(),), self.hang_ns, role=role, how=how, outcome=outcome
        )

    def _hardware(self) -> TrainingFault:
        role = self._choice(*self._collective_roles())
        progress = float(self.rng.uniform(0.02, 0.95))
        return TrainingFault("H3", (self._rank(),), self.hang_ns, role=role, progress=progress)

    def _slow_compute(self) -> TrainingFault:
        how = self._choice("throttle", "throttle", "pauses", "data")
        rank, factor = self._rank(), float(self.rng.uniform(1.7, 4.0))
        ranks: tuple[int, ...] = (rank,)
        if how == "data":
            # A long sample is on every rank of its replica, stage after stage.
            replica = rank // self.sound.tp % self.sound.dp
            ranks = tuple(int(r) for r in self.cluster.grid[:, replica].ravel())
            self.taken.update(ranks)
        if how != "pauses":
            return TrainingFault("S1", ranks, self.slow_ns, how=how, factor=factor)
        pause = round(self.rng.uniform(0.4, 1.5) * NS_PER_S)
        period = round(self.rng.uniform(4, 12) * NS_PER_S)
        return TrainingFault("S1", ranks, self.slow_ns, how=how, pause_ns=pause, period_ns=period)

    def _slow_link(self) -> TrainingFault:
        rank, role = self._rank(), self._choice("dp", "tp")
        transfer_ns, wait_ns = self._transfer_ns(rank, role), self._normal_wait_ns(role)
        times = float(self.rng.uniform(5, 12))
        factor = 1 + times * (transfer_ns + wait_ns) / transfer_ns
        return TrainingFault("S2", (rank,), self.slow_ns, role=role, factor=factor)

    def _mixed(self) -> TrainingFault:
        """Late into its tensor-parallel operations and slow in them, about as much of each."""
        rank, factor = self._rank(), float(self.rng.uniform(1.3, 1.7))
        # The longest computation between two of them: a backward cut and a forward cut, on the
        # first stage with the optimizer between; later stages wait there for the first.
        first_stage = rank < self.sound.tp * self.sound.dp
        optimizer_ns = self.sound.optimizer_ns if first_stage else 0
        late_ns = (factor - 1) * (1.5 * self._backward_cut_ns() + optimizer_ns)
        balance = float(self.rng.uniform(0.43, 0.52))
        link = 1 + late_ns * (1 - balance) / balance / self._transfer_ns(rank, "tp")
        return TrainingFault(
            "S3", (rank,), self.slow_ns, role="tp", factor=factor, link_factor=link
        )

    def _backward_cut_ns(self) -> float:
        """Computation between two operations of a backward pass."""
        cuts = self.sound.tp_operations + (2 if self.sound.ep > 1 else 0) + 1
        return 2 * self.sound.forward_ns / cuts

    def _normal_wait_ns(self, role: str) -> float:
        """How long ranks wait for each other anyway: jitter of what they computed since."""
        cuts = 1
        if role == "dp":
            cuts = self.sound.micro_batches * (self.sound.tp_operations + 1)
        return 2 * self.sound.jitter * self._backward_cut_ns() * float(np.sqrt(cuts))

    def _transfer_ns(self, rank: int, role: str) -> float:
        """Transfer time of the role's first operation on this rank, without jitter."""
        s = self.sound
        family = self.cluster.families_of(rank, role)[0]
        group, _ = family.place(rank) or (0, 0)
        rate = s.network_bytes_per_s if family.network[group] else s.nvlink_bytes_per_s
        size_bytes = s.tp_bytes if role == "tp" else s.dp_bytes // s.dp_buckets
        once = role == "dp" and s.distributed_optimizer
        op = "ReduceScatter" if once else "AllReduce"
        shape = shape_of(op, size_bytes, family.size, role in s.tree, s.channels)
        return float(shape.duration_ns(np.array(rate), s.latency_ns))
