"""A training by tensor, pipeline, data and expert parallelism: its cluster, steps and recorders."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar, get_args

from oncall_lab.scenario import Scenario, below, quantity, unknown_nodes, unknown_words
from oncall_lab.training.fault import ROLES, TrainingFault

RECORDERS = ("patched", "hooks")
PING_CLOCKS = ("nic", "kernel", "program")
MEASURED_TABLES = (
    "nics", "nic_priorities", "gpus", "hosts", "host_processes", "devices", "links", "pings",
    "host_events",
)  # fmt: skip
_CHOICES = {
    "recorder": RECORDERS,
    "ping_clock": PING_CLOCKS,
    "unseen": MEASURED_TABLES,
    "tree": get_args(ROLES),
}


@dataclass(frozen=True)
class TrainingScenario(Scenario):
    """One simulated training job, operation by operation."""

    FAULT: ClassVar[type[TrainingFault]] = TrainingFault

    duration_ns: int = quantity("5 min")  # of training, if nothing hangs
    observe_after_ns: int = quantity("10 min")  # how long a hang is watched

    # The cluster: tensor-parallel ranks are neighbours, then data-parallel, then stages.
    tp: int = 2
    pp: int = 2
    dp: int = 4
    ep: int = 1  # consecutive ranks of a stage, as Megatron with expert-tensor size 1
    gpus_per_node: int = 8
    nvlink_bytes_per_s: float = quantity("200 GB/s")
    network_bytes_per_s: float = quantity("40 GB/s")
    latency_ns: int = quantity("20 us")
    channels: int = 4
    tree: tuple[str, ...] = ()  # roles whose AllReduce runs on a tree instead of a ring

    # The training step.
    micro_batches: int = 4
    forward_ns: int = quantity("120 ms")  # of one micro-batch on one stage; backward is twice that
    tp_operations: int = 2  # per micro-batch and direction
    tp_bytes: int = quantity("128 MiB")
    pp_bytes: int = quantity("32 MiB")
    ep_bytes: int = quantity("64 MiB")
    dp_bytes: int = quantity("1 GiB")
    dp_buckets: int = 1
    distributed_optimizer: bool = True  # ReduceScatter and AllGather instead of AllReduce
    optimizer_ns: int = quantity("40 ms")
    barrier_every: int = 0  # steps; 0: only after checkpoints

    # What is ordinary: jitter, slow first steps, pauses, late data.
    jitter: float = quantity("2 %")  # of every computation and transfer
    warm_up_steps: int = 3
    warm_up_factor: float = 2.0
    checkpoint_every_ns: int = quantity("0 s")  # 0: never
    checkpoint_ns: int = quantity("15 s")
    hiccup_every_ns: int = quantity("0 s")  # mean time between late batches; 0: never
    hiccup_ns: int = quantity("600 ms")
    burst_every_ns: int = quantity("0 s")  # mean time between spells of jitter; 0: never
    burst_ns: int = quantity("5 s")

    # How it is seen.
    # patched: CCL-D's own NCCL, which counts the steps of every rank. hooks: ours on stock NCCL,
    # which see the transfers over the network only, and write what is in flight at every seal.
    recorder: str = "patched"
    seal_every_ns: int = quantity("20 s")  # hooks
    answers_within_ns: int = quantity("0 s")  # hooks: how far apart nodes were asked
    clock_offset_ns: int = quantity("2 ms")  # nodes' clocks lie within plus or minus this
    clock_drift_ppm: float = 0.5
    clock_error_ns: int = quantity("200 us")  # of the console's measurement of an offset
    holes: float = quantity("0 %")  # of completed operations that the recorders lost
    missing_nodes: tuple[int, ...] = ()  # indexes of nodes that never answered

    # What is measured around the training; faults of devices and hosts imply it.
    measured: bool = False
    unseen: tuple[str, ...] = ()  # tables of measurements that nobody collected
    links_known: bool = False  # does a topology file say how NICs are cabled?
    ping_clock: str = "nic"  # who stamps network probes

    faults: tuple[TrainingFault, ...] = ()

    @property
    def world_size(self) -> int:
        return self.tp * self.pp * self.dp

    @property
    def nodes(self) -> int:
        return -(-self.world_size // self.gpus_per_node)

    @property
    def is_measured(self) -> bool:
        """Are NICs, GPUs and hosts measured, too?"""
        return self.measured or any(fault.is_measured for fault in self.faults)

    def problems(self) -> Iterable[str]:
        positive = ("tp", "pp", "dp", "ep", "gpus_per_node", "channels", "micro_batches")
        yield from below(self, 1, *positive)
        yield from below(self, 0, "tp_operations", "dp_buckets", "warm_up_steps", "barrier_every")
        if self.world_size > 65_536:
            yield f"{self.world_size:,} ranks are more than the 65,536 this simulates"
        if self.world_size < 2:
            yield "one rank has no other to wait for; raise tp, pp or dp"
        if (self.tp * self.dp) % self.ep:
            yield f"`ep: {self.ep}` does not divide the {self.tp * self.dp} ranks of a stage"
        if not 0 <= self.holes < 1:
            yield f"`holes: {self.holes}` is a share below 100 %"
        if self.forward_ns <= 0 or self.duration_ns <= 0:
            yield "`forward` and `duration` must be positive"
        if min(self.nvlink_bytes_per_s, self.network_bytes_per_s) <= 0:
            yield "`nvlink` and `network` must be positive"
        if self.seal_every_ns <= 0 or self.answers_within_ns < 0:
            yield "`seal_every` is positive, and `answers_within` not negative"
        yield from unknown_words(self, _CHOICES)
        yield from unknown_nodes(self.missing_nodes, self.nodes)
        for fault in self.faults:
            for rank in fault.ranks:
                if not 0 <= rank < self.world_size:
                    yield f"a fault on rank {rank}: the ranks are 0-{self.world_size - 1}"
            if fault.role in ("tp", "pp", "dp", "ep") and getattr(self, fault.role) == 1:
                yield f"a fault in {fault.role}, which has one rank here"
