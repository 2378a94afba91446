"""The PCIe link of a device, as sysfs states it: its generation and width, now and at most."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from oncall.node.common.system_files import read_text, whole_number

_GENERATIONS = {"2.5": 1, "5.0": 2, "8.0": 3, "16.0": 4, "32.0": 5, "64.0": 6}  # by GT/s a lane


@dataclass(frozen=True)
class PcieLink:
    """None where it is not known: in a virtual machine, or of a device that has gone to sleep."""

    pcie_gen: int | None = None
    pcie_gen_max: int | None = None
    pcie_width: int | None = None
    pcie_width_max: int | None = None


def pcie_link(device: Path) -> PcieLink:
    """The link of the PCI device whose folder in sysfs this is."""
    return PcieLink(
        generation(read_text(device / "current_link_speed")),
        generation(read_text(device / "max_link_speed")),
        _width(read_text(device / "current_link_width")),
        _width(read_text(device / "max_link_width")),
    )


def generation(speed: str | None) -> int | None:
    """The generation of a speed such as `16.0 GT/s PCIe`; `Unknown` is None."""
    lane, _, unit = (speed or "").partition(" ")
    return _GENERATIONS.get(lane if "." in lane else f"{lane}.0") if unit[:4] == "GT/s" else None


def _width(text: str | None) -> int | None:
    lanes = whole_number(text)
    return lanes if lanes is not None and 0 < lanes <= 32 else None  # 0 and 255: unknown
