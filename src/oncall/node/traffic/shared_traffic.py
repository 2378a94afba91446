"""The memory of recent traffic that the sources of a collector share, and the options of source
`traffic`, which finds operations in it."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from oncall.node.common.declaration import Polled, Surroundings
from oncall.node.common.options import option
from oncall.node.traffic.recent_traffic import RecentTraffic


@dataclass(frozen=True)
class TrafficOptions(Polled):
    """Options of source `traffic`."""

    every_ns: int = field(
        metadata=option("duration", "how often operations are searched for in the traffic")
    )
    memory_bytes: int = field(
        default=48 * 2**20,
        metadata=option(
            "bytes",
            "memory for the last minute's epochs, of all queue pairs; the oldest go first",
        ),
    )


def recent_traffic(surroundings: Surroundings) -> RecentTraffic:
    """An empty one, as large as it is configured; see `Surroundings.shared`."""
    memory_bytes = surroundings.options.of(TrafficOptions).memory_bytes
    return RecentTraffic(memory_bytes, whole_since_ns=time.time_ns())
