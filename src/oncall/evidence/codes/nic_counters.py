"""What the counters of NICs mean: drivers' names to columns of `nics` and `nic_priorities`. Pure.

A counter is named by its folder: `counters/` and `hw_counters/` are of the RDMA port (sysfs;
Documentation/ABI/stable/sysfs-class-infiniband), `ethtool/` are the statistics of its network
interface (mlx5: Documentation/networking/device_drivers/ethernet/mellanox/mlx5/counters.rst; bnxt;
ice, whose names end in `.nic`; ena), `net/` are those that every interface has, `pci/` are of its
PCI device.

All are cumulative since a start that nobody knows, and are reported as they are, in our units: who
takes their differences has to expect a wrap, where the device counts in 32 bits, and a reset.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

Values: TypeAlias = Mapping[str, int | None]  # None: it is there and cannot be read now

_PRIORITIES = range(8)
_WORD_BYTES = 4
_NS_PER_US = 1000
_MOST = 2**63 - 1  # what a column holds; no counter gets there, garbage does


@dataclass(frozen=True)
class Sum:
    """The sum of those of `names` that are there, times `factor`."""

    names: tuple[str, ...]
    factor: int = 1

    def read(self, values: Values) -> int | None:
        """The sum; None if a part is there and cannot be read: without it, it would look like a
        reset."""
        total = 0
        for name in self.names:
            part = values.get(name, 0)
            if part is None:
                return None
            total += part * self.factor
        return total if 0 <= total <= _MOST else None


Meaning: TypeAlias = tuple[Sum, ...]  # the first sum counts of which any part is there


def _first(*names: str, factor: int = 1) -> Meaning:
    return tuple(Sum((name,), factor) for name in names)


def _each(pattern: str) -> tuple[str, ...]:
    return tuple(pattern.format(priority) for priority in _PRIORITIES)


PORT: Mapping[str, Meaning] = {
    # RoCE bypasses the interface: `net/` counts it for devices in software only, which have no
    # other bytes (rxe, siw).
    "tx_bytes": (
        *_first("counters/port_xmit_data", factor=_WORD_BYTES),
        *_first("hw_counters/tx_bytes", "ethtool/tx_bytes_phy", "ethtool/tx_total_bytes"),
        *_first("ethtool/tx_vport_rdma_unicast_bytes"),
        Sum(("hw_counters/ip4OutOctets", "hw_counters/ip6OutOctets")),
        *_first("net/tx_bytes", "ethtool/tx_bytes.nic"),
    ),
    "rx_bytes": (
        *_first("counters/port_rcv_data", factor=_WORD_BYTES),
        *_first("hw_counters/rx_bytes", "ethtool/rx_bytes_phy", "ethtool/rx_total_bytes"),
        *_first("ethtool/rx_vport_rdma_unicast_bytes"),
        Sum(("hw_counters/ip4InOctets", "hw_counters/ip6InOctets")),
        *_first("net/rx_bytes", "ethtool/rx_bytes.nic"),
    ),
    "cnp_sent": _first("hw_counters/np_cnp_sent", "hw_counters/tx_cnp_pkts", "hw_counters/cnpSent"),
    "cnp_handled": _first(
        "hw_counters/rp_cnp_handled", "hw_counters/rx_cnp_pkts", "hw_counters/cnpHandled"
    ),
    "ecn_marked": _first(
        "hw_counters/np_ecn_marked_roce_packets",
        "hw_counters/rx_ecn_marked_pkts",
        "hw_counters/RxECNMrkd",
    ),
    "out_of_sequence": _first(
        "hw_counters/out_of_sequence",
        "hw_counters/oos_drop_count",
        "hw_counters/out_of_seq_request",
    ),
    "retransmits": (
        Sum(
            (
                "hw_counters/packet_seq_err",
                "hw_counters/implied_nak_seq_err",
                "hw_counters/roce_adp_retrans",
            )
        ),
        *_first(
            "hw_counters/seq_err_naks_rcvd",
            "hw_counters/retrans_pkts",
            "hw_counters/tcpRetransSegs",
            "hw_counters/completer_retry_err",
        ),
    ),
    "timeouts": (
        Sum(("hw_counters/local_ack_timeout_err", "hw_counters/roce_adp_retrans_to")),
        *_first("hw_counters/to_retransmits", "hw_counters/retrans_timeout_events"),
    ),
    # A port uses PFC or global pause, not both.
    "pfc_rx_pause": (
        Sum(_each("ethtool/rx_prio{}_pause")),
        Sum(_each("ethtool/rx_pfc_ena_frames_pri{}")),
        Sum(_each("ethtool/rx_priority_{}_xoff.nic")),
        *_first("ethtool/rx_global_pause", "ethtool/rx_pause_ctrl_phy", "ethtool/rx_pause_frames"),
    ),
    "pfc_tx_pause": (
        Sum(_each("ethtool/tx_prio{}_pause")),
        Sum(_each("ethtool/tx_pfc_ena_frames_pri{}")),
        Sum(_each("ethtool/tx_priority_{}_xoff.nic")),
        *_first("ethtool/tx_global_pause", "ethtool/tx_pause_ctrl_phy", "ethtool/tx_pause_frames"),
    ),
    "pfc_rx_pause_ns": (
        Sum(_each("ethtool/rx_prio{}_pause_duration"), _NS_PER_US),
        Sum(_each("ethtool/pfc_pri{}_rx_duration_us"), _NS_PER_US),
        *_first("ethtool/rx_global_pause_duration", factor=_NS_PER_US),
    ),
    "pfc_tx_pause_ns": (
        Sum(_each("ethtool/tx_prio{}_pause_duration"), _NS_PER_US),
        Sum(_each("ethtool/pfc_pri{}_tx_duration_us"), _NS_PER_US),
        *_first("ethtool/tx_global_pause_duration", factor=_NS_PER_US),
    ),
    "pause_storms": (
        Sum(("ethtool/tx_pause_storm_warning_events", "ethtool/tx_pause_storm_error_events")),
    ),
    "link_downs": _first(
        "ethtool/link_down_events_phy",
        "counters/link_downed",
        "hw_counters/link_downed",
        "net/carrier_down_count",
    ),
    "link_errors": (
        Sum(  # what error correction could not mend counts as what it was not tried on
            (
                *("ethtool/rx_crc_errors_phy", "ethtool/rx_symbol_err_phy"),
                *("ethtool/rx_pcs_symbol_err_phy", "ethtool/rx_pcs_symbol_err"),
                *("ethtool/rx_fcs_err_frames", "ethtool/rx_fec_uncorrectable_blocks"),
                *("ethtool/rx_crc_errors.nic", "ethtool/uncorrectable_blocks"),
            )
        ),
        # InfiniBand reports a damaged packet by port_rcv_errors only.
        Sum(
            (
                "counters/symbol_error",
                "counters/link_error_recovery",
                "counters/local_link_integrity_errors",
                "counters/port_rcv_errors",
            )
        ),
    ),
    # A block that was mended had one bad bit at least.
    "corrected_bits": _first(
        *("ethtool/rx_corrected_bits_phy", "ethtool/rx_corrected_bits", "ethtool/corrected_bits"),
        *("ethtool/rx_fec_corrected_blocks", "ethtool/corrected_blocks"),
    ),
    "rx_discards": _first(
        "ethtool/rx_discards_phy",
        "hw_counters/rx_roce_discards",
        "hw_counters/rx_drops",
        "counters/excessive_buffer_overrun_errors",
        "ethtool/rx_dropped.nic",
        "ethtool/bw_in_allowance_exceeded",
    ),
    "tx_discards": _first(
        "ethtool/tx_discards_phy",
        "hw_counters/tx_roce_discards",
        "counters/port_xmit_discards",
        "ethtool/tx_dropped_link_down.nic",
        "ethtool/bw_out_allowance_exceeded",
    ),
    "out_of_buffer": _first(
        "hw_counters/out_of_buffer", "hw_counters/rx_out_of_buffer", "hw_counters/send_rnr_err"
    ),
    "pcie_stalls": (
        Sum(("ethtool/outbound_pci_stalled_rd_events", "ethtool/outbound_pci_stalled_wr_events")),
    ),
    "pcie_overflows": _first("ethtool/outbound_pci_buffer_overflow"),
    "pcie_errors": (
        Sum(
            (
                "ethtool/rx_pci_signal_integrity",
                "ethtool/tx_pci_signal_integrity",
                "pci/aer_dev_correctable",
            )
        ),
    ),
}

_PRIORITY: Mapping[str, Meaning] = {  # {} is the priority
    "tx_bytes": _first("ethtool/tx_prio{}_bytes", "ethtool/tx_bytes_pri{}"),
    "rx_bytes": _first("ethtool/rx_prio{}_bytes", "ethtool/rx_bytes_pri{}"),
    "rx_pause": _first(
        "ethtool/rx_prio{}_pause",
        "ethtool/rx_pfc_ena_frames_pri{}",
        "ethtool/rx_priority_{}_xoff.nic",
    ),
    "tx_pause": _first(
        "ethtool/tx_prio{}_pause",
        "ethtool/tx_pfc_ena_frames_pri{}",
        "ethtool/tx_priority_{}_xoff.nic",
    ),
    "rx_pause_ns": _first(
        "ethtool/rx_prio{}_pause_duration", "ethtool/pfc_pri{}_rx_duration_us", factor=_NS_PER_US
    ),
    "tx_pause_ns": _first(
        "ethtool/tx_prio{}_pause_duration", "ethtool/pfc_pri{}_tx_duration_us", factor=_NS_PER_US
    ),
    "discards": (
        Sum(("ethtool/rx_prio{}_discards",)),
        Sum(("ethtool/rx_prio{}_buf_discard", "ethtool/rx_prio{}_cong_discard")),
    ),
}
PRIORITY: Mapping[int, Mapping[str, Meaning]] = {
    priority: {
        column: tuple(
            Sum(tuple(name.format(priority) for name in sum_.names), sum_.factor)
            for sum_ in meaning
        )
        for column, meaning in _PRIORITY.items()
    }
    for priority in _PRIORITIES
}

# No counters: percent of the last second, of what is read from host memory and what is written.
_PCIE_WAITING = ("ethtool/outbound_pci_stalled_rd", "ethtool/outbound_pci_stalled_wr")

WANTED = frozenset(_PCIE_WAITING) | frozenset(
    name
    for table in (PORT, *PRIORITY.values())
    for meaning in table.values()
    for sum_ in meaning
    for name in sum_.names
)


def port_counters(values: Values) -> dict[str, int | None]:
    """The counters of a port, by their columns in `nics`."""
    return {column: _read(meaning, values) for column, meaning in PORT.items()}


def pcie_waiting(values: Values) -> float | None:
    """The share of the last second in which the NIC waited for PCIe; None where it is not
    reported."""
    waiting = [percent for name in _PCIE_WAITING if (percent := values.get(name)) is not None]
    return max(waiting) / 100 if waiting and min(waiting) >= 0 and max(waiting) <= 100 else None


def priority_counters(values: Values) -> dict[int, dict[str, int | None]]:
    """The counters of each priority that the device reports anything of, by their columns in
    `nic_priorities`."""
    by_priority = {
        priority: {column: _read(meaning, values) for column, meaning in table.items()}
        for priority, table in PRIORITY.items()
    }
    return {
        priority: counters
        for priority, counters in by_priority.items()
        if any(value is not None for value in counters.values())
    }


def _read(meaning: Meaning, values: Values) -> int | None:
    for sum_ in meaning:
        if any(name in values for name in sum_.names):
            return sum_.read(values)
    return None
