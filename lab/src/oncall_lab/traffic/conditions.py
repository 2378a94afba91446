"""The condition of every rank's links, proxy threads and GPU, and what failures make of it.

Numbers that a paper gives are taken from it; the others are ours, and say why.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from oncall_lab.arrays import Bools, Columns, Floats, Ints
from oncall_lab.traffic.fault import OF_A_NODE, TrafficFault
from oncall_lab.traffic.scenario import TrafficScenario
from oncall_lab.training.cluster import Cluster

GOODPUT = 0.96  # of line rate, as NCCL gets it (TFD 2.3)
PCIE_OVER_NETWORK = 1.1  # what Gen5 x16 carries against a 400 Gbit/s port
FULL_POWER_W = 700.0
# Clocks fall more slowly than power, as voltage falls with them: half the power leaves about two
# thirds of the speed.
POWER_EXPONENT = 0.55
US = 1e3
MS = 1e6


@dataclass(frozen=True)
class Links(Columns):
    """What carries a rank's traffic; arrays of one shape, usually (ranks,) or (groups, ranks).

    egress, ingress: bytes/ns of payload that its NIC sends and its host takes. unsteady: spread
    (of the logarithm) of its egress from slice to slice. preempted: share of slices before whose
    post the proxy thread loses its core, for `preempted_ns` on average; proxy_ns: what it takes
    for each. down_ns: when its NIC is disabled.
    """

    egress: Floats
    ingress: Floats
    unsteady: Floats
    preempted: Floats
    preempted_ns: Floats
    proxy_ns: Floats
    down_ns: Floats

    def proxy_delays(self, rng: np.random.Generator, posts: int) -> Floats:
        """(posts, ...): how long the proxy thread keeps each post waiting, ns."""
        shape = (posts, *self.proxy_ns.shape)
        plain = self.proxy_ns * np.exp(0.3 * rng.standard_normal(shape))
        lost = rng.random(shape) < self.preempted
        return plain + np.where(lost, self.preempted_ns * rng.standard_exponential(shape), 0.0)


class Conditions:
    """Changes as iterations begin; `links` and `compute` are read in between."""

    def __init__(self, scenario: TrafficScenario, cluster: Cluster) -> None:
        self.scenario = scenario
        self.cluster = cluster
        n = cluster.world_size
        rate = scenario.network_bytes_per_s / 1e9 * GOODPUT
        self.links = Links(
            egress=np.full(n, rate),
            # The host takes a little more than the port brings.
            ingress=np.full(n, rate * PCIE_OVER_NETWORK),
            unsteady=np.full(n, scenario.jitter),
            # A sound host: interrupts and other threads now and then.
            preempted=np.full(n, 3e-4),
            preempted_ns=np.full(n, 60 * US),
            proxy_ns=np.full(n, 1.5 * US),
            down_ns=np.full(n, np.inf),
        )
        self.compute: Floats = np.ones(n)  # factor of computing time
        self.stopped: Bools = np.zeros(n, dtype=np.bool_)  # enters nothing any more
        self.imbalance = scenario.imbalance
        self.since_ns: dict[TrafficFault, float] = {}
        self.nics_to_disable: list[TrafficFault] = []

    def strike(self, fault: TrafficFault, now_ns: float) -> None:
        """A failure sets in; a NIC goes down only in its next operation."""
        if fault.kind == "nic_down":
            self.nics_to_disable.append(fault)
        else:
            self.since_ns[fault] = now_ns
            self._act(fault)

    def ranks_of(self, fault: TrafficFault) -> Ints:
        """The ranks it acts on: one, or all of its node."""
        if fault.kind == "moe_imbalance":
            return np.empty(0, dtype=np.int64)
        if fault.kind in OF_A_NODE:
            nodes = self.cluster.nodes
            return np.flatnonzero(nodes == nodes[fault.rank])
        return np.array([fault.rank])

    def disable_nic(self, fault: TrafficFault, at_ns: float) -> None:
        """The NIC of this failure goes down at this moment, in an operation under way."""
        self.links.down_ns[fault.rank] = at_ns
        self.since_ns[fault] = at_ns
        self.nics_to_disable.remove(fault)

    def _act(self, fault: TrafficFault) -> None:
        links, at = self.links, self.ranks_of(fault)
        match fault.kind:
            case "congestion":
                # One path, from a sender; congestion control hunts for its share of it.
                self._narrow(at, fault.bandwidth, ingress=1.0)
                links.unsteady[at] = 0.12
            case "pcie_contention":
                self._narrow(at, fault.bandwidth)
                links.unsteady[at] = 0.08
            case "pcie_downgrade":
                self._narrow(at, min(1.0, fault.bandwidth * PCIE_OVER_NETWORK))
            case "misaligned_memory":
                # Every write touches one cache line more at either end (Pulse, Figure 36).
                self._narrow(at, fault.bandwidth)
                links.unsteady[at] = 0.05
            case "cross_numa":
                # Over the link between sockets, with whatever else goes there (Pulse D.2:
                # fluctuation rather than a lower rate).
                self._narrow(at, 0.65)
                links.unsteady[at] = 0.45
            case "cpu_contention":
                # As many runnable threads as cores: the thread waits a time slice or two of the
                # scheduler, the more often the fewer cores are free.
                links.preempted[at] = 0.012 if fault.cpu_busy < 0.95 else 0.03
                links.preempted_ns[at] = 1.5 * MS
                links.proxy_ns[at] = 4 * US
            case "cpu_throttling":
                # A third of the clock: each pass over all connections takes longer, and what
                # wakes up does so late.
                links.preempted[at] = 0.03
                links.preempted_ns[at] = 0.7 * MS
                links.proxy_ns[at] = 8 * US
            case "gpu_throttling":
                self.compute[at] = (FULL_POWER_W / fault.power_w) ** POWER_EXPONENT
            case "gpu_error" | "cuda_error":
                self.stopped[at] = True
            case "moe_imbalance":
                # The busiest expert gets about 1.7 times what the median one gets.
                self.imbalance = 2.0

    def _narrow(self, at: Ints, egress: float, ingress: float | None = None) -> None:
        """Leave these shares of their links. What a NIC reads from its GPU is asked for first and
        crosses the bus twice, what it writes once: of a bad bus receivers feel half as much as
        senders (Pulse 7.2.5, D.1: only the rank's own sending is slow)."""
        if ingress is None:
            ingress = 1 - (1 - egress) / 2
        star = {"all_to_one": (egress, 1.0), "one_to_all": (1.0, egress)}
        if self.scenario.workload in star and at[0] != 0:
            # A leaf uses but a part of its link; the path's share is of that part (D.11, D.12).
            egress, ingress = (x / (self.scenario.dp - 1) if x < 1 else x
                               for x in star[self.scenario.workload])  # fmt: skip
        self.links.egress[at] *= egress
        self.links.ingress[at] *= ingress
