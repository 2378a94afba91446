"""What a node may be asked to probe: to listen, to ping others, to send bytes to others.

Each is bounded here, by the node's side: a console that asks for more is refused.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal, cast, get_args

from oncall.node.store.wire import Request, WireError

Do = Literal["listen", "ping", "send"]

MOST_TARGETS = 256  # of one request
MOST_COUNT = 200  # pings of one target
MOST_PINGS = 2_000  # of one request: ten seconds
_MOST_NAME = 255


@dataclass(frozen=True)
class ProbeTarget:
    """Whom to probe: NIC `here` of the node that is asked (by number), the target's node and NIC,
    and where that listens."""

    here: int
    node: str
    nic: str
    address: str
    udp_port: int
    tcp_port: int


@dataclass(frozen=True)
class ProbeRequest:
    """`listen`: answer pings and take bytes until the connection closes. `ping`: each target
    `count` times. `send`: bytes to each target, one after the other."""

    do: Do
    targets: tuple[ProbeTarget, ...] = ()
    count: int = 0

    def request(self) -> Request:
        """As it is sent."""
        return Request("probe", probe=asdict(self))


def parse_probe(request: Mapping[str, Any] | None) -> ProbeRequest:
    """The probe that a request asks for. Raises WireError (reason `request`)."""
    request = request or {}
    do, targets, count = request.get("do"), request.get("targets", []), request.get("count", 0)
    if do not in get_args(Do):
        raise WireError(f"probes are {', '.join(get_args(Do))}", "request")
    if not isinstance(targets, list) or len(targets) > MOST_TARGETS:
        raise WireError(f"a probe has at most {MOST_TARGETS} targets", "request")
    if not _is_number(count, 0, MOST_COUNT):
        raise WireError(f"a probe pings each target up to {MOST_COUNT} times", "request")
    if count * len(targets) > MOST_PINGS:
        raise WireError(f"a request is for at most {MOST_PINGS:,} pings", "request")
    return ProbeRequest(cast(Do, do), tuple(map(_target, targets)), count)


def _target(target: Any) -> ProbeTarget:
    names = ("here", "node", "nic", "address", "udp_port", "tcp_port")
    if not isinstance(target, dict) or any(name not in target for name in names):
        raise WireError(f"a target of a probe has {', '.join(names)}", "request")
    here, node, nic, address, udp_port, tcp_port = (target[name] for name in names)
    whole = _is_number(here, 0, 1023) and all(
        _is_number(port, 0, 65535) for port in (udp_port, tcp_port)
    )
    named = all(
        isinstance(name, str) and len(name) <= _MOST_NAME and name.isprintable()
        for name in (node, nic)
    )
    if not whole or not named:
        raise WireError("a target of a probe has an invalid number or name", "request")
    try:
        ipaddress.ip_address(address)
    except ValueError:
        raise WireError("the address of a probe's target is not an IP address", "request") from None
    return ProbeTarget(here, node, nic, address, udp_port, tcp_port)


def _is_number(value: Any, least: int, most: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= most
