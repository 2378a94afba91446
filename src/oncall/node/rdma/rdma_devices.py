"""RDMA devices as sysfs lists them: what each is, where it hangs, and its network interface."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from oncall.evidence.codes.pci_addresses import pci_address
from oncall.node.common.system_files import read_text, whole_number
from oncall.node.host.pci import PciPlace, pci_place

_MODELS = {  # of ConnectX, by the number that the driver gives as hca_type
    "MT4115": "ConnectX-4",
    "MT4117": "ConnectX-4 Lx",
    "MT4119": "ConnectX-5",
    "MT4121": "ConnectX-5 Ex",
    "MT4123": "ConnectX-6",
    "MT4125": "ConnectX-6 Dx",
    "MT4127": "ConnectX-6 Lx",
    "MT4129": "ConnectX-7",
    "MT4131": "ConnectX-8",
    "MT41686": "BlueField-2",
    "MT41692": "BlueField-3",
}
_MOST_GIDS = 16  # those with addresses come first


@dataclass(frozen=True)
class RdmaDevice:
    """One RDMA device. `statistics_interface` is the interface whose driver counts for it: of a
    bond, which bears the address, it is the first port. None: not known, or there is none.
    `is_infiniband`: it is neither RoCE nor iWARP."""

    name: str
    ports: tuple[int, ...]
    pci_bus: str | None
    pci: PciPlace
    model: str | None
    firmware: str | None
    address: str | None
    interface: str | None
    statistics_interface: str | None
    is_infiniband: bool


def device_names(root: Path) -> list[str] | None:
    """The RDMA devices that are there now; None if the kernel has no RDMA."""
    try:
        return sorted(path.name for path in folder(root).iterdir())
    except OSError:
        return None


def folder(root: Path) -> Path:
    """Where they are listed."""
    return root / "sys" / "class" / "infiniband"


def read_device(root: Path, name: str) -> RdmaDevice:
    """What is known of a device; a device that has just gone has no values."""
    place = folder(root) / name
    ports = tuple(_ports(place / "ports"))
    pci_bus = _pci_bus(place / "device")
    below = sorted(_names(place / "device" / "net"))
    interfaces = [_gid_interface(place / "ports" / str(port)) for port in ports[:1]]
    interface = next((found for found in (*interfaces, *below) if found), None)
    return RdmaDevice(
        name=name,
        ports=ports,
        pci_bus=pci_bus,
        pci=pci_place(root, pci_bus) if pci_bus else PciPlace(),
        model=_model(place),
        firmware=read_text(place / "fw_ver") or None,
        address=next((found for port in ports if (found := _address(place, port))), None),
        interface=interface,
        # Beside its own interface a device may have those of its virtual functions.
        statistics_interface=below[0] if below and interface not in below else interface,
        is_infiniband=any(_link_layer(place, port) == "InfiniBand" for port in ports),
    )


def _names(place: Path) -> list[str]:
    try:
        return [path.name for path in place.iterdir()]
    except OSError:
        return []


def _ports(place: Path) -> Iterator[int]:
    for number in sorted(map(whole_number, _names(place)), key=lambda port: port or 0):
        if number is not None and number > 0:
            yield number


def _pci_bus(link: Path) -> str | None:
    try:
        return pci_address(link.resolve(strict=True).name)
    except (OSError, RuntimeError):
        return None  # a device in software has none


def _model(place: Path) -> str | None:
    hca_type = read_text(place / "hca_type")
    return f"{_MODELS[hca_type]} ({hca_type})" if hca_type in _MODELS else hca_type or None


def _gid_interface(port: Path) -> str | None:
    """The interface that bears the port's addresses (RoCE)."""
    for index in range(_MOST_GIDS):
        found = read_text(port / "gid_attrs" / "ndevs" / str(index))
        if found:
            return found
    return None


def _address(place: Path, port: int) -> str | None:
    """The port's IP address, which RoCE puts into its GIDs: IPv4 if it has one."""
    addresses = []
    for index in range(_MOST_GIDS):
        gid = read_text(place / "ports" / str(port) / "gids" / str(index))
        try:
            address = ipaddress.IPv6Address(gid or "")
        except ValueError:
            continue
        if address.ipv4_mapped:
            return str(address.ipv4_mapped)
        if not address.is_link_local and not address.is_unspecified:
            addresses.append(str(address))
    is_roce = _link_layer(place, port) == "Ethernet"
    return addresses[0] if addresses and is_roce else None


def _link_layer(place: Path, port: int) -> str | None:
    return read_text(place / "ports" / str(port) / "link_layer")
