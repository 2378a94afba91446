"""The round trip that a step's packets should have, from the path they take (Vedrfolnir III-C2).

One threshold for all flows is too low for long paths and too high for short ones, and in
halving-doubling the path changes from step to step. So each step has its own.
"""

from __future__ import annotations

from dataclasses import dataclass

TOLERATED = 1.2  # times the base: where precision is best for all families (Vedrfolnir figure 12)
CABLE_NS = 150.0  # 30 m at 5 ns/m, as between a rack and its row's switches
SWITCH_NS = 600.0  # a store-and-forward port of an Ethernet switch, empty
HOST_NS = 1_000.0  # NIC and PCIe, both ends, there and back
PACKET_BYTES, ANSWER_BYTES = 4_096 + 58, 64  # a full RoCEv2 packet and its acknowledgement
QUEUED_BYTES = 30_000.0  # in a port with nothing wrong: a burst of seven packets
BUFFER_BYTES = 12e6  # of a switch of 100 Gbit/s ports, all of it: 1 ms of one port


@dataclass(frozen=True)
class Way:
    """The way of a step's flow: its links, hosts' included, and the rate of the slowest."""

    links: int
    bytes_per_s: float

    def __post_init__(self) -> None:
        if self.links < 1 or not self.bytes_per_s > 0:
            raise ValueError(f"no path has {self.links} links of {self.bytes_per_s} bytes/s")


def base_rtt_ns(way: Way) -> float:
    """What a packet and its acknowledgement take through empty queues."""
    wires_ns = 2 * (way.links * CABLE_NS + (way.links - 1) * SWITCH_NS)
    return HOST_NS + wires_ns + way.links * _on_wire_ns(PACKET_BYTES + ANSWER_BYTES, way)


def threshold_ns(way: Way, tolerated: float = TOLERATED) -> float:
    """The round trip beyond which a packet has waited behind more than the baseline."""
    return tolerated * (base_rtt_ns(way) + _on_wire_ns(QUEUED_BYTES, way))


def late_ns(bytes_: float, way: Way, tolerated: float = TOLERATED) -> float:
    """How long a step of this many bytes may take on a path that it has to itself."""
    return tolerated * (base_rtt_ns(way) + _on_wire_ns(bytes_, way))


def longest_pause_ns(way: Way) -> float:
    """How long a flow may pause where queues drain: a pause ends when the buffer behind it
    has drained, and each switch of the way may be stopped by the next. (A single pause frame holds
    for 65,535 quanta of 512 bits, a third of this at any rate; it is sent again while needed.)"""
    full_ns = _on_wire_ns(BUFFER_BYTES, way)
    return base_rtt_ns(way) + max(1, way.links - 1) * full_ns


def _on_wire_ns(bytes_: float, way: Way) -> float:
    return bytes_ / way.bytes_per_s * 1e9
