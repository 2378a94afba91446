"""A node's side of `oncall probe`: listens and pings while the console is connected.

All sockets belong to the process that serves this connection and close with it.
"""

from __future__ import annotations

import select
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

from oncall.evidence.schema import BY_NAME
from oncall.fleet.endpoint.process_requests import parts_of
from oncall.node.ping import bandwidth
from oncall.node.ping.flights import Oddities
from oncall.node.ping.local_nics import LocalNic, local_nics, nics_by_index
from oncall.node.ping.ping import Pinger, Pinging, Shot, Target, run_pings
from oncall.node.ping.ping_packet import find
from oncall.node.ping.probes import pings_batch
from oncall.node.ping.rdma_endpoint import NoRdma, RdmaEndpoint
from oncall.node.ping.rdma_ping import RdmaPinger, respond_by_rdma
from oncall.node.ping.responder import Answering, Responder, Responding
from oncall.node.ping.stamped_socket import StampedSocket
from oncall.node.store.batch import of_rows
from oncall.node.store.probe_request import ProbeRequest, ProbeTarget, parse_probe
from oncall.node.store.wire import End, Part, Request, WireError

PINGS_PER_SECOND = 200.0
TIMEOUT_NS = 500_000_000
CHECK_BYTES = 128 * 2**20
CHECK_S = 0.5
_FIND_S = 3.0  # to find the RDMA addresses of all targets of a request
_FIND_EACH_S = 0.5
_GONE = select.POLLHUP | select.POLLERR | select.POLLNVAL | select.POLLRDHUP


class ProbeNode:
    """Listens and pings for one connection."""

    def __init__(self, name: str, connection: int | None) -> None:
        """`connection` is the descriptor that requests are read from; when it ends, so do all
        probes."""
        self._name = name
        self._nics: list[LocalNic] = []
        self._responding: list[Responding] = []
        self._receiver: bandwidth.Receiver | None = None
        self._find_until = 0.0
        self._poll = select.poll()
        if connection is not None:
            self._poll.register(connection, select.POLLRDHUP)

    def close(self) -> None:
        """Stop listening."""
        for each in self._responding:
            each.close()
        if self._receiver is not None:
            self._receiver.close()
        self._responding, self._receiver = [], None

    def answer(self, request: Request) -> Iterator[Part | End]:
        """Carry out the request. Raises WireError; OSError if it cannot listen."""
        probe = parse_probe(request.probe)
        self._nics = self._nics or local_nics()
        if any(target.here >= len(self._nics) for target in probe.targets):
            raise WireError(
                f"the request uses a NIC beyond the {len(self._nics)} of this node", "request"
            )
        match probe.do:
            case "listen":
                yield End({"listening": self._listen()})
            case "ping":
                yield from self._ping(probe)
            case "send":
                yield from self._send(probe)

    # --------------------------------------------------------------------- listening

    def _listen(self) -> dict[str, Any]:
        """Listen on all NICs; returns where."""
        self.close()
        everywhere = "::" if ":" in self._nics[0].address else ""
        by_rdma, rdma, without = respond_by_rdma(self._nics)
        by_index = nics_by_index(self._nics)
        stamped = StampedSocket(everywhere)
        responder = Responder(stamped, lambda index: by_index.get(index, ""), rdma)
        answering: list[Answering] = [responder, *by_rdma]
        self._responding = [Responding(each) for each in answering]
        self._receiver = bandwidth.Receiver(everywhere)
        return {
            "udp_port": stamped.port,
            "tcp_port": self._receiver.port,
            "nics": [{"nic": nic.nic, "address": nic.address} for nic in self._nics],
            "without_rdma": without,
        }

    def _is_over(self) -> bool:
        return any(event & _GONE for _, event in self._poll.poll(0))

    # ------------------------------------------------------------------------ pinging

    def _ping(self, probe: ProbeRequest) -> Iterator[Part | End]:
        self._find_until = time.monotonic() + _FIND_S
        pingers = {here: self._pinger(here) for here in {each.here for each in probe.targets}}
        by_rdma: dict[int, RdmaPinger] = {}
        shots: list[Shot] = []
        try:
            for each in probe.targets:
                udp = (each.address, each.udp_port)
                shots.append((pingers[each.here], Target(each.node, udp, each.nic)))
                shots += self._rdma_shot(each, by_rdma)
            pings = run_pings(shots, probe.count, PINGS_PER_SECOND, self._is_over)
        finally:
            opened: list[Pinging] = [*pingers.values(), *by_rdma.values()]
            for pinger in opened:
                pinger.close()
        yield from parts_of(pings_batch(self._name, pings))
        yield End({"probed": {"pings": len(pings), "odd": _said(opened)}})

    def _pinger(self, here: int) -> Pinger:
        nic = self._nics[here]
        return Pinger(nic.nic, StampedSocket(nic.address), TIMEOUT_NS)

    def _rdma_shot(self, target: ProbeTarget, by_rdma: dict[int, RdmaPinger]) -> list[Shot]:
        """A ping by RDMA, if both ends support it."""
        nic = self._nics[target.here]
        if target.here not in by_rdma:
            with suppress(NoRdma):
                by_rdma[target.here] = RdmaPinger(nic.nic, RdmaEndpoint(nic), TIMEOUT_NS)
        if target.here not in by_rdma:
            return []
        # Many unresponsive targets must not make this node look unresponsive.
        left_s = self._find_until - time.monotonic()
        where = (target.address, target.udp_port)
        found = find(where, nic.address, min(_FIND_EACH_S, left_s)) if left_s > 0 else None
        if found is None:
            return []
        name, address = found
        return [(by_rdma[target.here], Target(target.node, address, name))]

    # ---------------------------------------------------------------------- bandwidth

    def _send(self, probe: ProbeRequest) -> Iterator[Part | End]:
        rows: list[tuple[Any, ...]] = []
        odd: list[str] = []
        for each in probe.targets:
            nic = self._nics[each.here]
            try:
                done = bandwidth.send(
                    (each.address, each.tcp_port), nic.address, CHECK_BYTES, CHECK_S, self._is_over
                )
            except OSError as error:
                odd.append(f"cannot send to {each.node}: {error.strerror or error}")
                continue
            rows.append(
                (
                    *(self._name, nic.nic, each.node, each.nic),
                    *(done.at_ns, "tcp", done.bytes, done.duration_ns),
                )
            )
        names = BY_NAME["bandwidths"].column_names
        yield from parts_of(of_rows("bandwidths", names, rows))
        yield End({"probed": {"odd": odd}})


def _said(pingers: Sequence[Pinging]) -> list[str]:
    """The oddities of all NICs together."""
    total = Oddities()
    for pinger in pingers:
        total.add(pinger.oddities)
    return list(total.sentences())
