"""Lines that the kernel writes, as its drivers word them, with the code a collector gives them."""

from __future__ import annotations

from oncall_lab.training.measured.condition import Event
from oncall_lab.training.measured.machine import Fleet


class KernelLog:
    """Writes lines about the devices of a fleet."""

    def __init__(self, fleet: Fleet, events: list[Event]) -> None:
        self.fleet = fleet
        self.events = events

    def _say(self, node: int, at_ns: float, code: str, device: str | None, text: str) -> None:
        self.events.append(Event(node, at_ns, "kernel", code, device, text))

    def _nic(self, device: int, at_ns: float, code: str, text: str) -> None:
        bus = self.fleet.pci_bus(device, "nic")
        node = int(self.fleet.device_node[device])
        self._say(node, at_ns, code, bus, f"mlx5_core {bus}{text}")

    def link_down(self, device: int, at_ns: float) -> None:
        self._nic(device, at_ns, "link_down", f" {self.fleet.interface(device)}: Link down")

    def link_up(self, device: int, at_ns: float) -> None:
        self._nic(device, at_ns, "link_up", f" {self.fleet.interface(device)}: Link up")

    def nic_health(self, device: int, at_ns: float) -> None:
        text = ": poll_health:825:(pid 0): device's health compromised - reached miss count"
        self._nic(device, at_ns, "nic_health", text)

    def nic_command_timeout(self, device: int, at_ns: float) -> None:
        text = (
            ": wait_func:1130:(pid 812): ACCESS_REG(0x805) timeout. "
            "Will cause a leak of a command resource"
        )
        self._nic(device, at_ns, "nic_command_timeout", text)

    def cable_error(self, device: int, at_ns: float) -> None:
        text = ": Port module event[error]: module 0, Cable error, Bad or shorted cable/module"
        self._nic(device, at_ns, "cable_error", text)

    def aer_corrected(self, device: int, at_ns: float) -> None:
        text = (
            ": PCIe Bus Error: severity=Corrected, type=Data Link Layer, (Transmitter ID): "
            "[12] Timeout"
        )
        self._nic(device, at_ns, "aer_corrected", text)

    def port_aer(self, device: int, at_ns: float, *, corrected: bool) -> None:
        """Of the port above a device."""
        port = self.fleet.pcie_port(device)
        how = "Corrected" if corrected else "Uncorrected (Non-Fatal)"
        code = "aer_corrected" if corrected else "aer_uncorrected"
        text = f"pcieport {port}: PCIe Bus Error: severity={how}, type=Transaction Layer"
        self._say(int(self.fleet.device_node[device]), at_ns, code, port, text)

    def xid(self, device: int, at_ns: float, number: int, said: str) -> None:
        bus = self.fleet.pci_bus(device, "gpu")
        text = f"NVRM: Xid (PCI:{bus.rsplit('.', 1)[0]}): {number}, {said}"
        code = f"xid_{number}"
        self._say(int(self.fleet.device_node[device]), at_ns, code, bus, text)

    def edac(self, node: int, at_ns: float, count: int, *, corrected: bool) -> None:
        letter = "CE" if corrected else "UE"
        code = "edac_corrected" if corrected else "edac_uncorrected"
        text = (
            f"EDAC MC1: {count} {letter} memory read error on CPU_SrcID#0_MC#1_Chan#0_DIMM#0 "
            "(channel:0 slot:0 page:0x2f1a3b offset:0x40 grain:32 syndrome:0x0)"
        )
        self._say(node, at_ns, code, "MC1", text)

    def storage_stalled(self, node: int, at_ns: float) -> None:
        text = "nfs: server store-07 not responding, still trying"
        self._say(node, at_ns, "storage_stalled", "store-07", text)
