"""Which RDMA device a PCI function of a NIC is: queue pair numbers are unique only within one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oncall.core.errors import BadInput
from oncall.evidence.columns import Words
from oncall.node.rdma.rdma_netlink import NoRdma, QueuePair

AskQueuePairs = Callable[[], Sequence[QueuePair]]


class NicFunctions:
    """Functions are reported by number (vhca). As long as one alone is seen, it is the device that
    was asked; else the one on which the kernel lists most of its queue pairs."""

    def __init__(self, nic: str, ask: AskQueuePairs) -> None:
        self._nic = nic
        self._ask = ask
        self._seen: set[int] = set()
        self._known: dict[int, str] = {}

    @property
    def problems(self) -> tuple[str, ...]:
        unknown = sorted(self._seen - self._known.keys()) if len(self._seen) > 1 else ()
        if not unknown:
            return ()
        listed = ", ".join(map(str, unknown))
        return (f"{self._nic}: the RDMA device of its function {listed} is unknown",)

    def names(self, vhca: NDArray[Any], qpn: NDArray[Any]) -> Words:
        """The device of each flow (n,); NULL where it is not known."""
        present, position = np.unique(vhca, return_inverse=True)
        self._seen.update(present.tolist())
        if len(self._seen) == 1:
            return Words(np.zeros(len(vhca), dtype=np.int32), [self._nic])
        if self._seen - self._known.keys():
            self._learn(vhca, qpn)
        devices = sorted(set(self._known.values()))
        codes = [devices.index(self._known[f]) if f in self._known else -1 for f in present]
        return Words(np.array(codes, dtype=np.int32)[position], devices)

    def _learn(self, vhca: NDArray[Any], qpn: NDArray[Any]) -> None:
        try:
            pairs = self._ask()
        except (NoRdma, BadInput, OSError):
            return
        by_device: dict[str, set[int]] = {}
        for pair in pairs:
            by_device.setdefault(pair.device, set()).add(pair.number)
        for function in self._seen - self._known.keys():
            numbers = set(qpn[vhca == function].tolist())
            listed = sorted((len(numbers & held), device) for device, held in by_device.items())
            best, second = ([(0, ""), (0, ""), *listed])[:-3:-1]
            if best[0] > second[0]:
                self._known[function] = best[1]
