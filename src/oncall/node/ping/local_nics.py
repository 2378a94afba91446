"""This node's RDMA NICs with their network interfaces and addresses, from which probes are sent."""

from __future__ import annotations

import fcntl
import ipaddress
import random
import re
import socket
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from oncall.node.common.system_files import read_text
from oncall.node.ping.stamped_socket import Address

_SIOCGIFADDR = 0x8915
_NAME_BYTES = 15
# Nothing is sent there: it only makes the kernel choose a route (RFC 5737).
_SOMEWHERE = ("192.0.2.1", 9)


@dataclass(frozen=True)
class LocalNic:
    """A NIC that probes can leave by. `nic` is the RDMA device, or the interface where there is
    none; `port` the RDMA port, 0 without RDMA."""

    nic: str
    interface: str
    address: str
    port: int = 0


def local_nics(root: Path = Path("/")) -> list[LocalNic]:
    """NICs in their order, NIC k being rail k: every RDMA port with an interface that has an
    address; without any, the interface of the default route, or else loopback."""
    found = []
    for device in sorted((root / "sys/class/infiniband").glob("*"), key=_natural):
        for port in sorted((device / "ports").glob("*"), key=_natural):
            interface = _interface(port)
            address = interface and interface_address(interface, root)
            if interface and address:
                found.append(LocalNic(device.name, interface, address, int(port.name)))
    return found or [default_nic(root)]


def default_nic(root: Path = Path("/")) -> LocalNic:
    """The interface that the default route goes by, loopback where there is none."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as unsent:
        try:
            unsent.connect(_SOMEWHERE)
            address = unsent.getsockname()[0]
        except OSError:
            return LocalNic("lo", "lo", "127.0.0.1")
    for _, name in socket.if_nameindex():
        if interface_address(name, root) == address:
            return LocalNic(name, name, address)
    return LocalNic("lo", "lo", "127.0.0.1")


def interface_address(interface: str, root: Path = Path("/")) -> str | None:
    """Its IPv4 address, or else its global IPv6 one."""
    request = struct.pack("16s24x", interface.encode()[:_NAME_BYTES])
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        try:
            answer = fcntl.ioctl(asking, _SIOCGIFADDR, request)
            return socket.inet_ntoa(answer[20:24])
        except OSError:
            return _ipv6_address(interface, root)


def nics_by_index(nics: Sequence[LocalNic]) -> dict[int, str]:
    """Interface number -> NIC, of all interfaces that there are now."""
    named = {each.interface: each.nic for each in nics}
    return {index: named.get(name, name) for index, name in socket.if_nameindex()}


def _ipv6_address(interface: str, root: Path) -> str | None:
    for line in (read_text(root / "proc/net/if_inet6") or "").splitlines():
        fields = line.split()
        if len(fields) == 6 and fields[5] == interface and fields[3] == "00":  # scope global
            try:
                return str(ipaddress.IPv6Address(int(fields[0], 16)))
            except ValueError:
                continue
    return None


def _interface(port: Path) -> str | None:
    """The network interface of an RDMA port, by its first GID that names one."""
    for path in sorted((port / "gid_attrs/ndevs").glob("*"), key=_natural):
        if name := read_text(path):
            return name
    return None


def _natural(path: Path) -> list[tuple[int, str]]:
    """mlx5_2 before mlx5_10; ports that are no number last."""
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in _split(path.name)]


def _split(name: str) -> list[str]:
    return [part for part in re.split(r"(\d+)", name) if part]


# Who pings whom (TFD 3.3's pinglist): this node's NICs and those of the nodes listed.
#
# mesh    every NIC here pings every NIC there
# rail    NIC k here pings NIC k there: what one switch connects in a fabric built by rails

By = Literal["mesh", "rail"]


@dataclass(frozen=True)
class Pair:
    """NIC number `here` pings `node` at what `name` resolves to."""

    here: int
    node: str
    name: str


def pairs(nics: Sequence[LocalNic], nodes: Sequence[str], by: By, rail_name: str) -> list[Pair]:
    """All pairs of a pinglist.

    `rail_name` says under which name NIC k of a node is known, such as `{node}-rail{rail}`; as
    plain `{node}` all NICs of a node are reached at its one address."""
    rails = range(len(nics))
    found = [
        Pair(here, node, rail_name.format(node=node, rail=there))
        for node in nodes
        for here in rails
        for there in (rails if by == "mesh" else (here,))
    ]
    return list(dict.fromkeys(found))


def check_rail_name(template: str) -> str:
    """The template. Raises ValueError where it cannot be filled in."""
    try:
        template.format(node="gpu001", rail=0)
    except (LookupError, ValueError, AttributeError, TypeError):
        raise ValueError(f"{template!r} is filled in with {{node}} and {{rail}} only") from None
    return template


class Turns:
    """Whose turn it is: each pair once a round, in another order each round, so that the nodes of
    a fleet do not all ping the same one at once."""

    def __init__(self, pairs: Sequence[Pair], chance: random.Random) -> None:
        self._pairs = list(pairs)
        self._chance = chance
        self._left: list[Pair] = []

    def next(self) -> Pair | None:
        """The next pair; None where the list is empty."""
        if not self._left:
            self._left = self._chance.sample(self._pairs, len(self._pairs))
        return self._left.pop() if self._left else None

    def wait_ns(self, every_ns: int) -> int:
        """How long until the next turn: `every_ns` on average."""
        return round(every_ns * self._chance.uniform(0.5, 1.5))


def resolve(name: str, port: int, like: str) -> Address:
    """The address of a name, of the same family as the address `like`. Raises OSError."""
    family = socket.AF_INET6 if ":" in like else socket.AF_INET
    found = socket.getaddrinfo(name, port, family, socket.SOCK_DGRAM)
    return found[0][4]
