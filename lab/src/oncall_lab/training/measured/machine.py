"""The machines of a cluster: what GPUs, NICs and hosts can do, and which sit behind which port.

Every GPU has a NIC of its own on rail k (TFD 2.2: one NIC carries one GPU's data). A device number
is the rank that computes on that GPU; the NIC beside it has the same number.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from oncall_lab.arrays import Ints
from oncall_lab.recording import node_name
from oncall_lab.training.cluster import Cluster
from oncall_lab.training.scenario import TrainingScenario

GIB = 2**30
# Bytes a second of one PCIe lane and direction after line coding (PCI-SIG base specification).
PCIE_LANE_BYTES_PER_S = {1: 0.25e9, 2: 0.5e9, 3: 0.985e9, 4: 1.969e9, 5: 3.938e9}
# Of these, what is left for payload beside headers and acknowledgements of 256-byte packets.
PCIE_EFFICIENCY = 0.87
PCIE_WIDTH = 16


@dataclass(frozen=True)
class Machine:
    """A kind of node. Power in W, clocks in MHz; `pairs_a_port`: GPUs under one PCIe switch."""

    gpu: str
    gpu_memory_bytes: int
    gpu_idle_w: float
    gpu_limit_w: float
    sm_clock_max_mhz: int
    nvlinks: int
    nic: str
    nic_firmware: str
    line_bytes_per_s: int
    pcie_gen: int
    pairs_a_port: int
    cpus: int
    cpu_max_mhz: float
    memory_bytes: int
    numa_nodes: int = 2

    @property
    def pcie_bytes_per_s(self) -> float:
        return pcie_bytes_per_s(self.pcie_gen, PCIE_WIDTH)


# Data sheets of NVIDIA's A100 and H100 (SXM) and of ConnectX-5, -6 and -7; hosts as in DGX nodes.
MACHINES = (
    Machine("NVIDIA A100-SXM4-80GB", 80 * GIB, 55.0, 400.0, 1410, 12, "MT4121 ConnectX-5",
            "16.35.2000", 12_500_000_000, 3, 2, 128, 3400.0, 1024 * GIB),
    Machine("NVIDIA A100-SXM4-80GB", 80 * GIB, 55.0, 400.0, 1410, 12, "MT4123 ConnectX-6",
            "20.38.1002", 25_000_000_000, 4, 2, 256, 3500.0, 2048 * GIB),
    Machine("NVIDIA H100 80GB HBM3", 80 * GIB, 70.0, 700.0, 1980, 18, "MT4129 ConnectX-7",
            "28.39.1002", 50_000_000_000, 5, 1, 224, 3800.0, 2048 * GIB),
)  # fmt: skip


def pcie_bytes_per_s(gen: int, width: int) -> float:
    """Payload that a PCIe link carries in each direction."""
    return PCIE_LANE_BYTES_PER_S[gen] * width * PCIE_EFFICIENCY


@dataclass(frozen=True)
class Fleet:
    """All nodes of a job, alike. Devices are numbered like the ranks that use them."""

    machine: Machine
    nodes: int
    devices_a_node: int
    world_size: int
    network_bytes_per_s: float  # what operations get from a healthy NIC
    device_node: Ints  # (ranks,)
    device_rail: Ints  # (ranks,)
    nic_of: Ints  # (ranks,) the device whose NIC a rank uses

    def on_node(self, node: int) -> Ints:
        """The devices of a node."""
        return np.flatnonzero(self.device_node == node)

    def on_rail(self, rail: int) -> Ints:
        """The NICs that hang on one top-of-rack switch."""
        return np.flatnonzero(self.device_rail == rail)

    def under_port(self, device: int) -> Ints:
        """The devices behind the same PCIe port as this one."""
        pairs = self.machine.pairs_a_port
        near = self.device_rail // pairs == self.device_rail[device] // pairs
        return np.flatnonzero((self.device_node == self.device_node[device]) & near)

    def node_name(self, device: int) -> str:
        return node_name(int(self.device_node[device]))

    def nic_name(self, device: int) -> str:
        return f"mlx5_{int(self.device_rail[device])}"

    def switch_name(self, device: int) -> str:
        """The top-of-rack switch its NIC hangs on: one a rail."""
        return f"tor{int(self.device_rail[device]) + 1:02d}"

    def interface(self, device: int) -> str:
        return f"ens{int(self.device_rail[device]) + 1}np0"

    def pci_bus(self, device: int, kind: str) -> str:
        """PCI address of a device's GPU (function 0x00 of its bus) or NIC (the bus after)."""
        bus = 16 + 16 * (int(self.device_rail[device]) % 14)
        return f"0000:{bus + (kind == 'nic'):02x}:00.0"

    def pcie_port(self, device: int) -> str:
        first = int(self.device_rail[device]) // self.machine.pairs_a_port
        return f"0000:{8 + 16 * (first * self.machine.pairs_a_port % 14):02x}:01.0"

    def numa_node(self, device: int) -> int:
        rail = int(self.device_rail[device])
        return rail * self.machine.numa_nodes // max(self.devices_a_node, 1)


def fleet_of(scenario: TrainingScenario, cluster: Cluster) -> Fleet:
    """The nodes a scenario's job runs on: the slowest machine whose line carries its rate."""
    fits = [m for m in MACHINES if m.line_bytes_per_s >= scenario.network_bytes_per_s]
    return Fleet(
        machine=fits[0] if fits else MACHINES[-1],
        nodes=scenario.nodes,
        devices_a_node=scenario.gpus_per_node,
        world_size=scenario.world_size,
        network_bytes_per_s=scenario.network_bytes_per_s,
        device_node=cluster.nodes,
        device_rail=cluster.local,
        nic_of=cluster.nic_of,
    )
