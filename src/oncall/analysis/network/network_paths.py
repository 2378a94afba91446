"""The network's links as arrays: which port leads where, and which ports lie on shortest paths.

Ports are egress ports, one for each end of each link. What multipath routing chose for a flow is
not known from the topology; which ports it cannot have chosen is.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import duckdb
import numpy as np
from numpy.typing import NDArray

Integers = NDArray[np.int64]
Flags = NDArray[np.bool_]
Port = tuple[str, int]  # device, port

UNKNOWN = "behind "
FAR = np.int16(1 << 14)


@dataclass(frozen=True)
class Network:
    """`ports` (n,) with, for each, its device's and its link's other end's number, and the port
    that leads back."""

    devices: tuple[str, ...]
    ports: tuple[Port, ...]
    device_of: Integers
    towards: Integers
    back: Integers

    @cached_property
    def number(self) -> dict[Port, int]:
        """A port's place in all arrays."""
        return {port: number for number, port in enumerate(self.ports)}

    @cached_property
    def device(self) -> dict[str, int]:
        """A device's number."""
        return {name: number for number, name in enumerate(self.devices)}

    @cached_property
    def of_device(self) -> dict[int, list[int]]:
        """The ports of each device."""
        found: dict[int, list[int]] = {}
        for port, device in enumerate(self.device_of.tolist()):
            found.setdefault(device, []).append(port)
        return found

    @cached_property
    def hosts(self) -> Integers:
        """Devices with one link: traffic begins and ends there, and passes none of them."""
        return np.flatnonzero(np.bincount(self.device_of, minlength=len(self.devices)) == 1)

    @cached_property
    def distances(self) -> NDArray[np.int16]:
        """(hosts, devices): links from a device to a host. All hosts advance at once."""
        away = np.full((len(self.hosts), len(self.devices)), FAR, np.int16)
        away[np.arange(len(self.hosts)), self.hosts] = 0
        order = np.argsort(self.device_of, kind="stable")
        starts = np.searchsorted(self.device_of[order], np.arange(len(self.devices)))
        linked = np.bincount(self.device_of, minlength=len(self.devices)) > 0
        while True:
            near = np.minimum.reduceat(away[:, self.towards[order]], starts[linked], axis=1) + 1
            nearer = away.copy()
            nearer[:, linked] = np.minimum(away[:, linked], near.astype(np.int16))
            if np.array_equal(nearer, away):
                return away
            away = nearer

    def host_behind(self, port: int) -> str | None:
        """The host that a port leads to, if it is one and known."""
        device = int(self.towards[port])
        name = self.devices[device]
        return name if device in self.hosts and not name.startswith(UNKNOWN) else None

    def row_of(self, host: str) -> int | None:
        """A host's row in `distances`."""
        device = self.device.get(host)
        row = np.searchsorted(self.hosts, device) if device is not None else len(self.hosts)
        return int(row) if row < len(self.hosts) and self.hosts[row] == device else None

    def on_paths(self, src: str, dst: str) -> Flags:
        """Ports that lie on some shortest path between two hosts; none if one is unknown."""
        a, b = self.row_of(src), self.row_of(dst)
        if a is None or b is None:
            return np.zeros(len(self.ports), np.bool_)
        from_src, to_dst = self.distances[a], self.distances[b]
        whole = from_src[self.hosts[b]]
        ahead = from_src[self.device_of] + 1 + to_dst[self.towards]
        return np.asarray(ahead == whole)

    @cached_property
    def _followed(self) -> dict[int, tuple[int, ...]]:
        """What `follows` was asked before: the same ports are, for every step."""
        return {}

    def follows(self, port: int) -> tuple[int, ...]:
        """Ports of the device that `port` leads to, which traffic to some host takes next."""
        if port not in self._followed:
            self._followed[port] = self._find_following(port)
        return self._followed[port]

    def _find_following(self, port: int) -> tuple[int, ...]:
        here, there = self.device_of[port], self.towards[port]
        heading = self.distances[:, here] == self.distances[:, there] + 1
        return tuple(
            after
            for after in self.of_device.get(int(there), [])
            if self.towards[after] != here
            and bool(
                np.any(
                    heading
                    & (self.distances[:, there] == self.distances[:, self.towards[after]] + 1)
                )
            )
        )


def network(links: Sequence[tuple[str, int, str, int]]) -> Network:
    """The network of links (device, port, device, port), each usable both ways."""
    both = [end for a, i, b, j in links for end in ((a, i, b, j), (b, j, a, i))]
    both = list(dict.fromkeys(both))
    devices = tuple(dict.fromkeys(name for a, _, b, _ in both for name in (a, b)))
    number = {name: place for place, name in enumerate(devices)}
    place = {(a, i): n for n, (a, i, _, _) in enumerate(both)}
    return Network(
        devices,
        tuple((a, i) for a, i, _, _ in both),
        np.array([number[a] for a, _, _, _ in both], np.int64),
        np.array([number[b] for _, _, b, _ in both], np.int64),
        np.array([place[b, j] for _, _, b, j in both], np.int64),
    )


def network_of(con: duckdb.DuckDBPyConnection) -> Network:
    """The network of the table `links`; other ports that reported lead to devices unknown."""
    rows = con.execute(
        f"""
        WITH linked AS (
            SELECT DISTINCT a, a_port, b, b_port FROM links
            WHERE a IS NOT NULL AND b IS NOT NULL AND a_port IS NOT NULL AND b_port IS NOT NULL),
        ends AS (
            SELECT a AS switch, a_port AS port FROM linked UNION SELECT b, b_port FROM linked),
        reported AS (
            SELECT switch, port FROM switch_ports UNION SELECT switch, port FROM switch_flows
            UNION SELECT switch, port FROM switch_pauses)
        FROM linked UNION ALL
        SELECT switch, port, '{UNKNOWN}' || switch || ' port ' || port, 1
        FROM reported ANTI JOIN ends USING (switch, port)
        WHERE switch IS NOT NULL AND port IS NOT NULL
        ORDER BY ALL"""
    ).fetchall()
    return network(rows)


def label(port: Port) -> str:
    """`SW5P1`: how operators and papers write a port."""
    return f"{port[0]}P{port[1]}"


def labels(ports: Iterable[Port]) -> list[str]:
    """All of them."""
    return [label(port) for port in ports]
