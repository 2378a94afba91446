"""Where GPUs and NICs sit, which processes use them, and how NICs are cabled."""

from __future__ import annotations

from typing import Any

from oncall_lab.training.measured.machine import Fleet


def device_rows(fleet: Fleet, devices: list[int]) -> dict[str, list[Any]]:
    """Columns of the table `devices` but its instant: a GPU and a NIC for each of `devices`."""
    columns: dict[str, list[Any]] = {name: [] for name in _COLUMNS}
    machine = fleet.machine
    for device in devices:
        rail, node = int(fleet.device_rail[device]), int(fleet.device_node[device])
        gpu = (str(rail), machine.gpu, "570.124.06", None, None)
        address = f"10.{10 + rail}.{node // 250}.{node % 250 + 1}"
        nic = (
            fleet.nic_name(device), machine.nic, machine.nic_firmware, address,
            fleet.interface(device),
        )  # fmt: skip
        for kind, (name, model, firmware, ip, interface) in (("gpu", gpu), ("nic", nic)):
            row = (
                fleet.node_name(device), kind, name, fleet.pci_bus(device, kind),
                fleet.pcie_port(device), fleet.numa_node(device), model, firmware, ip, interface,
            )  # fmt: skip
            for column, value in zip(_COLUMNS, row, strict=True):
                columns[column].append(value)
    return columns


def link_rows(fleet: Fleet) -> dict[str, list[Any]]:
    """Columns of the table `links`: NIC k of every node hangs on top-of-rack switch (rail) k."""
    devices = range(fleet.world_size)
    return {
        "a": [f"{fleet.node_name(d)}/{fleet.nic_name(d)}" for d in devices],
        "a_port": [1 for _ in devices],
        "b": [fleet.switch_name(d) for d in devices],
        "b_port": [int(fleet.device_node[d]) + 1 for d in devices],
        "rate_bytes_per_s": [fleet.machine.line_bytes_per_s for _ in devices],
    }


_COLUMNS = (
    "node", "kind", "device", "pci_bus", "pcie_port", "numa_node", "model", "firmware", "address",
    "interface",
)  # fmt: skip
