"""One fault being put into a run: the words in which fault families say what it changes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from oncall_lab.arrays import Ints
from oncall_lab.training.cluster import Cluster
from oncall_lab.training.fault import TrainingFault
from oncall_lab.training.measured.condition import FOREVER_NS, Change, Condition, Quantity, Reset
from oncall_lab.training.measured.log_lines import KernelLog
from oncall_lab.training.measured.machine import Fleet

Blame = dict[str, str | int]


@dataclass
class Case:
    """A fault, where it acts, and what it does to the condition of the devices.

    `device` is the first of the fault's ranks: its GPU and its NIC have the same number.
    """

    fault: TrainingFault
    cluster: Cluster
    fleet: Fleet
    condition: Condition
    rng: np.random.Generator
    until_ns: float
    blame: list[Blame] = field(default_factory=list)

    @property
    def device(self) -> int:
        return self.fault.ranks[0]

    @property
    def node(self) -> int:
        return int(self.fleet.device_node[self.device])

    @property
    def on_node(self) -> Ints:
        """Every device of the fault's node."""
        return self.fleet.on_node(self.node)

    @property
    def everywhere(self) -> Ints:
        """Every device of the job."""
        return np.arange(self.fleet.world_size)

    @property
    def begin_ns(self) -> float:
        return float(self.fault.at_ns)

    @property
    def end_ns(self) -> float:
        lasting = self.fault.lasting_ns
        return FOREVER_NS if lasting is None else self.begin_ns + lasting

    @property
    def log(self) -> KernelLog:
        return KernelLog(self.fleet, self.condition.events)

    def pick(self, mild: Any, moderate: Any, severe: Any) -> Any:
        """The choice that belongs to the fault's severity 1, 2 or 3."""
        return (mild, moderate, severe)[self.fault.severity - 1]

    def about(self, mild: float, moderate: float, severe: float) -> float:
        """The number that belongs to the severity, give or take a tenth."""
        value: float = self.pick(mild, moderate, severe)
        return value * float(self.rng.uniform(0.9, 1.1))

    def change(
        self,
        quantity: Quantity,
        value: float,
        where: Sequence[int] | Ints | None = None,
        *,
        begin_ns: float | None = None,
        end_ns: float | None = None,
    ) -> None:
        """Change a quantity of the fault's device (or its node) while the fault acts."""
        if where is None:
            where = [self.node if quantity.of_nodes else self.device]
        begin = self.begin_ns if begin_ns is None else begin_ns
        end = self.end_ns if end_ns is None else end_ns
        at = np.asarray(where, dtype=np.int64)
        self.condition.changes.append(Change(quantity, at, value, begin, end))

    def once(self, quantity: Quantity, at_ns: float, device: int | None = None) -> None:
        """One event of a quantity that is a rate a second, at a moment."""
        where = [self.device if device is None else device]
        self.change(quantity, 1e3, where, begin_ns=at_ns, end_ns=at_ns + 1e6)

    def reset(self, device: int, at_ns: float) -> None:
        """The counters of a NIC begin at zero again."""
        self.condition.resets.append(Reset(device, at_ns))

    def blame_device(self, *kinds: str, device: int | None = None) -> None:
        """Name the device as culprit: kinds are keys of `known`; its node always."""
        at = self.device if device is None else device
        known: Blame = {
            "nic": self.fleet.nic_name(at),
            "gpu": int(self.fleet.device_rail[at]),
            "rank": at,
            "pcie_port": self.fleet.pcie_port(at),
            "switch": self.fleet.switch_name(at),
        }
        self.blame.append({"node": self.fleet.node_name(at), **{k: known[k] for k in kinds}})

    def blame_communicators(self, role: str, *, of_device: bool = False) -> None:
        """Name communicators of a role, all or those that the fault's rank is a member of."""
        for family in self.cluster.families.values():
            place = family.place(self.device)
            if family.role != role or (of_device and place is None):
                continue
            comms = family.comms[[place[0]]] if of_device and place else family.comms
            self.blame += [{"comm": f"0x{int(comm):016x}", "role": role} for comm in comms]

    def moments(self, every_s: float, spread: float = 0.2) -> Iterator[float]:
        """Moments while the fault acts, so far apart on average."""
        at = self.begin_ns + float(self.rng.uniform(0.0, 0.3)) * every_s * 1e9
        end = min(self.end_ns, self.until_ns)
        while at < end:
            yield at
            at += every_s * 1e9 * float(np.exp(spread * self.rng.standard_normal()))
