"""A closer look at the network, for a few seconds: NICs' counters densely, and pings to the peers.

At most so many pings in all, to nodes that are pinged anyway; nothing waits for an answer.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from oncall.core.units import NS_PER_S
from oncall.node.common.source import Instant
from oncall.node.ping.local_nics import local_nics, pairs, resolve
from oncall.node.ping.ping import Ping, Pinger, Target
from oncall.node.ping.probes import ProbeOptions, pings_batch
from oncall.node.ping.stamped_socket import StampedSocket
from oncall.node.rdma.rdma_nics import RdmaNicSource
from oncall.node.store.batch import Batch

LASTS_NS = 2 * NS_PER_S
PINGS_AT_ONCE = 4  # at each step of it, 20 times a second: 5 KB/s
MOST_TARGETS = 64


class CloserLook:
    """One at a time; call `step` often while it lasts."""

    def __init__(self, node: str, root: Path, probes: ProbeOptions) -> None:
        """`probes`: whom source `probes` pings, and how."""
        self._node = node
        self._root = root
        self._probes = probes
        self._until_ns = 0
        self._counters: RdmaNicSource | None = None
        self._shots: list[tuple[Pinger, Target]] = []
        self._pingers: list[Pinger] = []
        self._chance = random.Random()

    @property
    def lasts(self) -> bool:
        return self._until_ns > 0

    def begin(self, now: Instant) -> None:
        """Begin one; one that is under way lasts longer."""
        if not self.lasts:
            self._counters = RdmaNicSource(self._root, self._node, 0)
            self._aim()
        self._until_ns = now.monotonic_ns + LASTS_NS

    def step(self, now: Instant) -> list[Batch]:
        """What was seen since the last step."""
        if not self.lasts:
            return []
        is_over = now.monotonic_ns >= self._until_ns
        if not is_over:
            for pinger, target in self._chance.sample(
                self._shots, min(PINGS_AT_ONCE, len(self._shots))
            ):
                pinger.send(target)
        pings: list[Ping] = [ping for pinger in self._pingers for ping in pinger.ended()]
        batches: list[Batch] = [pings_batch(self._node, pings)] if pings else []
        if self._counters is not None:
            batches += self._counters.collect(now).batches
        under_way = any(pinger.next_deadline_ns() is not None for pinger in self._pingers)
        if is_over and not under_way:
            self.close()
        return batches

    def close(self) -> None:
        """Close sockets and files."""
        for pinger in self._pingers:
            pinger.close()
        if self._counters is not None:
            self._counters.close()
        self._shots, self._pingers, self._counters, self._until_ns = [], [], None, 0

    def _aim(self) -> None:
        probes = self._probes
        nodes: Sequence[str] = [node for node in probes.targets if node != self._node]
        if not nodes:
            return
        nics = local_nics(self._root)
        self._pingers = [
            Pinger(nic.nic, StampedSocket(nic.address), probes.timeout_ns) for nic in nics
        ]
        listed = pairs(nics, nodes, probes.by, probes.rail_name)
        for pair in self._chance.sample(listed, min(MOST_TARGETS, len(listed))):
            with suppress(OSError, UnicodeError):  # source `probes` says whom it does not find
                address = resolve(pair.name, probes.port, nics[pair.here].address)
                self._shots.append((self._pingers[pair.here], Target(pair.node, address)))
