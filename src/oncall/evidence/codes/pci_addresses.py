"""Addresses of PCI devices, in the spellings of sysfs, NVML and the kernel log."""

from __future__ import annotations

import re

_ADDRESS = re.compile(r"(?:[0-9a-f]{4,8}:)?[0-9a-f]{2}:[0-9a-f]{2}(?:\.[0-7])?")


def is_pci_address(text: str) -> bool:
    """Whether the text is an address, as sysfs spells it or without its domain or function."""
    return _ADDRESS.fullmatch(text) is not None


def pci_address(text: str) -> str | None:
    """An address as sysfs spells it, `0000:18:00.0`, from the spellings of NVML
    (`00000000:18:00.0`) and of the kernel log (`0000:18:00`); None if it is none."""
    address = text.strip().lower()
    if not is_pci_address(address):
        return None
    domain, bus, device = ["0", *address.split(":")][-3:]
    slot, _, function = device.partition(".")
    return f"{int(domain, 16):04x}:{bus}:{slot}.{function or 0}"
