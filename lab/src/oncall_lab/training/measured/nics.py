"""The counters of NICs: bytes, congestion, pauses, errors, state of link and PCIe.

One model for all: a NIC takes data in no faster than its PCIe link lets it; what it cannot take
makes it pause the network, and marks on packets to it slow those who send (DCQCN).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from oncall_lab.arrays import Bools, Floats, Ints
from oncall_lab.training.measured import quantities as q
from oncall_lab.training.measured.condition import Condition, Quantity
from oncall_lab.training.measured.machine import Fleet, pcie_bytes_per_s
from oncall_lab.training.measured.sampling import Q_COUNTER_SIZE, Grid, beginnings, counted
from oncall_lab.training.measured.traffic import Curve, Flows

MTU_BYTES = 4096  # RoCE path MTU of NCCL on jumbo frames
WIRE_OVERHEAD = 1.017  # Ethernet, IP, UDP, BTH and ICRC: 70 bytes a packet of 4 KiB
TRAINING_PRIORITY = 3  # RoCE's customary lossless class (NVIDIA's and Microsoft's guides: DSCP 26)
ORDINARY_PRIORITY = 0  # TCP, ssh, pings by UDP
ORDINARY_BYTES_PER_S = 40e3  # ARP, LLDP, probes, monitoring
# Healthy lossless fabrics mark packets now and then when two flows meet (DCQCN, SIGCOMM 2015).
NORMAL_MARKS = 2e-6
CNP_PER_MARK = 0.2  # one CNP a flow in 50 us at most
# A pause frame lasts until it is taken back, some 30 us at these rates; at most 65,535 quanta.
PAUSE_NS = 30e3
NORMAL_PAUSES = 2e-5  # frames per packet taken in
PAUSE_SHARE = 0.35  # of the rate that a NIC's host lacks: the rest is absorbed by flow credits
PASSED_ON = 0.25  # of pauses, what a switch's buffer does not absorb and senders feel
PCIE_STALLS_PER_S = 4e4  # of a NIC whose PCIe link is all that holds it up
NORMAL_PCIE_STALLS_PER_S = 20.0
OVERFLOWS_PER_S = 200.0
TIMEOUTS_PER_LOSS = 2e-3  # the last packets of a burst: nothing after them tells of the gap
LOSSES_MATTER = 1e-9


@dataclass(frozen=True)
class Counters:
    """Cumulative counters by column name, (devices, times), as the devices show them."""

    nics: Mapping[str, Ints | Floats | Bools]
    priorities: Mapping[int, Mapping[str, Ints]]


class NicModel:
    """Counters of all NICs on one grid of times."""

    def __init__(
        self, condition: Condition, fleet: Fleet, flows: Flows, grid: Grid, rng: np.random.Generator
    ) -> None:
        self.condition = condition
        self.fleet = fleet
        self.grid = grid
        self.rng = rng
        self.shares = flows.shares
        self.tx = _increments(flows.sent(), grid) * WIRE_OVERHEAD
        self.rx = _increments(flows.received(), grid) * WIRE_OVERHEAD
        line = fleet.machine.line_bytes_per_s
        self.tx_packets = self.tx / MTU_BYTES
        self.rx_packets = self.rx / MTU_BYTES
        self.window_s = grid.window_s
        # Shares of each window in which data comes in or goes out at what the links allow.
        self.pcie = self._pcie_share()
        allowed = fleet.network_bytes_per_s * np.minimum(1.0, self.pcie) * self.window_s
        self.receiving = np.clip(self.rx / allowed, 0.0, 1.0)
        self.sending = np.clip(self.tx / allowed, 0.0, 1.0)
        self.line = line

    def _mean(self, quantity: Quantity) -> Floats:
        return self.condition.mean(quantity, self.grid.edges_ns)

    def _rate(self, quantity: Quantity) -> Floats:
        """Expected events of each window of a quantity that is a rate a second."""
        return self._mean(quantity) * self.window_s

    def _pcie_share(self) -> Floats:
        """What PCIe carries against what operations need, (devices, times); above 1 is room."""
        machine = self.fleet.machine
        width, lost = self._mean(q.NIC_WIDTH) / 16, self._mean(q.NIC_GEN_LOSS)
        whole = machine.pcie_bytes_per_s / self.fleet.network_bytes_per_s
        return whole * width * 0.5**lost * self._mean(q.PCIE_GOODPUT)

    def counters(self) -> Counters:
        """Everything, from beginnings that differ by device and with resets applied."""
        lacking = np.clip(1 - self.pcie, 0.0, 1.0)
        stalled = self._mean(q.STALLED)
        pausing = np.clip(PAUSE_SHARE * lacking * self.receiving + stalled, 0.0, 1.0)
        felt = np.clip(PASSED_ON * self.shares @ pausing * self.sending, 0.0, 1.0)
        felt = np.clip(felt + self._mean(q.PAUSED), 0.0, 1.0)
        normal = NORMAL_PAUSES * self.rx_packets
        tx_frames = self._noisy(pausing * self.window_s * 1e9 / PAUSE_NS) + normal * 0.02
        rx_frames = self._noisy(felt * self.window_s * 1e9 / PAUSE_NS) + normal * 0.05
        tx_pause, rx_pause = counted(tx_frames, self.rng), counted(rx_frames, self.rng)
        tx_pause_ns = self._paused_ns(tx_pause, pausing)
        rx_pause_ns = self._paused_ns(rx_pause, felt)
        sockets = self._mean(q.BY_SOCKETS)
        beside = self._mean(q.OTHER_TRAFFIC) + self._mean(q.STORAGE_TRAFFIC)
        moved = (1 - sockets) * np.stack([self.tx, self.rx])
        tx, rx = (self._bytes(part + beside * self.window_s) for part in moved)
        columns: dict[str, Ints] = {
            "tx_bytes": tx,
            "rx_bytes": rx,
            **self._congestion(),
            **self._losses(),
            "pfc_rx_pause": rx_pause,
            "pfc_tx_pause": tx_pause,
            "pfc_rx_pause_ns": rx_pause_ns,
            "pfc_tx_pause_ns": tx_pause_ns,
            "pause_storms": counted(self._rate(q.PAUSE_STORMS), self.rng),
            "link_downs": counted_exactly(self._rate(q.LINK_DOWNS)),
            "link_errors": counted(self._rate(q.LINK_ERRORS), self.rng),
            "corrected_bits": counted(self._rate(q.CORRECTED_BITS), self.rng),
            "rx_discards": counted(self._mean(q.RX_LOSS) * self.rx_packets, self.rng),
            "tx_discards": np.zeros_like(tx),
            "out_of_buffer": np.zeros_like(tx),
            **self._pcie(lacking),
        }
        shown = {name: self._shown(name, total) for name, total in columns.items()}
        state = {**self._state(), "pcie_waiting": self._waiting(lacking)}
        return Counters({**shown, **state}, self._priorities(columns))

    def _bytes(self, moved: Floats) -> Ints:
        ordinary = ORDINARY_BYTES_PER_S * self.window_s * self._noisy(np.ones_like(moved))
        total: Ints = np.cumsum(moved + 0.01 * ordinary, axis=1).astype(np.int64)
        return total

    def _noisy(self, value: Floats) -> Floats:
        """Rates wander by some tenths from one window to the next."""
        noise: Floats = value * np.exp(0.25 * self.rng.standard_normal(value.shape))
        return noise

    def _congestion(self) -> dict[str, Ints]:
        """Packets marked on the way to a NIC; it tells the senders, and they slow down."""
        marked = self._noisy((NORMAL_MARKS + self._mean(q.MARKS)) * self.rx_packets)
        notified = CNP_PER_MARK * marked
        # Who sends to a NIC handles its notifications, in proportion to what it sends there.
        to_it = self.shares.T / np.maximum(self.shares.sum(axis=0), 1e-12)[:, np.newaxis]
        return {
            "ecn_marked": counted(marked, self.rng),
            "cnp_sent": counted(notified, self.rng),
            "cnp_handled": counted(to_it.T @ notified, self.rng),
        }

    def _losses(self) -> dict[str, Ints]:
        """Packets lost on a NIC's link, of what comes in and of what goes out."""
        loss = self._mean(q.LOSS)
        dropped = self._mean(q.RX_LOSS) * self.rx_packets
        inwards, outwards = loss * self.rx_packets + dropped, loss * self.tx_packets
        to_it = self.shares.T / np.maximum(self.shares.sum(axis=0), 1e-12)[:, np.newaxis]
        resent = outwards + to_it.T @ inwards
        timeouts = TIMEOUTS_PER_LOSS * resent + to_it.T @ self._rate(q.TIMEOUTS)
        return {
            "out_of_sequence": counted(inwards + self.shares.T @ outwards, self.rng),
            "retransmits": counted(resent, self.rng),
            "timeouts": counted(timeouts, self.rng),
        }

    def _paused_ns(self, frames: Ints, share: Floats) -> Ints:
        """Time paused, in whole microseconds as the device counts; never more than the window."""
        per_window = np.diff(frames, axis=1, prepend=0) * 0.9 * PAUSE_NS
        most = np.maximum(share, 0.05) * self.window_s * 1e9
        total: Ints = (np.cumsum(np.minimum(per_window, most), axis=1) // 1000).astype(np.int64)
        return total * 1000

    def _pcie(self, lacking: Floats) -> dict[str, Ints]:
        """A NIC waits for host memory, and its buffer overflows, when PCIe is the narrow place."""
        moving = np.maximum(self.receiving, self.sending)
        narrow = np.clip(lacking * 2.0, 0.0, 1.0)
        stalls = NORMAL_PCIE_STALLS_PER_S * moving + PCIE_STALLS_PER_S * narrow * moving
        overflows = OVERFLOWS_PER_S * narrow * self.receiving
        return {
            "pcie_stalls": counted(self._noisy(stalls * self.window_s), self.rng),
            "pcie_overflows": counted(self._noisy(overflows * self.window_s), self.rng),
            "pcie_errors": counted(self._rate(q.NIC_PCIE_ERRORS), self.rng),
        }

    def _shown(self, name: str, total: Ints) -> Ints:
        """A counter as its device shows it: from its beginning on, reset, cut to its size."""
        most, size = _SIZES.get(name, _RARE)
        shown: Ints = total + beginnings(len(total), most, self.rng)
        for reset in self.condition.resets:
            after = self.grid.times_ns >= reset.at_ns
            if after.any():
                shown[reset.device, after] = (
                    total[reset.device, after] - total[reset.device, after][0]
                )
        return shown % size

    def _waiting(self, lacking: Floats) -> Floats:
        """Share of the last second that a NIC waits for PCIe, in whole percent as it tells it."""
        waiting = np.clip(lacking * 2.0, 0.0, 1.0) * np.maximum(self.receiving, self.sending)
        done = np.cumsum(np.pad(waiting * self.window_s, ((0, 0), (1, 0))), axis=1)
        since = np.searchsorted(self.grid.edges_ns, self.grid.edges_ns[1:] - 1e9)
        share: Floats = np.rint(100 * (done[:, 1:] - done[:, since])) / 100
        return np.clip(share, 0.0, 1.0)

    def _state(self) -> dict[str, Ints | Bools]:
        times = self.grid.times_ns
        machine = self.fleet.machine
        rate = self.condition.at(q.LINE_RATE, times) * self.line
        lost = self.condition.at(q.NIC_GEN_LOSS, times)
        whole = np.ones(rate.shape, dtype=np.int64)
        up = self.condition.at(q.LINK_UP, times) > 0.5
        return {
            "link_up": up,
            "rate_bytes_per_s": np.rint(rate).astype(np.int64),
            "pcie_gen": (machine.pcie_gen - lost).astype(np.int64),
            "pcie_gen_max": whole * machine.pcie_gen,
            "pcie_width": self.condition.at(q.NIC_WIDTH, times).astype(np.int64),
            "pcie_width_max": whole * 16,
        }

    def _priorities(self, columns: Mapping[str, Ints]) -> dict[int, dict[str, Ints]]:
        """RDMA's priority has its bytes and pauses; the ordinary one what goes by TCP and UDP."""
        nothing = np.zeros_like(columns["tx_bytes"])
        strays = self._mean(q.IN_ORDINARY) > 0.5  # RDMA without its priority
        sockets = self._mean(q.BY_SOCKETS)
        pauses = ("rx_pause", "tx_pause", "rx_pause_ns", "tx_pause_ns")
        training = {name: columns[f"pfc_{name}"] for name in pauses}
        other = dict.fromkeys((*pauses, "discards"), nothing)
        for name, moved in (("tx_bytes", self.tx), ("rx_bytes", self.rx)):
            rdma = np.diff(columns[name], axis=1, prepend=0)
            normal = self._noisy(np.broadcast_to(ORDINARY_BYTES_PER_S * self.window_s, rdma.shape))
            ordinary = normal + sockets * moved + np.where(strays, rdma, 0)
            training[name] = np.cumsum(np.where(strays, 0, rdma), axis=1)
            other[name] = np.cumsum(ordinary, axis=1).astype(np.int64)
        training["discards"] = nothing
        found = {ORDINARY_PRIORITY: other, TRAINING_PRIORITY: training}
        return {
            priority: {name: self._shown(f"{name}", total) for name, total in values.items()}
            for priority, values in found.items()
        }


_BYTES = (1e15, 2**63 - 1)
_RARE = (20.0, 2**63 - 1)
_Q_COUNTER = (float(Q_COUNTER_SIZE - 1), Q_COUNTER_SIZE)
_PAUSES = (1e6, 2**63 - 1)
# How large a counter's beginning may be, and where it wraps.
_SIZES: Mapping[str, tuple[float, int]] = {
    "tx_bytes": _BYTES,
    "rx_bytes": _BYTES,
    **dict.fromkeys(
        ("ecn_marked", "cnp_sent", "cnp_handled", "out_of_sequence", "retransmits", "timeouts"),
        _Q_COUNTER,
    ),
    **dict.fromkeys(("pfc_rx_pause", "pfc_tx_pause", "rx_pause", "tx_pause"), _PAUSES),
    "corrected_bits": (1e8, 2**63 - 1),
    "pcie_stalls": (1e9, 2**63 - 1),
}


def counted_exactly(rate: Floats) -> Ints:
    """Events that were placed in time beforehand: each shows in the window that completes it."""
    return np.floor(np.cumsum(rate, axis=1) + 1e-6).astype(np.int64)


def _increments(curves: list[Curve], grid: Grid) -> Floats:
    """What a total grew by in each window, (devices, times)."""
    return np.array([np.diff(curve.at(grid.edges_ns)) for curve in curves])


def pcie_share(fleet: Fleet, generations_lost: int, width: int) -> float:
    """What a worse PCIe link carries against what operations need."""
    gen = fleet.machine.pcie_gen - generations_lost
    return pcie_bytes_per_s(gen, width) / fleet.network_bytes_per_s
