"""The operations of one training step, in an order in which they can be played.

Each stage has its program: the one-forward-one-backward (1F1B) schedule of Megatron
(`forward_backward_pipelining_without_interleaving`). The programs of all stages are merged into
one list of slots; in a slot every group of a family does the same operation.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from oncall_lab.training.algorithm import Shape, shape_of
from oncall_lab.training.cluster import Cluster, Family
from oncall_lab.training.fault import TrainingFault
from oncall_lab.training.scenario import TrainingScenario

BARRIER_BYTES = 1
LOSS_BYTES = 8
# What wrong settings leave of a link's bandwidth, by severity. LL sends a flag with every word, so
# half at best; a single channel is one connection and one thread block, which fills no fast link.
SETTINGS_SPEED = {1: 0.6, 2: 0.45, 3: 0.3}


@dataclass(frozen=True)
class Compute:
    """A stage computes for so long before its next operation."""

    duration_ns: int


@dataclass(frozen=True)
class Collective:
    """A stage's groups of a role do one operation of `size_bytes`, as the caller passes it."""

    role: str
    op: str
    size_bytes: int


@dataclass(frozen=True)
class Exchange:
    """Stage `boundary` and the next meet: activations forward, gradients backward, or both."""

    boundary: int
    size_bytes: int
    forward: bool
    backward: bool


Item: TypeAlias = Compute | Collective | Exchange
Direction = Literal["forward", "backward"]


@dataclass(frozen=True)
class Slot:
    """One operation of one family. `compute_ns` and each lane's op: one value a column.

    `channels` and `protocol` are NCCL's settings ("": what it chooses itself), `speed` what they
    leave of a link's bandwidth.
    """

    family: Family
    lanes: tuple[tuple[str, ...], ...]
    size_bytes: int
    compute_ns: tuple[float, ...]
    channels: int = 1
    protocol: str = ""
    speed: float = 1.0

    def shape(self, op: str, *, tree: bool, size_bytes: int | None = None) -> Shape:
        """The operation as NCCL runs it."""
        size = self.size_bytes if size_bytes is None else size_bytes
        return shape_of(op, size, self.family.size, tree, self.channels, self.protocol)

    @property
    def is_p2p(self) -> bool:
        return self.family.role == "pp"


def step_slots(
    scenario: TrainingScenario,
    cluster: Cluster,
    barrier: bool = False,
    fault: TrainingFault | None = None,
) -> tuple[Slot, ...]:
    """One training step; with a barrier before it if asked; under a fault of its settings."""
    programs = [list(_program(scenario, stage)) for stage in range(scenario.pp)]
    if barrier:
        wait = Collective("world", "AllReduce", BARRIER_BYTES)
        programs = [[wait, *program] for program in programs]
    slots = _merge(programs, cluster)
    if not fault:
        return tuple(replace(slot, channels=scenario.channels) for slot in slots)
    few = min(scenario.channels, 2 if fault.severity == 1 else 1)
    channels, protocol = (few, "") if fault.how == "channels" else (scenario.channels, "LL")
    speed = SETTINGS_SPEED[fault.severity]
    return tuple(replace(s, channels=channels, protocol=protocol, speed=speed) for s in slots)


def barrier_slot(cluster: Cluster) -> Slot:
    """A barrier of all ranks: an AllReduce below 4 bytes (CCL-D 4.2.1)."""
    world = cluster.families["world", -1]
    return Slot(world, (("AllReduce",) * world.size,), BARRIER_BYTES, (0.0,) * world.size)


def _program(scenario: TrainingScenario, stage: int) -> Iterator[Item]:
    yield from _pipeline(scenario, stage)
    if scenario.dp > 1:
        each = scenario.dp_bytes // scenario.dp_buckets if scenario.dp_buckets else 0
        for _ in range(scenario.dp_buckets):
            op = "ReduceScatter" if scenario.distributed_optimizer else "AllReduce"
            yield Collective("dp", op, each)
    yield Compute(scenario.optimizer_ns)
    if scenario.dp > 1 and scenario.distributed_optimizer:
        for _ in range(scenario.dp_buckets):
            yield Collective("dp", "AllGather", each // scenario.dp)
    yield Collective("world", "AllReduce", LOSS_BYTES)


def _pipeline(scenario: TrainingScenario, stage: int) -> Iterator[Item]:
    warm_up = min(scenario.pp - stage - 1, scenario.micro_batches)
    steady = scenario.micro_batches - warm_up

    def meet(boundary: int, forward: bool, backward: bool) -> list[Item]:
        inside = 0 <= boundary < scenario.pp - 1
        return [Exchange(boundary, scenario.pp_bytes, forward, backward)] if inside else []

    get_forward, put_forward = meet(stage - 1, True, False), meet(stage, True, False)
    get_backward, put_backward = meet(stage, False, True), meet(stage - 1, False, True)
    for _ in range(warm_up):
        yield from (*get_forward, *_layers(scenario, "forward"), *put_forward)
    if steady:
        yield from get_forward
    for index in range(steady):
        yield from _layers(scenario, "forward")
        yield from meet(stage, True, True)
        yield from _layers(scenario, "backward")
        yield from meet(stage - 1, True, True) if index < steady - 1 else put_backward
    for _ in range(warm_up):
        yield from (*get_backward, *_layers(scenario, "backward"), *put_backward)


def _layers(scenario: TrainingScenario, direction: Direction) -> Iterator[Item]:
    """One micro-batch through a stage: computation cut by its groups' operations."""
    whole = scenario.forward_ns * (1 if direction == "forward" else 2)
    cuts: list[Item] = []
    if scenario.tp > 1:
        cuts += [Collective("tp", "AllReduce", scenario.tp_bytes)] * scenario.tp_operations
    if scenario.ep > 1:
        # Dispatch and combine around the experts in the middle of the stage.
        middle = len(cuts) // 2
        cuts[middle:middle] = [Collective("ep", "AllToAll", scenario.ep_bytes)] * 2
    for cut in cuts:
        yield Compute(whole // (len(cuts) + 1))
        yield cut
    yield Compute(whole // (len(cuts) + 1))


def _merge(programs: list[list[Item]], cluster: Cluster) -> Iterator[Slot]:
    """All stages' programs as one list: a slot comes when every stage it joins has reached it."""
    at = [0] * len(programs)
    pending = [0.0] * len(programs)

    def head(stage: int) -> Item | None:
        return programs[stage][at[stage]] if at[stage] < len(programs[stage]) else None

    def take(stages: tuple[int, ...], role: str, item: Collective | Exchange) -> Slot:
        slot = _slot(cluster, role, stages, item, [pending[stage] for stage in stages])
        for stage in stages:
            at[stage] += 1
            pending[stage] = 0.0
        return slot

    everyone = tuple(range(len(programs)))
    while any(head(stage) is not None for stage in everyone):
        for stage in everyone:
            while (item := head(stage)) is not None:
                if isinstance(item, Compute):
                    pending[stage] += item.duration_ns
                    at[stage] += 1
                elif isinstance(item, Exchange):
                    if item.boundary != stage or head(stage + 1) != item:
                        break
                    yield take((stage, stage + 1), "pp", item)
                elif item.role == "world":
                    break
                else:
                    yield take((stage,), item.role, item)
        item = head(0)
        if isinstance(item, Collective) and all(head(stage) == item for stage in everyone):
            yield take(everyone, item.role, item)


def _slot(
    cluster: Cluster,
    role: str,
    stages: tuple[int, ...],
    item: Collective | Exchange,
    pending: list[float],
) -> Slot:
    if isinstance(item, Exchange):
        family = cluster.families["pp", item.boundary]
        both = (("Send", "Recv"), item.forward), (("Recv", "Send"), item.backward)
        lanes = tuple(lane for lane, there in both if there)
        return Slot(family, lanes, item.size_bytes, tuple(pending))
    family = cluster.families[role, -1 if role == "world" else stages[0]]
    per_stage = family.size // len(stages)
    compute = tuple(value for value in pending for _ in range(per_stage))
    return Slot(family, ((item.op,) * family.size,), item.size_bytes, compute)
