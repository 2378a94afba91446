"""This node's RDMA NICs with their network interfaces and addresses, from which probes are sent."""

from __future__ import annotations

import fcntl
import ipaddress
import re
import socket
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from oncall.node.common.system_files import read_text

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
