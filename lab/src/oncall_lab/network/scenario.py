"""A scenario of a network: a fat tree, a collective on it, and what gets into its way.

Written as a small YAML mapping that names a `fat_tree` (docs/guide/simulate.md), or in Python.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

from oncall_lab.scenario import Fault, Scenario, below, quantity, unknown_words

ALGORITHMS = {
    "ring": ("AllGather", "AllReduce", "ReduceScatter"),
    "halving_doubling": ("AllReduce",),
}
FAULTS = (
    "CONTENTION", "INCAST", "PFC_STORM", "PFC_BACKPRESSURE", "PFC_LOOP_DEADLOCK",
    "FORWARDING_LOOP", "LOAD_IMBALANCE", "SLOW_RECEIVER",
)  # fmt: skip
REPORTS = ("always", "asked", "never")
STEPS = ("recorded", "traffic")
PLACEMENTS = ("packed", "scattered")


@dataclass(frozen=True)
class NetworkFault(Fault):
    """One thing that happens. Where it does, and what is 0 here, is drawn from the seed."""

    KINDS: ClassVar[Iterable[str]] = FAULTS

    at_ns: int = quantity("3 ms")  # after the collective begins
    count: int = 0  # CONTENTION: flows; INCAST, PFC_BACKPRESSURE: senders
    bytes: int = quantity("0 B")  # of each flow
    lasting_ns: int = quantity("0 s")  # PFC_STORM, SLOW_RECEIVER

    def problems(self) -> Iterable[str]:
        if min(self.at_ns, self.count, self.bytes, self.lasting_ns) < 0:
            yield "`at`, `count`, `bytes` and `lasting` are not negative"


@dataclass(frozen=True)
class NetworkScenario(Scenario):
    """One collective on a network."""

    FAULT: ClassVar[type[NetworkFault]] = NetworkFault

    job: str = "network"

    # The network.
    fat_tree: int = 4  # k: 16 hosts for 4, 54 for 6, 128 for 8
    network_bytes_per_s: float = quantity("100 Gbit/s")
    xoff_bytes: int = quantity("400 KB")  # of a link at the switch it leads to: pause its sender
    xon_bytes: int = quantity("200 KB")  # go on
    marking_bytes: int = quantity("300 KB")  # queue above which packets are marked (ECN)
    congestion_control: bool = True  # senders heed marks

    # The collective.
    members: int = 8
    hosts: tuple[int, ...] = ()  # where its members run, in order; else drawn
    placement: str = "scattered"  # packed: neighbours in the ring are neighbours in the tree
    algorithm: str = "ring"
    op: str = "AllGather"
    step_bytes: int = quantity("60 MB")  # the largest step
    skew_ns: int = quantity("200 us")  # members enter it within this
    overhead_ns: int = quantity("20 us")  # of a host, at most, before each step
    jitter: float = quantity("1 %")  # of line rate, by which a step may be slower
    innocent: int = 0  # flows of others that pass no port of the collective

    # How it is seen.
    epoch_ns: int = quantity("1 ms")
    # Switches report; asked: only where and when a sender noticed that it is late; never: what is
    # known is what hosts' NICs count.
    reports: str = "always"
    asks: int = 3  # of a sender in one late step
    expectation: bool = True  # hosts tell what a step should take
    pauses: bool = True  # pauses are reported one by one
    nics_every_ns: int = quantity("250 ms")  # hosts' NICs are read; only where switches are silent
    steps: str = "recorded"  # traffic: hosts record operations and the epochs in which they sent

    faults: tuple[NetworkFault, ...] = ()

    def problems(self) -> Iterable[str]:
        return _problems(self)

    @property
    def world_size(self) -> int:
        return len(self.hosts) or self.members


def _problems(s: NetworkScenario) -> Iterable[str]:
    if s.fat_tree not in (4, 6, 8, 10, 12, 16):
        yield f"`fat_tree: {s.fat_tree}` is none of 4, 6, 8, 10, 12, 16"
    hosts = s.fat_tree**3 // 4
    if not 2 <= s.world_size <= hosts:
        yield f"`members: {s.world_size}` are not 2 to {hosts}, the hosts of the tree"
    if len(set(s.hosts)) < len(s.hosts) or not all(0 <= host < hosts for host in s.hosts):
        yield f"`hosts` are different ones of 0-{hosts - 1}"
    yield from unknown_words(
        s,
        {"algorithm": ALGORITHMS, "placement": PLACEMENTS, "reports": REPORTS, "steps": STEPS},
    )
    if s.op not in ALGORITHMS[s.algorithm]:
        yield f"`op: {s.op}`: {s.algorithm} does {', '.join(ALGORITHMS[s.algorithm])}"
    elif s.algorithm == "halving_doubling" and s.world_size & (s.world_size - 1):
        yield f"halving_doubling takes a power of two, not {s.world_size} members"
    if s.steps == "traffic" and (s.algorithm != "ring" or s.reports != "never"):
        yield "`steps: traffic` is of a ring, with `reports: never`"
    yield from below(s, 1, "asks")
    if min(s.network_bytes_per_s, s.step_bytes, s.epoch_ns, s.nics_every_ns) <= 0:
        yield "`network`, `step_bytes`, `epoch` and `nics_every` must be positive"
    if not 0 < s.xon_bytes < s.xoff_bytes:
        yield "`xon_bytes` lies between 0 and `xoff_bytes`"
    if not 0 <= s.jitter < 1:
        yield f"`jitter: {s.jitter}` is a share below 100 %"
