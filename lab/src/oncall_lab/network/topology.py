"""A fat tree of hosts and switches, its links and their egress ports (Al-Fares et al. 2008).

`k` pods each have k/2 edge and k/2 aggregation switches; (k/2)^2 core switches join the pods, and
each edge switch has k/2 hosts. A link has two egress ports, one at each end: numbers 2l and 2l + 1,
so that the port at the other end of `port` is `port ^ 1`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np

from oncall_lab.arrays import Ints


@dataclass(frozen=True)
class FatTree:
    """The fat tree of even `k`. Devices are numbered: hosts, edge, aggregation, core switches."""

    k: int

    @property
    def half(self) -> int:
        """Hosts of an edge switch, uplinks of any switch, switches of a layer in a pod."""
        return self.k // 2

    @property
    def hosts(self) -> int:
        return self.k * self.half**2

    @property
    def switches(self) -> int:
        return self.k * self.k + self.half**2

    def edge_of(self, host: int) -> int:
        """The edge switch of a host."""
        return self.hosts + host // self.half

    def pod_of(self, host: int) -> int:
        return host // self.half**2

    def edge(self, pod: int, place: int) -> int:
        return self.hosts + pod * self.half + place

    def aggregation(self, pod: int, place: int) -> int:
        return self.hosts + self.k * self.half + pod * self.half + place

    def core(self, plane: int, place: int) -> int:
        """Core switches of a plane lead to the aggregation switches of that place in each pod."""
        return self.hosts + self.k * self.k + plane * self.half + place

    def is_host(self, device: int) -> bool:
        return device < self.hosts

    @cached_property
    def links(self) -> Ints:
        """(links, 2) devices; the first is nearer to the hosts."""
        half, pods = range(self.half), range(self.k)
        down = [(host, self.edge_of(host)) for host in range(self.hosts)]
        middle = [
            (self.edge(p, e), self.aggregation(p, a)) for p in pods for e in half for a in half
        ]
        up = [(self.aggregation(p, a), self.core(a, c)) for p in pods for a in half for c in half]
        return np.array([*down, *middle, *up], np.int64)

    @cached_property
    def device_of(self) -> Ints:
        """(ports,) the device that sends through each egress port."""
        return self.links.ravel()

    @cached_property
    def towards(self) -> Ints:
        """(ports,) the device at the other end."""
        return self.links[:, ::-1].ravel()

    @cached_property
    def number(self) -> Ints:
        """(ports,) what each port is called at its device: from 1 in the order of its links."""
        used: dict[int, int] = {}
        numbers = []
        for device in self.device_of.tolist():
            used[device] = used.get(device, 0) + 1
            numbers.append(used[device])
        return np.array(numbers, np.int64)

    @cached_property
    def between(self) -> dict[tuple[int, int], int]:
        """The egress port from one device to a neighbour."""
        ends = zip(self.device_of.tolist(), self.towards.tolist(), strict=True)
        return {pair: port for port, pair in enumerate(ends)}

    def name(self, device: int) -> str:
        return f"host{device}" if self.is_host(device) else f"SW{device - self.hosts}"

    def label(self, port: int) -> str:
        """As operators write it: SW5P1."""
        return f"{self.name(int(self.device_of[port]))}P{self.number[port]}"

    def ports_along(self, devices: list[int]) -> tuple[int, ...]:
        """The egress ports of a way from device to neighbouring device."""
        return tuple(self.between[pair] for pair in pairwise(devices))
