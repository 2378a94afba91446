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
        metadata=option("duration", "how often it is asked whether what ranks send stopped")
    )
    capture: bool = field(
        default=False,
        metadata=option(
            "truth", "whether the network is looked at closely where a step is held up"
        ),
    )
    stall_ns: int = field(
        default=NS_PER_S // 2,
        metadata=option(
            "duration", "nothing of what was posted is acknowledged for so long: a standstill"
        ),
    )
    secret: str = field(
        default="",
        metadata=option(
            "name",
            "a file with the secret by which collectors hand detections over; "
            "empty: they do not, and nothing listens",
        ),
    )
    address: str = field(
        default="",
        metadata=option(
            "name", 'the address that takes them; empty: every IPv4 one, "::" every one'
        ),
    )
    port: int = field(
        default=DEFAULT_PORT + 1,
        metadata=option("port", "the UDP port of it, here and there"),
    )
