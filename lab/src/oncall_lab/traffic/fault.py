"""The twelve failures of Pulse's Table 3, with the severities of its Table 4."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Final

from oncall_lab.scenario import Fault

# What Pulse calls each of them (Tables 2 and 4, section 6.2).
COMM_FAIL_SLOW: Final = "comm fail-slow"
COMM_FAIL_STOP: Final = "comm fail-stop"
COMP_FAIL_SLOW: Final = "comp fail-slow"
COMP_FAIL_STOP: Final = "comp fail-stop"
CPU_BOTTLENECK: Final = "cpu bottleneck"
NONE: Final = "none"

CLASSES: Mapping[str, str] = {
    "congestion": COMM_FAIL_SLOW,
    "cpu_contention": CPU_BOTTLENECK,
    "nic_down": COMM_FAIL_STOP,
    "moe_imbalance": NONE,
    "pcie_contention": COMM_FAIL_SLOW,
    "gpu_throttling": COMP_FAIL_SLOW,
    "gpu_error": COMP_FAIL_STOP,
    "cuda_error": COMP_FAIL_STOP,
    "cpu_throttling": CPU_BOTTLENECK,
    "pcie_downgrade": COMM_FAIL_SLOW,
    "cross_numa": COMM_FAIL_SLOW,
    "misaligned_memory": COMM_FAIL_SLOW,
}
# Those that act on a whole node rather than on one rank's GPU or NIC.
OF_A_NODE = ("cpu_contention", "cpu_throttling", "cross_numa")
_WITH_BANDWIDTH = ("congestion", "pcie_contention", "pcie_downgrade", "misaligned_memory")


@dataclass(frozen=True)
class TrafficFault(Fault):
    """One failure, from the beginning of an iteration on; what stops a rank, within it.

    `bandwidth` is the share that is left of a path or PCIe link, `power_w` a GPU's power limit
    (700 W when sound), `cpu_busy` the share of cores that others occupy.
    """

    KINDS: ClassVar[Iterable[str]] = tuple(CLASSES)
    USED_BY: ClassVar[Mapping[str, Iterable[str]]] = {
        "bandwidth": _WITH_BANDWIDTH,
        "power_w": ("gpu_throttling",),
        "cpu_busy": ("cpu_contention",),
    }

    rank: int = 0
    iteration: int = 3  # counted from 0
    bandwidth: float = field(default=0.5, metadata={"dimension": "ratio"})
    power_w: float = 350.0
    cpu_busy: float = field(default=1.0, metadata={"dimension": "ratio"})

    def problems(self) -> Iterable[str]:
        if self.rank < 0 or self.iteration < 0:
            yield "`rank` and `iteration` are not negative"
        if not 0 < self.bandwidth <= 1 or not 0 < self.cpu_busy <= 1:
            yield "`bandwidth` and `cpu_busy` are shares up to 100 %"
        if self.power_w <= 0:
            yield "`power_w` is positive"

    @property
    def pulse_class(self) -> str:
        """What Pulse's analyzer is to call it."""
        return CLASSES[self.kind]

    @property
    def stops(self) -> bool:
        """Does it stop the job rather than slow it?"""
        return self.pulse_class in (COMM_FAIL_STOP, COMP_FAIL_STOP)

    @property
    def severity(self) -> float | None:
        """In the unit of Table 4; None where there is but one."""
        if self.kind in _WITH_BANDWIDTH:
            return self.bandwidth
        return {"gpu_throttling": self.power_w, "cpu_contention": self.cpu_busy}.get(self.kind)
