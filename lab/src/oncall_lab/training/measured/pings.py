"""Latency probes at a low background rate: network by UDP, end to end by RDMA (TFD 3.2, Fig. 6).

Each NIC probes the NICs of its rail on other nodes in turn, both kinds a moment apart.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from oncall_lab.arrays import Bools, Floats, Ints
from oncall_lab.training.measured import quantities as q
from oncall_lab.training.measured.condition import Condition, Quantity
from oncall_lab.training.measured.machine import Fleet
from oncall_lab.training.measured.traffic import Curve, Flows

EVERY_NS = 4e9  # of each NIC: far below what loads a fabric
BETWEEN_KINDS_NS = 1e6
# TFD 4.2: 15 to 25 us between nodes, 17 us over a single switch.
NETWORK_NS = 16.5e3
NETWORK_SPREAD = 0.05
# Doorbell, DMA and completion on both hosts beside the network: healthy RDMA pings show 3 to 8 us.
HOST_NS = 5e3
HOST_SPREAD = 0.12
# A busy lossless port queues some 100 KiB; behind a saturated PCIe link a NIC's receive buffer
# (2 MiB on ConnectX-6) stands full up to the pause threshold. TFD 4.2: 28 us in the host.
QUEUE_BYTES = 60e3
PCIE_BUFFER_BYTES = 350e3
PCIE_SLOW_NS = 2.5e3  # of a halved link without load: more time on the link for each packet
TURNAROUND_NS = 25e3
LOAD_WINDOW_NS = 4e6


@dataclass(frozen=True)
class Probes:
    """When who probes whom; all arrays (probes,). Times are true."""

    sender: Ints
    target: Ints
    at_ns: Floats
    end_to_end: Bools


def schedule(fleet: Fleet, until_ns: float, rng: np.random.Generator) -> Probes:
    """Each NIC every few seconds, its rail's other NICs in turn."""
    rounds = np.arange(0, until_ns, EVERY_NS)
    parts: list[tuple[Ints, Ints, Floats]] = []
    for device in range(fleet.world_size):
        rail = fleet.on_rail(int(fleet.device_rail[device]))
        others = rail[rail != device]
        if not len(others):
            continue
        begin = rng.uniform(0, EVERY_NS)
        at = rounds + begin + rng.uniform(-0.05, 0.05, len(rounds)) * EVERY_NS
        target = others[(np.arange(len(at)) + device) % len(others)]
        parts.append((np.full(len(at), device), target, at))
    if not parts:
        none = np.empty(0, dtype=np.int64)
        return Probes(none, none, np.empty(0), np.empty(0, dtype=np.bool_))
    sender, target, at = (np.concatenate(column) for column in zip(*parts, strict=True))
    keep = (at > 0) & (at + BETWEEN_KINDS_NS < until_ns)
    sender, target, at = sender[keep], target[keep], at[keep]
    kinds = np.repeat([False, True], len(at))
    both = np.concatenate([at, at + BETWEEN_KINDS_NS * rng.uniform(0.5, 1.5, len(at))])
    return Probes(np.tile(sender, 2), np.tile(target, 2), both, kinds)


def ping_columns(
    probes: Probes,
    condition: Condition,
    fleet: Fleet,
    flows: Flows,
    clock: str,
    rng: np.random.Generator,
) -> dict[str, Any]:
    """Columns of the table `pings` beside who and when, each (probes,)."""
    size = len(probes.at_ns)
    path = [_Port(probes.sender, probes.at_ns), _Port(probes.target, probes.at_ns)]
    sent, received = flows.sent(), flows.received()
    network = NETWORK_NS * np.exp(NETWORK_SPREAD * rng.standard_normal(size))
    host = HOST_NS * np.exp(HOST_SPREAD * rng.standard_normal(size))
    lost = np.zeros(size)
    line = fleet.machine.line_bytes_per_s
    for port in path:
        load = port.load(received, line) + port.load(sent, line)
        queue = QUEUE_BYTES / line * 1e9 * np.clip(load, 0, 2) * rng.exponential(1.0, size)
        network += queue + port.value(condition, q.NETWORK_LATENCY) * rng.uniform(0.6, 1.4, size)
        host += port.value(condition, q.HOST_LATENCY) * rng.uniform(0.5, 1.5, size)
        host += _behind_pcie(port, fleet, load, condition, rng)
        lost = 1 - (1 - lost) * (1 - port.value(condition, q.PROBE_LOSS))
        rdma = port.value(condition, q.RDMA_PROBE_LOSS) * probes.end_to_end
        lost = 1 - (1 - lost) * (1 - rdma)
        lost = np.maximum(lost, port.value(condition, q.LINK_UP) < 0.5)
    if clock != "nic":
        # The kernel's own stamps: interrupts and softirqs are inside what they measure.
        network += rng.gamma(3.0, 2.5e3, size)
    host += np.where(rng.random(size) < 0.002, rng.exponential(80e3, size), 0.0)  # woken late
    gone = rng.random(size) < lost + 2e-5
    rtt = network + np.where(probes.end_to_end, host, 0.0)
    turnaround = TURNAROUND_NS * np.exp(0.3 * rng.standard_normal(size))
    return {
        "rtt_ns": np.ma.MaskedArray(np.rint(rtt).astype(np.int64), mask=gone),
        "target_ns": np.ma.MaskedArray(np.rint(turnaround).astype(np.int64), mask=gone),
        "lost": gone,
    }


@dataclass(frozen=True)
class _Port:
    """One end of every probe: device and moment, (probes,)."""

    device: Ints
    at_ns: Floats

    def value(self, condition: Condition, quantity: Quantity) -> Floats:
        """The quantity of each probe's device at its moment."""
        value = np.full(len(self.device), quantity.base)
        for change in condition.of(quantity):
            acts = (self.at_ns >= change.begin_ns) & (self.at_ns < change.end_ns)
            acts &= np.isin(self.device, change.where)
            if quantity.combine.value == "times":
                value[acts] *= change.value
            elif quantity.combine.value == "plus":
                value[acts] += change.value
            else:
                value[acts] = change.value
        return value

    def load(self, curves: list[Curve], line: float) -> Floats:
        """Share of the line that operations took around each probe's moment."""
        load = np.zeros(len(self.device))
        for device in np.unique(self.device):
            mine = self.device == device
            at, curve = self.at_ns[mine], curves[int(device)]
            moved = curve.at(at + LOAD_WINDOW_NS / 2) - curve.at(at - LOAD_WINDOW_NS / 2)
            load[mine] = moved / (LOAD_WINDOW_NS * 1e-9) / line
        return load


def _behind_pcie(
    port: _Port,
    fleet: Fleet,
    load: Floats,
    condition: Condition,
    rng: np.random.Generator,
) -> Floats:
    """What a PCIe link narrower than its traffic adds: a full buffer while data comes."""
    machine = fleet.machine
    width = port.value(condition, q.NIC_WIDTH) / 16
    left = width * 0.5 ** port.value(condition, q.NIC_GEN_LOSS)
    left = left * port.value(condition, q.PCIE_GOODPUT)
    share = machine.pcie_bytes_per_s * left / fleet.network_bytes_per_s
    full = (share < 1.0) & (load > 0.02)
    drain = PCIE_BUFFER_BYTES / (machine.pcie_bytes_per_s * left) * 1e9
    waits = np.where(full, drain * rng.uniform(0.5, 1.3, len(load)), 0.0)
    result: Floats = waits + PCIE_SLOW_NS * (1 / left - 1)
    return result
