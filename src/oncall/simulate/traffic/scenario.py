"""A scenario of microsecond traffic: which job, on what links, measured how, and what breaks.

Written as a small YAML mapping that names a `workload` (docs/guide/simulate.md), or in Python.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from oncall.core.errors import UsageError
from oncall.core.units import parse_quantity
from oncall.simulate.scenario import read_fields
from oncall.simulate.traffic.fault import TrafficFault

WORKLOADS = ("gpt2", "mixtral", "neighbour_exchange", "all_to_one", "one_to_all")
SOURCES = ("dpa", "wr", "proxy")
ALGORITHMS = ("ring", "tree")


def _quantity(text: str) -> Any:
    quantity = parse_quantity(text)
    return field(default=quantity.value, metadata={"dimension": quantity.dimension})


@dataclass(frozen=True)
class TrafficScenario:
    """One simulated job and its traffic between nodes. Equal scenarios give equal rows.

    Volumes and computations are scaled down together, to about a tenth of a real iteration: an
    operation still has some hundred slices, many times what its buffers hold.
    """

    job: str = "traffic"
    seed: int = 0
    workload: str = "gpt2"
    iterations: int = 10
    observe_after_ns: int = _quantity("3 s")  # how long a hang is watched

    # The job; 0: what the workload has in Pulse 8.1.
    tp: int = 0
    pp: int = 0
    dp: int = 0  # of mixtral, also the size of the expert-parallel groups
    micro_batches: int = 4
    forward_ns: int = _quantity("20 ms")  # of a micro-batch on a stage; backward is twice that
    dp_bytes: int = _quantity("512 MiB")  # gradients of a rank
    dp_buckets: int = 1  # operations that the gradients are cut into, one right after the other
    pp_bytes: int = _quantity("16 MiB")
    ep_bytes: int = _quantity("48 MiB")  # tokens of a rank in one all-to-all
    exchange_bytes: int = _quantity("64 MiB")  # to each peer, where there is no training
    imbalance: float = 0.35  # spread of the routing to experts; 0: even
    distributed_optimizer: bool = True  # ReduceScatter and AllGather instead of AllReduce
    algorithm: str = "ring"  # of an AllReduce of gradients

    # The links, and how NCCL uses them.
    network_bytes_per_s: float = _quantity("400 Gbit/s")
    channels: int = 2
    slice_bytes: int = _quantity("1 MiB")
    buffer_slices: int = 4  # of a channel, at the receiver
    jitter: float = _quantity("2 %")

    # How it is measured.
    epoch_ns: int = _quantity("32 us")
    source: str = "dpa"
    headers: float = _quantity("1.5 %")  # of packets, which the NIC counts, too
    retransmissions: float = _quantity("0.1 %")  # of the payload
    sync_messages: bool = True  # receivers tell senders that buffers are free
    lost_epochs: float = _quantity("0 %")  # in runs, flagged as undercount
    device_times: bool = False  # and proxy steps, from a plugin: Pulse sees host calls and traffic
    op_traffic: bool = False  # write what a node finds by segmentation, from the truth
    hosts: bool = True  # CPU of every host
    missing_nodes: tuple[int, ...] = ()  # indexes of nodes that never answered
    clock_offset_ns: int = _quantity("100 us")
    clock_error_ns: int = _quantity("10 us")

    faults: tuple[TrafficFault, ...] = ()

    def __post_init__(self) -> None:
        for name, usual in zip(("tp", "pp", "dp"), _sizes(self.workload), strict=True):
            if not getattr(self, name):
                object.__setattr__(self, name, usual)
        for problem in _problems(self):
            raise UsageError(f"scenario: {problem}")

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

    @classmethod
    def from_mapping(cls, mapping: Mapping[str, Any]) -> TrafficScenario:
        """A scenario from the keys and quantities of its YAML. Raises UsageError naming the key."""
        values = read_fields(cls, mapping, place="scenario", skip=("faults",))
        listed = mapping.get("faults") or ()
        if not isinstance(listed, (list, tuple)):
            raise UsageError("scenario: `faults` is a list, one mapping a fault")
        return cls(**values, faults=tuple(_fault(item) for item in listed))


def _fault(mapping: Any) -> TrafficFault:
    if not isinstance(mapping, Mapping):
        raise UsageError("faults: each one is a mapping such as {fault: congestion, rank: 9}")
    return TrafficFault(**read_fields(TrafficFault, mapping, place="faults"))


def _sizes(workload: str) -> tuple[int, int, int]:
    """Tensor-parallel ranks, pipeline stages and replicas of Pulse 8.1; 0, 0, 0 if unknown."""
    if workload not in WORKLOADS:
        return 1, 1, 2
    return {"gpt2": (8, 2, 4), "mixtral": (8, 1, 4)}.get(workload, (1, 1, 4))


def _problems(s: TrafficScenario) -> Iterable[str]:
    if s.workload not in WORKLOADS:
        yield f"`workload: {s.workload}` is none of {', '.join(WORKLOADS)}"
    for key, value, known in (
        ("source", s.source, SOURCES),
        ("algorithm", s.algorithm, ALGORITHMS),
    ):
        if value not in known:
            yield f"`{key}: {value}` is none of {', '.join(known)}"
    for name in (
        "iterations",
        "channels",
        "micro_batches",
        "slice_bytes",
        "epoch_ns",
        "dp_buckets",
    ):
        if getattr(s, name) < 1:
            yield f"`{name}` must be at least 1"
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
    if s.imbalance < 0 or s.jitter < 0:
        yield "`imbalance` and `jitter` are not negative"
    for node in s.missing_nodes:
        if not 0 <= node < s.nodes:
            yield f"`missing_nodes: {node}`: the nodes are 0-{s.nodes - 1}"
    for fault in s.faults:
        if fault.rank >= s.world_size:
            yield f"a fault on rank {fault.rank}: the ranks are 0-{s.world_size - 1}"
        if fault.iteration >= s.iterations:
            yield f"a fault in iteration {fault.iteration}: they are 0-{s.iterations - 1}"
        if fault.kind == "moe_imbalance" and s.workload != "mixtral":
            yield "moe_imbalance is of `workload: mixtral`"
