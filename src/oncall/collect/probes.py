"""The source `probes`: pings the nodes of a pinglist at a low rate, and answers their pings.

Off unless told: without `probes_targets` nothing is sent, without `probes_respond` nothing
listens. One ping leaves every `probes_every`, however long the list is.
"""

from __future__ import annotations

import random
import select
import socket
import threading
import time
from collections import deque
from collections.abc import Sequence

from oncall.collect.config import Configuration
from oncall.collect.local_nics import LocalNic, local_nics, nics_by_index
from oncall.collect.ping import Ping, Pinger, Target
from oncall.collect.pinglist import Pair, Turns, pairs, resolve
from oncall.collect.responder import Responder, Responding
from oncall.collect.source import Collected, Instant
from oncall.collect.stamped_socket import Address, StampedSocket
from oncall.shards.batch import Batch, of_rows
from oncall.units import NS_PER_S

_MOST_PINGS = 10_000  # held for an agent that is busy
_RESOLVED_FOR_NS = 300 * NS_PER_S
_TRY_AGAIN_NS = 60 * NS_PER_S
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


class ProbeSource:
    """Pinger and responder have threads of their own: what they wait for holds up nothing."""

    name = "probes"

    def __init__(self, config: Configuration) -> None:
        self._config = config
        self._began = False
        self._prober: Prober | None = None
        self._responding: Responding | None = None
        self._responder: Responder | None = None
        self._problem: tuple[str, ...] = ()

    def collect(self, now: Instant) -> Collected:  # noqa: ARG002
        if not self._began:
            self._began = True
            self._begin()
        notes = [] if self._config.probes_respond else ["pings are not answered: probes_respond"]
        problems = list(self._problem)
        if self._responder is not None and self._responder.limited:
            problems.append(f"{self._responder.limited} pings came too fast: not answered")
        if self._prober is None:
            notes.append("nobody is pinged: probes_targets names no node")
            return Collected(problems=tuple(problems), notes=tuple(notes))
        pings = self._prober.take()
        batches = (pings_batch(self._config.node, pings),) if pings else ()
        problems += self._prober.problems()
        return Collected(batches, self._prober.dropped, tuple(problems), notes=tuple(notes))

    def standing(self, now: Instant) -> Sequence[Batch]:  # noqa: ARG002
        return ()

    def close(self) -> None:
        if self._prober is not None:
            self._prober.close()
        if self._responding is not None:
            self._responding.close()

    def _begin(self) -> None:
        config = self._config
        nics = local_nics(config.root)
        if config.probes_respond:
            try:
                stamped = StampedSocket(config.probes_address, config.probes_port)
            except OSError as error:
                place = f"{config.probes_address or '*'}:{config.probes_port}"
                self._problem = (f"cannot answer pings at {place}: {error.strerror or error}",)
            else:
                by_index = nics_by_index(nics)
                self._responder = Responder(stamped, lambda index: by_index.get(index, ""))
                self._responding = Responding(self._responder)
        nodes = [node for node in config.probes_targets if node != config.node]
        if nodes:
            self._prober = Prober(config, nics, nodes)


class Prober:
    """A thread that pings one pair after the other."""

    def __init__(
        self, config: Configuration, nics: Sequence[LocalNic], nodes: Sequence[str]
    ) -> None:
        self.dropped = 0
        self._config = config
        self._nics = nics
        self._every_ns = config.probes_every_ns
        chance = random.Random()
        self._turns = Turns(pairs(nics, nodes, config.probes_by, config.probes_rail_name), chance)
        self._pingers = [
            Pinger(nic.nic, StampedSocket(nic.address), config.probes_timeout_ns) for nic in nics
        ]
        self._addresses: dict[Pair, tuple[int, Address | None]] = {}  # until when, and what
        self._unknown: dict[str, str] = {}  # name -> why it has no address
        self._pings: deque[Ping] = deque()
        self._wake, self._woken = socket.socketpair()
        self._thread = threading.Thread(target=self._run, name="prober", daemon=True)
        self._thread.start()

    def take(self) -> list[Ping]:
        """What has ended since the last call."""
        return [self._pings.popleft() for _ in range(len(self._pings))]

    def problems(self) -> list[str]:
        """What was odd of answers, and whom there is no way to."""
        odd = [said for pinger in self._pingers for said in pinger.oddities.sentences()]
        unknown = sorted(dict(self._unknown).items())
        return odd + [f"cannot ping {name}: {reason}" for name, reason in unknown]

    def close(self) -> None:
        self._wake.close()
        self._thread.join()
        self._woken.close()

    def _run(self) -> None:
        poll = select.poll()
        for number in (self._woken.fileno(), *(pinger.fileno() for pinger in self._pingers)):
            poll.register(number, select.POLLIN)
        next_ns = time.monotonic_ns() + self._turns.wait_ns(self._every_ns)
        while True:
            deadlines = [pinger.next_deadline_ns() for pinger in self._pingers]
            wake_ns = min([next_ns, *(each for each in deadlines if each is not None)])
            wait_ms = max(0, wake_ns - time.monotonic_ns()) // _MS + 1
            if any(number == self._woken.fileno() for number, _ in poll.poll(wait_ms)):
                break
            for pinger in self._pingers:
                self._keep(pinger.ended())
            if time.monotonic_ns() >= next_ns:
                self._send()
                next_ns = time.monotonic_ns() + self._turns.wait_ns(self._every_ns)
        for pinger in self._pingers:
            pinger.close()

    def _keep(self, pings: Sequence[Ping]) -> None:
        self._pings.extend(pings)
        while len(self._pings) > _MOST_PINGS:
            self._pings.popleft()
            self.dropped += 1

    def _send(self) -> None:
        pair = self._turns.next()
        address = pair and self._address(pair)
        if pair and address:
            self._pingers[pair.here].send(Target(pair.node, address))

    def _address(self, pair: Pair) -> Address | None:
        """Where the pair's target is; looked up again from time to time."""
        now_ns = time.monotonic_ns()
        until_ns, address = self._addresses.get(pair, (0, None))
        if now_ns < until_ns:
            return address
        try:
            address = resolve(pair.name, self._config.probes_port, self._nics[pair.here].address)
            self._unknown.pop(pair.name, None)
            until_ns = now_ns + _RESOLVED_FOR_NS
        except (OSError, UnicodeError) as error:
            address = None
            self._unknown[pair.name] = getattr(error, "strerror", None) or str(error)
            until_ns = now_ns + _TRY_AGAIN_NS
        self._addresses[pair] = until_ns, address
        return address
