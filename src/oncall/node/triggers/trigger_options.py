"""Options of source `triggers`."""

from __future__ import annotations

from dataclasses import dataclass

from oncall.core.units import NS_PER_S
from oncall.node.common.declaration import Polled
from oncall.node.common.options import option
from oncall.node.ping.ping_packet import DEFAULT_PORT


@dataclass(frozen=True)
class TriggerOptions(Polled):
    """Without `capture` nothing is opened, read or sent."""

    every_ns: int = option("duration", "how often to check whether ranks still send")
    capture: bool = option(
        "truth", "whether the network is captured in detail where a step is delayed", default=False
    )
    stall_ns: int = option(
        "duration",
        "a flow with posted data and no acknowledgement for this long has stalled",
        default=NS_PER_S // 2,
    )
    secret: str = option(
        "name",
        "a file with the secret with which collectors hand detections over; "
        "empty: they do not, and no port is opened",
        default="",
    )
    address: str = option(
        "name", 'the address that receives them; empty: all IPv4 addresses, "::": all', default=""
    )
    port: int = option("port", "the UDP port for them, on both sides", default=DEFAULT_PORT + 1)
