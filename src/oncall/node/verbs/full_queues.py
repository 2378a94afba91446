"""Queue pairs that stay full: as many requests outstanding as a window, for long (VenusTrace 3.3).

Many outstanding requests mean that the network, or who receives, does not keep up; or that the NIC
works as fast as it can, which is health. So a full queue pair counts only while its NIC completes
less than half of what its link carries. Where the rate of the link is not reported, the most that
the NIC was seen to complete stands for it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oncall.core.units import NS_PER_S

Ints = NDArray[np.int64]
Truths = NDArray[np.bool_]
LinkRate = Callable[[str, int], int | None]  # of a NIC's port, bytes a second; None: not known

BUSY_SHARE = 0.5  # of the link's rate: a NIC that completes so much is held up by nothing
_LEAST_NS = NS_PER_S // 10  # over which a rate is taken


@dataclass(frozen=True)
class Queues:
    """The current queue pairs: arrays (n,). `low`: fewer than a window were outstanding at some
    moment since the last look. `port`: index into `ports`, NIC and port number."""

    number: Ints
    outstanding: Ints
    completed_bytes: Ints
    low: Truths
    port: Ints
    ports: tuple[tuple[str, int], ...]


class FullQueues:
    """Looks at the queue pairs of one process again and again."""

    def __init__(self, window: int, timeout_ns: int, link_rate: LinkRate) -> None:
        self._window, self._timeout_ns, self._link_rate = window, timeout_ns, link_rate
        self._since_ns: dict[int, int] = {}  # that a queue pair is full and its NIC not busy
        self._ports: dict[tuple[str, int], _Port] = {}

    def look(self, queues: Queues, now_ns: int) -> Truths:
        """Which queue pairs (n,) have been full for longer than the timeout, and not because the
        NIC is busy."""
        sent = np.bincount(queues.port, queues.completed_bytes, len(queues.ports)).astype(np.int64)
        busy = [
            self._is_busy(port, bytes_, now_ns)
            for port, bytes_ in zip(queues.ports, sent.tolist(), strict=True)
        ]
        full = (queues.outstanding >= self._window) & ~queues.low
        full &= ~np.array(busy, dtype=bool)[queues.port] if busy else False
        numbers = queues.number[full].tolist()
        self._since_ns = {number: self._since_ns.get(number, now_ns) for number in numbers}
        long = [now_ns - since_ns >= self._timeout_ns for since_ns in self._since_ns.values()]
        full[full] = long
        return full

    def _is_busy(self, name: tuple[str, int], sent: int, now_ns: int) -> bool:
        port = self._ports.setdefault(name, _Port(now_ns, sent))
        if now_ns - port.at_ns >= _LEAST_NS:
            port.rate = max(0.0, (sent - port.sent) * NS_PER_S / (now_ns - port.at_ns))
            port.best = max(port.best, port.rate)
            port.at_ns, port.sent = now_ns, sent
        return port.rate >= BUSY_SHARE * (self._link_rate(*name) or max(port.best, 1.0))


@dataclass
class _Port:
    """A NIC's port: when it was looked at, and its bytes then; bytes a second since the look
    before, and the most ever."""

    at_ns: int
    sent: int
    rate: float = 0.0
    best: float = 0.0


def queues_of(boards: Any, low: Any) -> Queues:
    """Of boards of the verbs file (hooks/oncall_verbs.h); `low`: numbers of the queue pairs that
    were seen with few outstanding."""
    ports, port = np.unique(boards[["nic", "port"]], return_inverse=True)
    left = boards["posted"].astype(np.int64) - boards["completed"].astype(np.int64)
    names = [(bytes(nic).split(b"\0", 1)[0].decode("utf-8", "replace"), int(p)) for nic, p in ports]
    return Queues(
        number=boards["number"].astype(np.int64),
        outstanding=left,
        completed_bytes=boards["completed_bytes"].astype(np.int64),
        low=np.isin(boards["number"], low),
        port=port.astype(np.int64),
        ports=tuple(names),
    )
