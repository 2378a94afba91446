"""Options of source `triggers`."""

from __future__ import annotations

from dataclasses import dataclass, field

from oncall.core.units import NS_PER_S
from oncall.node.common.declaration import Polled
from oncall.node.common.options import option
from oncall.node.ping.ping_packet import DEFAULT_PORT


@dataclass(frozen=True)
class TriggerOptions(Polled):
    """Without `capture` nothing is opened, read or sent."""

    every_ns: int = field(
        metadata=option("duration", "how often to check whether ranks still send")
    )
    capture: bool = field(
        default=False,
        metadata=option(
            "truth", "whether the network is captured in detail where a step is delayed"
        ),
    )
    stall_ns: int = field(
        default=NS_PER_S // 2,
        metadata=option(
            "duration", "a flow with posted data and no acknowledgement for this long has stalled"
        ),
    )
    secret: str = field(
        default="",
        metadata=option(
            "name",
            "a file with the secret with which collectors hand detections over; "
            "empty: they do not, and no port is opened",
        ),
    )
    address: str = field(
        default="",
        metadata=option(
            "name", 'the address that receives them; empty: all IPv4 addresses, "::": all'
        ),
    )
    port: int = field(
        default=DEFAULT_PORT + 1,
        metadata=option("port", "the UDP port for them, on both sides"),
    )
