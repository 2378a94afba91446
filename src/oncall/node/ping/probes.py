"""The source `probes`: pings the nodes of a pinglist at a low rate, and answers their pings.

Off unless configured: without `targets` nothing is sent, without `respond` nothing
listens. One ping leaves each `every`, however long the list is; where both ends have RDMA
and pyverbs, one by UDP and one by RDMA.
"""

from __future__ import annotations

import random
import select
import socket
import threading
import time
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import get_args

from oncall.core.units import NS_PER_S
from oncall.node.common.declaration import Polled, Surroundings, source
from oncall.node.common.options import option
from oncall.node.common.source import Collected, Instant, Source, say_bug
from oncall.node.ping.flights import Oddities
from oncall.node.ping.local_nics import (
    By,
    LocalNic,
    Pair,
    Turns,
    check_rail_name,
    local_nics,
    nics_by_index,
    pairs,
    resolve,
)
from oncall.node.ping.ping import Ping, Pinger, Pinging, Target
from oncall.node.ping.ping_packet import DEFAULT_PORT, find
from oncall.node.ping.rdma_endpoint import NoRdma, RdmaEndpoint
from oncall.node.ping.rdma_ping import RdmaPinger, respond_by_rdma
from oncall.node.ping.responder import Answering, Responder, Responding
from oncall.node.ping.stamped_socket import Address, StampedSocket
from oncall.node.store.batch import Batch, of_rows

_MOST_PINGS = 10_000  # held for an agent that is busy
_RESOLVED_FOR_NS = 300 * NS_PER_S
_TRY_AGAIN_NS = 60 * NS_PER_S
_TELL_AGAIN_NS = 60 * NS_PER_S
_PATIENCE_S = 2.0  # for the thread to leave
_MS = 1_000_000

COLUMNS = (
    *("node", "nic", "target_node", "target_nic", "at_ns"),
    *("kind", "rtt_ns", "target_ns", "lost", "clock"),
)


def pings_batch(node: str, pings: Sequence[Ping]) -> Batch:
    """Rows of `pings`."""
    rows = [
        (
            *(node, ping.nic, ping.target.node, ping.target.nic, ping.at_ns),
            *(ping.kind, ping.rtt_ns, ping.target_ns, ping.lost, ping.clock),
        )
        for ping in pings
    ]
    return of_rows("pings", COLUMNS, rows)


@dataclass(frozen=True)
class ProbeOptions(Polled):
    """Options of source `probes`; others ping as it is configured to."""

    every_ns: int = option("duration", "the interval between pings, over all targets")
    targets: tuple[str, ...] = option(
        "nodes", 'the nodes to ping, "gpu[001-512]" or a list; none: no pings are sent', default=()
    )
    by: By = option(
        "choice",
        "rail: NIC k pings NIC k; mesh: every NIC pings every NIC",
        default="rail",
        choices=get_args(By),
    )
    rail_name: str = option(
        "name",
        'the name of a node\'s NIC k, such as "{node}-rail{rail}"',
        default="{node}",
        check=check_rail_name,
    )
    timeout_ns: int = option(
        "duration", "a ping not answered within this time is lost", default=NS_PER_S
    )
    respond: bool = option(
        "truth",
        "whether to answer other nodes' pings; besides `secret` in [triggers] the only "
        "option that opens a port",
        default=False,
    )
    address: str = option("name", "the address that answers pings; empty: all", default="")
    port: int = option("port", "the UDP port of pings, on both sides", default=DEFAULT_PORT)


class ProbeSource(Source):
    """Pinger and responder have threads of their own: their waiting blocks nothing else."""

    name = "probes"

    def __init__(self, options: ProbeOptions, node: str, root: Path = Path("/")) -> None:
        self._options = options
        self._node = node
        self._root = root
        self._began = False
        self._prober: Prober | None = None
        self._responding: list[Responding] = []
        self._responder: Responder | None = None
        self._problem: tuple[str, ...] = ()
        self._without_rdma: set[str] = set()
        self._reported_cpu_ns = 0

    def collect(self, now: Instant) -> Collected:  # noqa: ARG002
        if not self._began:
            self._began = True
            self._begin()
        notes = sorted(self._without_rdma)
        if not self._options.respond:
            notes.append("pings are not answered: `respond` in [probes] is not set")
        problems = [*self._problem, *(each.problem for each in self._responding if each.problem)]
        if self._responder is not None and self._responder.limited:
            problems.append("some pings exceeded the rate limit and were not answered")
        if self._prober is None:
            notes.append("no pings are sent: `targets` in [probes] names no node")
            return Collected(
                problems=tuple(problems), notes=tuple(notes), cpu_ns=self._newly_used_ns()
            )
        pings = self._prober.take()
        batches = (pings_batch(self._node, pings),) if pings else ()
        problems += self._prober.problems()
        return Collected(
            batches,
            self._prober.dropped,
            tuple(problems),
            notes=tuple(notes),
            cpu_ns=self._newly_used_ns(),
        )

    def _newly_used_ns(self) -> int:
        """CPU time of its threads since it was last reported."""
        used_ns = sum(each.cpu_ns for each in self._responding)
        used_ns += self._prober.cpu_ns if self._prober is not None else 0
        newly_ns, self._reported_cpu_ns = used_ns - self._reported_cpu_ns, used_ns
        return newly_ns

    def close(self) -> None:
        if self._prober is not None:
            self._prober.close()
        for responding in self._responding:
            responding.close()

    def _begin(self) -> None:
        nics = local_nics(self._root)
        if self._options.respond:
            self._respond(nics)
        nodes = [target for target in self._options.targets if target != self._node]
        if nodes:
            try:
                self._prober = Prober(self._options, self._root, nics, nodes)
            except OSError as error:
                self._problem += (f"cannot ping: {error.strerror or error}",)
            else:
                self._without_rdma |= self._prober.without_rdma

    def _respond(self, nics: Sequence[LocalNic]) -> None:
        options = self._options
        try:
            stamped = StampedSocket(options.address, options.port)
        except OSError as error:
            place = f"{options.address or '*'}:{options.port}"
            self._problem += (f"cannot answer pings at {place}: {error.strerror or error}",)
            return
        by_rdma, there, without = respond_by_rdma(nics, self._root)
        if without:
            self._without_rdma.add(without)
        by_index = nics_by_index(nics)
        self._responder = Responder(stamped, lambda index: by_index.get(index, ""), there)
        answering: list[Answering] = [self._responder, *by_rdma]
        self._responding = [Responding(each) for each in answering]


class Prober:
    """A thread that pings one pair after the other."""

    def __init__(
        self,
        options: ProbeOptions,
        root: Path,
        nics: Sequence[LocalNic],
        nodes: Sequence[str],
    ) -> None:
        self.dropped = 0
        self.cpu_ns = 0  # that its thread has used
        self._port = options.port
        self._nics = nics
        self._every_ns = options.every_ns
        chance = random.Random()
        self._turns = Turns(pairs(nics, nodes, options.by, options.rail_name), chance)
        self._by_udp = [
            Pinger(nic.nic, StampedSocket(nic.address), options.timeout_ns) for nic in nics
        ]
        self.without_rdma: set[str] = set()
        self._by_rdma: dict[int, RdmaPinger] = {}
        for number, nic in enumerate(nics):
            try:
                endpoint = RdmaEndpoint(nic, root)
            except NoRdma as error:
                self.without_rdma.add(str(error))
            else:
                self._by_rdma[number] = RdmaPinger(nic.nic, endpoint, options.timeout_ns)
        self._pingers: list[Pinging] = [*self._by_udp, *self._by_rdma.values()]
        self._ways: dict[Pair, _Way] = {}
        self._unknown: dict[str, str] = {}  # name -> why it has no address
        self._failed: str | None = None
        self._reported, self._reported_ns = Oddities(), time.monotonic_ns()
        self._odd: tuple[str, ...] = ()
        self._pings: deque[Ping] = deque()
        self._wake, self._woken = socket.socketpair()
        self._thread = threading.Thread(target=self._run, name="prober", daemon=True)
        self._thread.start()

    def take(self) -> list[Ping]:
        """What has ended since the last call."""
        taken: list[Ping] = []
        with suppress(IndexError):  # which the thread may empty, too
            while True:
                taken.append(self._pings.popleft())
        return taken

    def problems(self) -> list[str]:
        """What was odd of answers lately, and whom there is no way to."""
        unknown = sorted(dict(self._unknown).items())
        failed = [self._failed] if self._failed else []
        cannot = [f"cannot ping {name}: {reason}" for name, reason in unknown]
        return [*failed, *self._oddities(), *cannot]

    def _oddities(self) -> tuple[str, ...]:
        """Reported as soon as there are any, then once a minute: a count is no news each second."""
        total = Oddities()
        for pinger in self._pingers:
            total.add(pinger.oddities)
        lately = total.since(self._reported).sentences()
        now_ns = time.monotonic_ns()
        if now_ns - self._reported_ns >= _TELL_AGAIN_NS or (lately and not self._odd):
            self._odd, self._reported, self._reported_ns = lately, total, now_ns
        return self._odd

    def close(self) -> None:
        """Stop pinging. A thread that waits for a name server is left to the process's end."""
        self._wake.close()
        self._thread.join(_PATIENCE_S)

    def _run(self) -> None:
        try:
            self._ping_until_closed()
        except Exception as error:  # a thread that ends unnoticed would look healthy
            self._failed = f"pings are no longer sent: {say_bug(error)}"
        for pinger in self._pingers:
            pinger.close()
        self._woken.close()

    def _ping_until_closed(self) -> None:
        poll = select.poll()
        for number in (self._woken.fileno(), *(pinger.fileno() for pinger in self._pingers)):
            poll.register(number, select.POLLIN)
        next_ns = time.monotonic_ns() + self._turns.wait_ns(self._every_ns)
        while True:
            deadlines = [pinger.next_deadline_ns() for pinger in self._pingers]
            wake_ns = min([next_ns, *(each for each in deadlines if each is not None)])
            wait_ms = max(0, wake_ns - time.monotonic_ns()) // _MS + 1
            if any(number == self._woken.fileno() for number, _ in poll.poll(wait_ms)):
                return
            for pinger in self._pingers:
                self._keep(pinger.ended())
            self.cpu_ns = time.thread_time_ns()
            if time.monotonic_ns() >= next_ns:
                self._send()
                next_ns = time.monotonic_ns() + self._turns.wait_ns(self._every_ns)

    def _keep(self, pings: Sequence[Ping]) -> None:
        self._pings.extend(pings)
        while len(self._pings) > _MOST_PINGS:
            self._pings.popleft()
            self.dropped += 1

    def _send(self) -> None:
        pair = self._turns.next()
        way = pair and self._way(pair)
        if not pair or not way or not way.udp:
            return
        self._by_udp[pair.here].send(Target(pair.node, way.udp))
        if way.rdma:
            self._by_rdma[pair.here].send(way.rdma)

    def _way(self, pair: Pair) -> _Way:
        """How the pair's target is reached; looked up again from time to time."""
        now_ns = time.monotonic_ns()
        way = self._ways.get(pair)
        if way is not None and now_ns < way.until_ns:
            return way
        here = self._nics[pair.here].address
        try:
            udp = resolve(pair.name, self._port, here)
        except (OSError, UnicodeError) as error:
            self._unknown[pair.name] = getattr(error, "strerror", None) or str(error)
            way = _Way(now_ns + _TRY_AGAIN_NS)
        else:
            self._unknown.pop(pair.name, None)
            found = find(udp, here) if pair.here in self._by_rdma else None
            rdma = Target(pair.node, found[1], found[0]) if found else None
            way = _Way(now_ns + (_RESOLVED_FOR_NS if found else _TRY_AGAIN_NS), udp, rdma)
        self._ways[pair] = way
        return way


@dataclass(frozen=True)
class _Way:
    """Where a target is, until when that is believed; None: not known, or no RDMA there."""

    until_ns: int
    udp: Address | None = None
    rdma: Target | None = None


@source("probes", every="1 s")
def probes(surroundings: Surroundings, options: ProbeOptions) -> Source:
    """Pings between nodes."""
    return ProbeSource(options, surroundings.node, surroundings.root)
