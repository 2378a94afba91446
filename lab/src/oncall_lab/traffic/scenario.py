"""A scenario of microsecond traffic: which job, on what links, measured how, and what breaks.

Written as a small YAML mapping that names a `workload` (docs/guide/simulate.md), or in Python.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

from oncall_lab.scenario import Scenario, below, quantity, unknown_nodes, unknown_words
from oncall_lab.traffic.fault import TrafficFault

WORKLOADS = ("gpt2", "mixtral", "neighbour_exchange", "all_to_one", "one_to_all")
SOURCES = ("dpa", "wr", "proxy")
ALGORITHMS = ("ring", "tree")


@dataclass(frozen=True)
class TrafficScenario(Scenario):
    """One simulated job and its traffic between nodes.

    Volumes and computations are scaled down together, to about a tenth of a real iteration: an
    operation still has some hundred slices, many times what its buffers hold.
    """

    FAULT: ClassVar[type[TrafficFault]] = TrafficFault
    DICE: ClassVar[str] = "traffic "

    job: str = "traffic"
    workload: str = "gpt2"
    iterations: int = 10
    observe_after_ns: int = quantity("3 s")  # how long a hang is watched

    # The job; 0: what the workload has in Pulse 8.1.
    tp: int = 0
    pp: int = 0
    dp: int = 0  # of mixtral, also the size of the expert-parallel groups
    micro_batches: int = 4
    forward_ns: int = quantity("20 ms")  # of a micro-batch on a stage; backward is twice that
    dp_bytes: int = quantity("512 MiB")  # gradients of a rank
    dp_buckets: int = 1  # operations that the gradients are cut into, one right after the other
    pp_bytes: int = quantity("16 MiB")
    ep_bytes: int = quantity("48 MiB")  # tokens of a rank in one all-to-all
    exchange_bytes: int = quantity("64 MiB")  # to each peer, where there is no training
    imbalance: float = 0.35  # spread of the routing to experts; 0: even
    distributed_optimizer: bool = True  # ReduceScatter and AllGather instead of AllReduce
    algorithm: str = "ring"  # of an AllReduce of gradients

    # The links, and how NCCL uses them.
    network_bytes_per_s: float = quantity("400 Gbit/s")
    channels: int = 2
    slice_bytes: int = quantity("1 MiB")
    buffer_slices: int = 4  # of a channel, at the receiver
    jitter: float = quantity("2 %")

    # How it is measured.
    epoch_ns: int = quantity("32 us")
    source: str = "dpa"
    headers: float = quantity("1.5 %")  # of packets, which the NIC counts, too
    retransmissions: float = quantity("0.1 %")  # of the payload
    sync_messages: bool = True  # receivers tell senders that buffers are free
    lost_epochs: float = quantity("0 %")  # in runs, flagged as undercount
    device_times: bool = False  # and proxy steps, from a plugin: Pulse sees host calls and traffic
    op_traffic: bool = False  # write what a node finds by segmentation, from the truth
    hosts: bool = True  # CPU of every host
    missing_nodes: tuple[int, ...] = ()  # indexes of nodes that never answered
    clock_offset_ns: int = quantity("100 us")
    clock_error_ns: int = quantity("10 us")

    faults: tuple[TrafficFault, ...] = ()

    def __post_init__(self) -> None:
        for name, default in zip(("tp", "pp", "dp"), _sizes(self.workload), strict=True):
            if not getattr(self, name):
                object.__setattr__(self, name, default)
        super().__post_init__()

    def problems(self) -> Iterable[str]:
        return _problems(self)

    @property
    def world_size(self) -> int:
        return self.tp * self.pp * self.dp

    @property
    def trains(self) -> bool:
        """Is it a training, rather than one collective over and over?"""
        return self.workload in ("gpt2", "mixtral")

    @property
    def gpus_per_node(self) -> int:
        return self.tp

    @property
    def nodes(self) -> int:
        return self.world_size // self.gpus_per_node


def _sizes(workload: str) -> tuple[int, int, int]:
    """Tensor-parallel ranks, pipeline stages and replicas of Pulse 8.1; 0, 0, 0 if unknown."""
    if workload not in WORKLOADS:
        return 1, 1, 2
    return {"gpt2": (8, 2, 4), "mixtral": (8, 1, 4)}.get(workload, (1, 1, 4))


def _problems(s: TrafficScenario) -> Iterable[str]:
    yield from unknown_words(s, {"workload": WORKLOADS, "source": SOURCES, "algorithm": ALGORITHMS})
    yield from below(
        s, 1, "iterations", "channels", "micro_batches", "slice_bytes", "epoch_ns", "dp_buckets"
    )
    if min(s.tp, s.pp) < 1 or s.dp < 2:
        yield "`tp` and `pp` are at least 1 and `dp` at least 2: between nodes there is no traffic"
    if s.world_size > 4096:
        yield f"{s.world_size:,} ranks are more than the 4,096 whose microseconds are simulated"
    if not s.trains and (s.tp, s.pp) != (1, 1):
        yield f"`{s.workload}` has one GPU a node: only `dp` can be set"
    if s.workload == "neighbour_exchange" and s.dp < 4:
        yield "`neighbour_exchange` needs four ranks: `dp: 4`"
    if s.buffer_slices < 3:
        yield "`buffer_slices` is at least 3: a ring passes on two slices at a time"
    if s.algorithm == "tree" and s.channels % 2:
        yield "`algorithm: tree` has two trees: `channels` is even"
    for name in ("headers", "retransmissions", "lost_epochs"):
        if not 0 <= getattr(s, name) < 0.5:
            yield f"`{name}` is a share below 50 %"
    yield from below(s, 0, "imbalance", "jitter")
    yield from unknown_nodes(s.missing_nodes, s.nodes)
    for fault in s.faults:
        if fault.rank >= s.world_size:
            yield f"a fault on rank {fault.rank}: the ranks are 0-{s.world_size - 1}"
        if fault.iteration >= s.iterations:
            yield f"a fault in iteration {fault.iteration}: they are 0-{s.iterations - 1}"
        if fault.kind == "moe_imbalance" and s.workload != "mixtral":
            yield "moe_imbalance is of `workload: mixtral`"
