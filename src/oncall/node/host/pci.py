"""Where a PCI device is attached, the switch or port above it and its NUMA node, and what its link
does, as sysfs states them.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from oncall.evidence.codes.pci_addresses import is_pci_address
from oncall.node.common.system_files import read_number, read_text, whole_number


@dataclass(frozen=True)
class PciPlace:
    """`path` are the addresses of the ports above a device, the root port first; empty: not
    known, or nothing is above it."""

    path: tuple[str, ...] = ()
    numa_node: int | None = None

    @property
    def port(self) -> str | None:
        """The nearest switch, or the root port where there is no switch: devices that share it
        exchange data without crossing the processor."""
        # A switch shows as its upstream port with a downstream port for each device.
        return self.path[-2] if len(self.path) > 1 else self.path[0] if self.path else None


def pci_place(root: Path, address: str) -> PciPlace:
    """The place of the device at `address`, as `root`/sys states it."""
    device = root / "sys" / "bus" / "pci" / "devices" / address
    try:
        *path, _ = [part for part in device.resolve().parts if is_pci_address(part)]
    except (OSError, RuntimeError, ValueError):
        return PciPlace()
    numa_node = read_number(device / "numa_node")
    return PciPlace(tuple(path), None if numa_node in (None, -1) else numa_node)


def nvidia_gpus(root: Path) -> list[str]:
    """Addresses of NVIDIA's GPUs on the bus, whether a driver serves them or not."""
    found = []
    for device in sorted((root / "sys" / "bus" / "pci" / "devices").glob("*:*")):
        is_display = (read_text(device / "class") or "").startswith("0x03")
        if is_display and read_text(device / "vendor") == "0x10de":
            found.append(device.name)
    return found


_GENERATIONS = {"2.5": 1, "5.0": 2, "8.0": 3, "16.0": 4, "32.0": 5, "64.0": 6}  # by GT/s a lane


def pcie_link(device: Path) -> dict[str, int | None]:
    """The link of the PCI device whose folder in sysfs this is, by column; None where it is not
    known: in a virtual machine, or of a device that has gone to sleep."""
    return {
        "pcie_gen": generation(read_text(device / "current_link_speed")),
        "pcie_gen_max": generation(read_text(device / "max_link_speed")),
        "pcie_width": _width(read_text(device / "current_link_width")),
        "pcie_width_max": _width(read_text(device / "max_link_width")),
    }


def generation(speed: str | None) -> int | None:
    """The generation of a speed such as `16.0 GT/s PCIe`; `Unknown` is None."""
    lane, _, unit = (speed or "").partition(" ")
    return _GENERATIONS.get(lane if "." in lane else f"{lane}.0") if unit[:4] == "GT/s" else None


def _width(text: str | None) -> int | None:
    lanes = whole_number(text)
    return lanes if lanes is not None and 0 < lanes <= 32 else None  # 0 and 255: unknown
