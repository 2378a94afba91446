"""Source `rdma_resources`: the queue pairs on this node, whose they are, and in which state.

The verbs hook tells more of those of the ranks it is in; the kernel tells of all, and of one that
is in error without its process having said so.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from oncall.core.errors import BadInput
from oncall.node.common.declaration import Polled, Surroundings, source
from oncall.node.common.own_thread import OwnThread
from oncall.node.common.source import Collected, Instant, Source
from oncall.node.rdma.rdma_netlink import NoRdma, QueuePair, queue_pairs
from oncall.node.rings.living_files import LivingRank, LivingRanks
from oncall.node.store.batch import Batch, of_rows

_COLUMNS = ("job", "node", "nic", "qpn", "rank", "peer_qpn", "pid", "state", "observed_ns")
_CONNECTED = "rc"  # other types name the peer with each send, if at all


class RdmaResourceSource:
    """Tells a queue pair when it is new and when its state has changed. Those of the kernel
    itself, which every port has, are left out."""

    name = "rdma_resources"

    def __init__(
        self,
        root: Path,  # noqa: ARG002 - netlink is of the network namespace, not below a folder
        node: str,
        every_ns: int,
        rings: Path,
        ask: Callable[[], Sequence[QueuePair]] = queue_pairs,
    ) -> None:
        self.every_ns = every_ns
        self._node = node
        self._living = LivingRanks(rings)
        self._ask = ask
        self._pairs: frozenset[QueuePair] = frozenset()
        self._ranks: Mapping[int, LivingRank] = {}

    def collect(self, now: Instant) -> Collected:
        """Queue pairs that are new or have changed."""
        try:
            pairs = frozenset(pair for pair in self._ask() if pair.pid)
        except NoRdma as absent:
            self._pairs = frozenset()
            return Collected(notes=(f"no queue pairs: {absent}",))
        except (BadInput, OSError) as error:
            return Collected(problems=(f"queue pairs could not be listed: {error}",))
        self._ranks = {found.pid: found for found in self._living.now(now)} if pairs else {}
        changed, self._pairs = pairs - self._pairs, pairs
        return Collected(self._batches(changed, now))

    def current_state(self, now: Instant) -> Sequence[Batch]:
        """Every queue pair there is."""
        return self._batches(self._pairs, now)

    def close(self) -> None:
        self._living.close()

    def _batches(self, pairs: frozenset[QueuePair], now: Instant) -> list[Batch]:
        rows = [
            (*self._row(pair), now.realtime_ns)
            for pair in sorted(pairs, key=lambda pair: (pair.device, pair.number))
        ]
        return [of_rows("qps", _COLUMNS, rows)] if rows else []

    def _row(self, pair: QueuePair) -> tuple[object, ...]:
        rank = self._ranks.get(pair.pid or 0)
        # As long as it has no peer, the kernel reports 0.
        peer = pair.peer_number or None if pair.type == _CONNECTED else None
        return (
            rank.job if rank else None,
            self._node,
            pair.device,
            pair.number,
            rank.rank if rank else None,
            peer,
            pair.pid,
            pair.state,
        )


@source("rdma_resources", every="10 s")
def rdma_resources(surroundings: Surroundings, options: Polled) -> Source:
    """Queue pairs as the kernel lists them."""
    root, rings, node = surroundings.root, surroundings.rings, surroundings.node
    return OwnThread(RdmaResourceSource(root, node, options.every_ns, rings))
