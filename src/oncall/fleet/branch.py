"""A branch of a gather: a gateway, and the hosts that it asks for the console.

The gateway runs `oncall node gather`: the same gather as the console's, of its own nodes. The
console sends one line, which holds a request for each of them; the gateway answers the outcome of
each, with its clock, and then the rows of all of them together:

    {"gather": {"gpu001": {"ask": "digest", ...}, ...}, "since_ns": ..., "patience_s": 20}
    {"of": "gpu001", "kind": "ok", "status": {...}, "clock": [at_ns, offset_ns, error_ns]}
    {"part": "ops", "rows": 76800, "bytes": ...} ...
    {"end": {...}}

Clocks are measured in two steps, node to gateway and gateway to console: offsets and errors add up.
So the gateway's own clock may be wrong without harm.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, cast, get_args

from oncall.fleet.host import Host
from oncall.fleet.outcome import HostError, Kind, Outcome, jobs_on_our_clock, seconds_of
from oncall.fleet.transport import Clock, Connection, FolderSink, Transport
from oncall.node.store.parts import ReceivedPart
from oncall.node.store.wire import DEFAULT_LIMITS, Limits, Request, WireError, parse_request

# Beyond the patience with a node: for the gateway to put together and hand on what came.
GATEWAY_MARGIN_S = 10.0
GATEWAY_RETRY_S = 300.0  # until a gateway that failed is asked again, by a console that goes on
STOP = b'{"stop":true}\n'
STOP_S = 3.0  # for a gateway to hand on what it has, once the console stops waiting
MOST_BRANCH = 512  # nodes of one gateway: more are asked through it in several gathers
MOST_ORDER_BYTES = 32 * 2**20  # a detail names up to 2,000 communicators of each node
_MOST_PATIENCE_S = 3600.0


@dataclass(frozen=True)
class Tree:
    """How gateways are reached, and who asks whom: host -> gateway. A host without one is asked
    directly."""

    transport: Transport
    gateway_of: Mapping[str, str]


@dataclass(frozen=True)
class Order:
    """What a gateway is to ask (host -> request), the window on its clock, and how long a node may
    take. Instants within the requests are on the nodes' clocks."""

    requests: Mapping[str, Request]
    since_ns: int | None
    until_ns: int | None
    patience_s: float

    def line(self) -> bytes:
        """The order as the one line that is sent."""
        asked = {host: asdict(request) for host, request in self.requests.items()}
        order = {**asdict(replace(self, requests={})), "gather": asked}
        return json.dumps(order, separators=(",", ":")).encode() + b"\n"


def parse_order(message: Mapping[str, Any]) -> Order:
    """The order that a console's line holds. Raises WireError with reason `request`."""
    asked, patience_s = message.get("gather"), message.get("patience_s")
    if not isinstance(asked, dict) or not asked or len(asked) > MOST_BRANCH:
        raise WireError(f"`gather` must name 1 to {MOST_BRANCH} nodes", "request")
    if not isinstance(patience_s, int | float) or not 0 < patience_s <= _MOST_PATIENCE_S:
        raise WireError("`patience_s` is not a number of seconds", "request")
    requests = {
        str(host): parse_request(json.dumps(request).encode()) for host, request in asked.items()
    }
    if len({request.ask for request in requests.values()}) > 1:
        raise WireError("a gateway asks all of its nodes the same kind of question", "request")
    spans = [message.get(name) for name in ("since_ns", "until_ns")]
    since_ns, until_ns = (at if type(at) is int else None for at in spans)
    return Order(requests, since_ns, until_ns, float(patience_s))


class BranchSink(FolderSink):
    """The rows of a branch, of whom it is the sender, and the outcome of each of its nodes."""

    def __init__(self, folder: Path, sender: str, answered: Callable[[], None]) -> None:
        super().__init__(folder, sender)
        self.became: dict[str, dict[str, Any]] = {}
        self._answered = answered

    def node(self, host: str, became: dict[str, Any]) -> None:
        self.became[host] = became
        self._answered()

    def of_nodes(self) -> list[ReceivedPart]:
        """The parts: rows of as many nodes as were named."""
        return [replace(part, nodes=max(1, len(self.became))) for part in self.parts]


class Branch:
    """A gateway as one gather asks it, until it fails."""

    def __init__(self, gateway: Host, transport: Transport, count: Callable[[int], None]) -> None:
        """Connects at once; `count` is called with the number of bytes received."""
        self.gateway = gateway
        self.lost: str | None = None  # why it is asked no more
        self._lost_at_s = 0.0
        self._asking: Connection | None = None
        gateway.attend(transport, count)

    async def clock(self) -> Clock:
        """The gateway's clock, measured at the first call. Raises HostError."""
        if not self.gateway.greeted:
            await self.gateway.greet(None)
            if not self.gateway.outcome.status.get("gathers"):
                raise HostError("version", "oncall there gathers from no nodes")
        assert self.gateway.clock is not None
        return self.gateway.clock

    async def ask(self, order: Order, sink: BranchSink) -> dict[str, tuple[Outcome, Clock | None]]:
        """Ask its nodes; the outcome of each. Raises HostError where the gateway did not answer, or
        named not all of them: then nothing of its answer counts."""
        clock = await self.clock()

        async def gather(connection: Connection) -> None:
            self._asking = connection
            # It is silent while it waits for its slowest node.
            silence_s = order.patience_s + GATEWAY_MARGIN_S
            try:
                await connection.ask(order, sink, _limits(len(order.requests)), silence_s)
            finally:
                self._asking = None

        await self.gateway.ask(gather)
        if missing := [host for host in order.requests if host not in sink.became]:
            raise HostError("protocol", f"did not state the outcome of {missing[0]}")
        return {host: _became(host, sink.became[host], clock) for host in order.requests}

    async def stop(self) -> None:
        """Ask for what it has so far. Raises HostError or OSError."""
        if self._asking is not None:
            await self._asking.channel.write(STOP)

    def lose(self, error: Exception) -> None:
        """Ask it no more."""
        if isinstance(error, TimeoutError):
            error = HostError("timeout", "no answer in time")
        elif not isinstance(error, HostError):
            error = HostError("error", f"{type(error).__name__}: {error}")
        self.gateway.fail(error.kind, str(error))
        self.lost = str(error)
        self._lost_at_s = time.monotonic()

    @property
    def may_be_back(self) -> bool:
        """Whether it failed long enough ago to be asked again."""
        return self.lost is not None and time.monotonic() - self._lost_at_s > GATEWAY_RETRY_S


def _limits(nodes: int) -> Limits:
    """A gateway's answer may be as large as those of its nodes together."""
    one = DEFAULT_LIMITS
    return replace(
        one, total_bytes=one.total_bytes * nodes, parts=one.parts * nodes, rows=one.rows * nodes
    )


def _became(host: str, said: Mapping[str, Any], gateway: Clock) -> tuple[Outcome, Clock | None]:
    """A node's outcome as the gateway states it, on the console's clock. Raises HostError."""
    kind, message, status = said.get("kind"), said.get("message"), said.get("status")
    if kind not in get_args(Kind) or not isinstance(status, dict):
        raise HostError("protocol", f"did not state the outcome of {host}")
    status = {**status, "jobs": jobs_on_our_clock(status, gateway.offset_ns)}
    outcome = Outcome(
        host,
        cast(Kind, kind),
        message if isinstance(message, str) else "",
        seconds=seconds_of(said.get("seconds")),
        status=status,
    )
    return outcome, _through(said.get("clock"), gateway)


def _through(measured: Any, gateway: Clock) -> Clock | None:
    """A node's clock against the console's, by way of the gateway's."""
    if (
        not isinstance(measured, list)
        or len(measured) != 3
        or not all(type(x) is int for x in measured)
    ):
        return None
    at_ns, offset_ns, error_ns = measured
    return Clock(at_ns, offset_ns + gateway.offset_ns, max(0, error_ns) + gateway.error_ns)
