"""A scenario of a pipeline: which model on which stages, how it is recorded, and what breaks.

Written as a small YAML mapping that names a `schedule` (docs/guide/simulate.md), or in Python.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

from oncall_lab.pipeline.fault import PipelineFault
from oncall_lab.pipeline.schedule import SCHEDULES
from oncall_lab.scenario import Scenario, below, quantity, unknown_nodes, unknown_words

RECORDERS = ("hooks", "calls", "tasks")


@dataclass(frozen=True)
class PipelineScenario(Scenario):
    """One simulated training by pipeline stages."""

    FAULT: ClassVar[type[PipelineFault]] = PipelineFault
    DICE: ClassVar[str] = "pipeline "

    job: str = "pipeline"
    iterations: int = 12
    observe_after_ns: int = quantity("5 min")  # how long a hang is watched

    # The job: ranks are numbered tensor first, then context, replicas, stages (Megatron-LM).
    schedule: str = "1F1B"
    chunks: int = 1  # interleaved: parts of the model on each stage
    tp: int = 2
    pp: int = 4
    dp: int = 2
    cp: int = 1
    ep: int = 1  # consecutive ranks of a stage that share experts
    gpus_per_node: int = 8
    layers: int = 8
    micro_batches: int = 8
    micro_batches_from: int = 0  # a batch-size ramp begins with so many; 0: no ramp
    ramp_every: int = 4  # iterations after which as many are added as it began with
    sequence_parallel: bool = False
    distributed_optimizer: bool = True  # ReduceScatter and AllGather instead of AllReduce
    overlap_gradients: bool = False  # reduce gradients during the last backward
    overlap_p2p: bool = False  # senders go on at once instead of waiting for the receiver

    # How long things take.
    forward_ns: int = quantity("40 ms")  # of a micro-batch on a stage; backward is twice that
    tp_bytes: int = quantity("32 MiB")
    pp_bytes: int = quantity("32 MiB")
    cp_bytes: int = quantity("16 MiB")
    ep_bytes: int = quantity("32 MiB")
    dp_bytes: int = quantity("512 MiB")  # gradients of a rank
    dp_buckets: int = 4  # that overlapped gradients are cut into
    optimizer_ns: int = quantity("30 ms")
    nvlink_bytes_per_s: float = quantity("200 GB/s")
    network_bytes_per_s: float = quantity("40 GB/s")
    latency_ns: int = quantity("20 us")
    jitter: float = quantity("2 %")  # of every computation and transfer
    warm_up_iterations: int = 2
    warm_up_factor: float = 2.0

    # Imbalance by design, and pauses that are nobody's fault.
    last_stage: float = quantity("0 %")  # how much longer the last stage computes
    long_sequences: float = quantity("0 %")  # spread of what micro-batches take
    routing: float = quantity("0 %")  # spread of what experts get
    garbage_every: int = 0  # iterations between collections of garbage; 0: never
    garbage_ns: int = quantity("300 ms")
    garbage_together: bool = True  # on all ranks in the same iteration
    evaluate_every: int = 0  # iterations between evaluations; 0: never
    checkpoint_every: int = 0
    checkpoint_ns: int = quantity("5 s")

    # How it is recorded. hooks: calls, and their times on the device. calls: when the host
    # called, alone. tasks: what the trainer itself says of its tasks.
    recorder: str = "hooks"
    configuration_stated: bool = True
    roles_recorded: bool = True
    host_ahead: bool = False  # the host enqueues all calls of a task as it begins
    holes: float = quantity("0 %")  # of calls that recorders lost, in runs
    starts_in: float = quantity("0 %")  # share of the first iteration before recording began
    clock_offset_ns: int = quantity("2 ms")
    clock_error_ns: int = quantity("100 us")
    clocks_measured: bool = True
    missing_nodes: tuple[int, ...] = ()  # indexes of nodes that never answered

    faults: tuple[PipelineFault, ...] = ()

    def problems(self) -> Iterable[str]:
        return _problems(self)

    @property
    def world_size(self) -> int:
        return self.tp * self.cp * self.dp * self.pp

    @property
    def lanes(self) -> int:
        """Pipelines side by side: of each replica, one a context-parallel rank."""
        return self.dp * self.cp

    @property
    def nodes(self) -> int:
        return -(-self.world_size // self.gpus_per_node)

    def micro_batches_in(self, iteration: int) -> int:
        """Micro-batches of an iteration: fewer at the beginning of a ramp."""
        if not self.micro_batches_from:
            return self.micro_batches
        steps = 1 + iteration // self.ramp_every
        return min(self.micro_batches, steps * self.micro_batches_from)


def _problems(s: PipelineScenario) -> Iterable[str]:
    yield from unknown_words(s, {"schedule": SCHEDULES, "recorder": RECORDERS})
    yield from below(
        s, 1, "tp", "pp", "dp", "cp", "ep", "chunks", "gpus_per_node", "layers", "micro_batches",
        "iterations", "ramp_every", "dp_buckets", "forward_ns", "warm_up_factor",
    )  # fmt: skip
    if s.world_size < 2 or s.world_size > 65_536:
        yield f"{s.world_size:,} ranks: from 2 to 65,536 can be simulated"
    if s.layers % (s.pp * s.chunks):
        yield f"`layers: {s.layers}` are not the same for {s.pp * s.chunks} parts of the model"
    if s.lanes % s.ep:
        yield f"`ep: {s.ep}` does not divide the {s.lanes} replicas of a stage"
    yield from _problems_of_interleaving(s)
    yield from below(
        s, 0, "jitter", "last_stage", "long_sequences", "routing", "holes", "starts_in"
    )
    if s.holes >= 1 or s.starts_in >= 1:
        yield "`holes` and `starts_in` are shares below 100 %"
    yield from unknown_nodes(s.missing_nodes, s.nodes)
    for fault in s.faults:
        yield from _problems_of_fault(s, fault)


def _problems_of_interleaving(s: PipelineScenario) -> Iterable[str]:
    if (s.schedule == "interleaved") != (s.chunks > 1):
        yield "`schedule: interleaved` has `chunks` of 2 and more, and no other has"
    if s.chunks > 1 and (s.pp < 3 or s.micro_batches % s.pp or s.micro_batches_from % s.pp):
        yield "`interleaved` needs three stages, and micro-batches that are a multiple of them"


def _problems_of_fault(s: PipelineScenario, fault: PipelineFault) -> Iterable[str]:
    if fault.rank >= s.world_size:
        yield f"a fault on rank {fault.rank}: the ranks are 0-{s.world_size - 1}"
    if fault.iteration >= s.iterations:
        yield f"a fault in iteration {fault.iteration}: they are 0-{s.iterations - 1}"
        return
    if fault.chunk >= s.chunks or fault.micro_batch >= s.micro_batches_in(fault.iteration):
        yield (
            f"a fault in micro-batch {fault.micro_batch} of chunk {fault.chunk}: there are "
            f"{s.micro_batches_in(fault.iteration)} and {s.chunks}"
        )
    if fault.strikes_once and fault.transmits:
        virtual = fault.chunk * s.pp + fault.rank // (s.tp * s.lanes)
        end = s.pp * s.chunks - 1 if fault.task == "forward_send" else 0
        if virtual == end:
            yield f"rank {fault.rank} has no {fault.task} in chunk {fault.chunk}: it is at the end"
