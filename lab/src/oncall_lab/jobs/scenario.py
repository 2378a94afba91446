"""A job by its program: how many ranks, what a step does, what is ordinary, how it is recorded."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

from oncall_lab.jobs.fault import JobFault
from oncall_lab.scenario import Scenario, below, quantity, unknown_words

PROGRAMS = (
    "ddp", "fsdp2", "zero3", "hsdp", "moe", "context_parallel", "interleaved", "zero_bubble",
    "reinforcement", "serving",
)  # fmt: skip
PIPELINES = ("interleaved", "zero_bubble")
# on_demand: while it runs, or long after it hung. watchdog: at its timeout. aborted: after it
# aborted the communicators, which ends what was in flight.
DUMPS = ("on_demand", "watchdog", "aborted")


@dataclass(frozen=True)
class JobScenario(Scenario):
    """One job, dumped once. The field `program` tells it from other kinds of scenario."""

    FAULT: ClassVar[type[JobFault]] = JobFault
    DICE: ClassVar[str] = "jobs "

    program: str = "ddp"
    ranks: int = 16
    gpus_per_host: int = 8
    # Ranks of an inner group: shards of HSDP, experts, a ring, stages, tensor-parallel ranks.
    group: int = 4
    steps: int = 30
    earlier_steps: int = 0  # before the recorded ones

    # A step.
    layers: int = 4  # or buckets of gradients
    micro_batches: int = 2
    forward_ns: int = quantity("60 ms")  # of a micro-batch on one rank; backward is twice that
    model_bytes: int = quantity("2 GiB")  # parameters and gradients of one rank
    nvlink_bytes_per_s: float = quantity("200 GB/s")
    network_bytes_per_s: float = quantity("40 GB/s")
    sync_every: int = 1  # steps between two readings of the loss
    gap_ns: int = quantity("0 s")  # serving: mean time without requests

    # What is ordinary.
    jitter: float = quantity("2 %")  # of every kernel and transfer
    uneven: float = quantity("5 %")  # of the length of samples, a step and replica
    imbalance: float = quantity("0 %")  # by design: hot experts, causal rings, the last stage
    load_ns: int = quantity("3 ms")  # the data loader, a step
    warm_up_steps: int = 2
    log_every: int = 10
    log_ns: int = quantity("5 ms")  # on rank 0
    evaluate_every: int = 0  # steps; 0: never
    checkpoint_every: int = 0
    checkpoint_ns: int = quantity("3 s")  # on rank 0, others wait in a barrier

    # How it is recorded.
    dump: str = "on_demand"
    # While it runs: when, as a share of the run. Else: time after the hang.
    dump_at: float = 0.9
    dump_after_ns: int = quantity("12 min")
    dump_spread_ns: int = quantity("80 ms")  # between the first dump and the last
    timeout_ns: int = quantity("10 min")
    aborted_share: float = 1.0  # of the ranks, which were dumped after the abort of their own
    timing: bool = False
    ring_entries: int = 2000
    clock_offset_ns: int = quantity("3 ms")  # hosts' clocks lie within plus or minus this

    faults: tuple[JobFault, ...] = ()

    @property
    def world_size(self) -> int:
        return self.ranks

    @property
    def nodes(self) -> int:
        return -(-self.ranks // self.gpus_per_host)

    def host_ranks(self, rank: int) -> range:
        """All ranks on the host of a rank."""
        first = rank - rank % self.gpus_per_host
        return range(first, min(first + self.gpus_per_host, self.ranks))

    def problems(self) -> Iterable[str]:
        yield from unknown_words(self, {"program": PROGRAMS, "dump": DUMPS})
        positive = ("gpus_per_host", "group", "steps", "layers", "micro_batches", "ring_entries")
        yield from below(self, 1, *positive, "sync_every", "log_every")
        yield from below(self, 2, "ranks")
        if self.ranks > 1024:
            yield f"{self.ranks:,} ranks are more than the 1,024 this simulates"
        if self.ranks % self.group:
            yield f"`group: {self.group}` does not divide the {self.ranks} ranks"
        odd = self.group < 2 or self.micro_batches % (2 * self.group)
        if self.program in PIPELINES and odd:
            yield "a pipeline has `group` 2 and more, and `micro_batches` a multiple of twice that"
        if min(self.nvlink_bytes_per_s, self.network_bytes_per_s, self.forward_ns) <= 0:
            yield "`forward`, `nvlink` and `network` must be positive"
        if not (0 < self.dump_at <= 1 and 0 <= self.aborted_share <= 1):
            yield "`dump_at` and `aborted_share` are shares"
        if len(self.faults) > 1:
            yield "one fault a job"
        for fault in self.faults:
            for rank in fault.ranks:
                if not 0 <= rank < self.ranks:
                    yield f"a fault on rank {rank}: the ranks are 0-{self.ranks - 1}"
            if fault.step >= self.steps:
                yield f"a fault in step {fault.step}: the steps are 0-{self.steps - 1}"
        if self.dump != "on_demand" and not any(fault.hangs for fault in self.faults):
            yield f"`dump: {self.dump}` comes after a hang only"
