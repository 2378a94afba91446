"""Empty probes: whether the network still carries anything to where a queue pair leads.

VenusTrace 3.3: a request without payload is sent where requests do not come on; if it does not
come through either, the network is at fault, else who should receive. Ours leaves by a queue pair
of the collector's own, so that it touches nothing of the job: a datagram to the collector at the
peer's port, which answers it. (A datagram's own completion tells only that it was sent.)
"""

from __future__ import annotations

import ipaddress
import queue
import select
import threading
import time
from collections.abc import Callable
from pathlib import Path

from oncall.core.units import NS_PER_S
from oncall.node.common.source import say_bug
from oncall.node.ping.local_nics import LocalNic, local_nics
from oncall.node.ping.ping import Ping, Target
from oncall.node.ping.ping_packet import find
from oncall.node.ping.rdma_endpoint import NoRdma, RdmaEndpoint
from oncall.node.ping.rdma_ping import RdmaPinger

_TIMEOUT_NS = NS_PER_S
_FIND_TIMEOUT_S = 0.5
_FIND_AGAIN_NS = 60 * NS_PER_S
_BELIEVED_NS = 5 * NS_PER_S  # how long the result of a probe is reused
_MOST_WAITING = 1024

Way = tuple[str, str]  # a NIC of this node, and the GID of the peer's port


class EmptyProbes:
    """A thread that probes ways, one at a time. `without`: why there are none at all."""

    def __init__(
        self, port: int, root: Path = Path("/"), nics: Callable[[Path], list[LocalNic]] = local_nics
    ) -> None:
        self.without: str | None = None
        self._port = port
        self._root = root
        self._nics = nics
        self._asked: queue.Queue[tuple[str, Way] | None] = queue.Queue(_MOST_WAITING)
        self._targets: dict[Way, Target] = {}
        self._look_again_ns: dict[Way, int] = {}
        self._under_way: set[Way] = set()
        self._results: dict[Way, tuple[int, str]] = {}  # when, and what
        self._pingers: dict[str, RdmaPinger] = {}
        self._thread = threading.Thread(target=self._run, name="empty-probes", daemon=True)

    # ------------------------------------------------------- of the source's thread

    def meet(self, nic: str, gid: str) -> None:
        """A queue pair leads there: find out how it is reached."""
        way = (nic, gid)
        if time.monotonic_ns() >= self._look_again_ns.get(way, 0):
            self._look_again_ns[way] = time.monotonic_ns() + _FIND_AGAIN_NS
            self._ask("meet", way)

    def send(self, nic: str, gid: str) -> None:
        """Probe it, if it was not just probed."""
        way = (nic, gid)
        if way not in self._under_way and self.result(nic, gid) is None:
            self._under_way.add(way)
            if not self._ask("probe", way):
                self._under_way.discard(way)

    def knows(self, nic: str, gid: str) -> bool:
        """Whether it was found how the way's end is reached."""
        return (nic, gid) in self._targets

    def is_under_way(self, nic: str, gid: str | None) -> bool:
        return gid is not None and (nic, gid) in self._under_way

    def result(self, nic: str, gid: str | None) -> str | None:
        """The result of the last probe, `answered` or `lost`; None: none was sent lately."""
        at_ns, what = self._results.get((nic, gid or ""), (-_BELIEVED_NS, ""))
        return what if time.monotonic_ns() - at_ns < _BELIEVED_NS and what else None

    def close(self) -> None:
        if self._thread.ident is not None:
            self._ask("close", ("", ""))
            self._thread.join(2.0)

    def _ask(self, what: str, way: Way) -> bool:
        if self._thread.ident is None:
            self._thread.start()
        try:
            self._asked.put_nowait((what, way) if what != "close" else None)
        except queue.Full:
            return False
        return True

    # ----------------------------------------------------------------- its own thread

    def _run(self) -> None:
        while (asked := self._asked.get()) is not None:
            what, way = asked
            try:
                self._meet(way) if what == "meet" else self._probe(way)
            except NoRdma as absent:
                self.without = str(absent)
            except Exception as error:  # without probes the rest of the evidence is still good
                self.without = say_bug(error)
            self._under_way.discard(way)
        for pinger in self._pingers.values():
            pinger.close()

    def _meet(self, way: Way) -> None:
        nic, gid = way
        local = next((each for each in self._nics(self._root) if each.nic == nic), None)
        address = ip_of(gid)
        if local is None or address is None:
            return
        if nic not in self._pingers:
            endpoint = RdmaEndpoint(local, self._root)
            self._pingers[nic] = RdmaPinger(nic, endpoint, _TIMEOUT_NS)
        found = find((address, self._port), local.address, _FIND_TIMEOUT_S)
        if found:
            self._targets[way] = Target(address, found[1], found[0])

    def _probe(self, way: Way) -> None:
        """Whether an answer comes. Where the path is unknown there is no result: no answer
        from a collector that never answered is no sign of the network."""
        target, pinger = self._targets.get(way), self._pingers.get(way[0])
        if target is None or pinger is None:
            return
        pinger.send(target)
        ended: list[Ping] = []
        poll = select.poll()
        poll.register(pinger.fileno(), select.POLLIN)
        until_ns = time.monotonic_ns() + 2 * _TIMEOUT_NS
        while not ended and time.monotonic_ns() < until_ns:
            poll.poll(20)
            ended = pinger.ended()
        if ended:
            what = "lost" if ended[-1].lost else "answered"
            self._results[way] = (time.monotonic_ns(), what)


def ip_of(gid: str) -> str | None:
    """The IP address of a RoCE v2 port, of its GID; None where it is none (InfiniBand, RoCE v1)."""
    address = ipaddress.IPv6Address(gid)
    if address.ipv4_mapped:
        return str(address.ipv4_mapped)
    return None if address.is_link_local else str(address)
