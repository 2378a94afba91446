"""NIC counters as what happened between two readings."""

from __future__ import annotations

from oncall.analysis.common.counters import (
    BYTE_WRAPS,
    MOST_BYTES_PER_NS,
    MOST_EVENTS_PER_NS,
    WRAPS,
    increase,
    per_second,
    readings,
    share,
)
from oncall.evidence import Param, relation

# Counters of events, with what they count.
_EVENTS = {
    "cnp_sent": "congestion notifications sent",
    "cnp_handled": "congestion notifications handled",
    "ecn_marked": "ECN-marked packets received",
    "out_of_sequence": "packets out of sequence",
    "retransmits": "retransmissions",
    "timeouts": "local ACK timeouts",
    "pfc_rx_pause": "pause frames received",
    "pfc_tx_pause": "pause frames sent",
    "pause_storms": "pause storms",
    "link_downs": "times the link went down",
    "link_errors": "symbol and CRC errors, link recoveries",
    "corrected_bits": "bits corrected by error correction",
    "rx_discards": "packets dropped on arrival",
    "tx_discards": "packets dropped before they were sent",
    "out_of_buffer": "receives without a work request",
    "pcie_stalls": "times the NIC waited for host memory",
    "pcie_errors": "errors of its PCIe link",
}
_COUNTERS = ("tx_bytes", "rx_bytes", *_EVENTS, "pfc_rx_pause_ns", "pfc_tx_pause_ns")
_BYTES = ("tx_bytes", "rx_bytes")


def _grown() -> str:
    """SQL: rows of `nics` with what each counter grew by since the reading before of its port."""
    grown = ", ".join(
        f"{increase(name, BYTE_WRAPS, MOST_BYTES_PER_NS)} AS {name}"
        if name in _BYTES
        else f"{increase(name, WRAPS, MOST_EVENTS_PER_NS)} AS {name}"
        for name in _COUNTERS
    )
    fell = " AND ".join(f"{name} < {name}_0" for name in _BYTES)
    wrapped = " AND ".join(f"({increase(name, BYTE_WRAPS)}) IS NOT NULL" for name in _BYTES)
    return f"""
        grown AS (
            SELECT * REPLACE ({grown}), {fell} AND NOT ({wrapped}) AS set_back
            FROM (SELECT *, at_ns - since_ns AS took_ns FROM (
                {readings("nics", _COUNTERS, "node, nic, port")}))
            WHERE took_ns > 0)
    """


@relation(
    "nic_rates",
    reads=["nics"],
    columns=[
        "node nic port",
        ("since_ns", "BIGINT", "ns", "the reading before"),
        ("at_ns", "BIGINT", "ns", "this reading"),
        ("took_ns", "BIGINT", "ns", "time between them"),
        ("tx_bytes", "BIGINT", "bytes", "sent in the interval"),
        ("rx_bytes", "BIGINT", "bytes", "received in it"),
        ("tx_bytes_per_s", "DOUBLE", "bytes/s", "rate of sending; NULL over more than 30 s"),
        ("rx_bytes_per_s", "DOUBLE", "bytes/s", "rate of receiving"),
        ("rx_paused", "DOUBLE", "ratio", "share of the time that the network paused it"),
        ("tx_paused", "DOUBLE", "ratio", "share of the time that it paused the network"),
        *((name, "BIGINT", "", f"{doc}, in the interval") for name, doc in _EVENTS.items()),
        "pcie_waiting",
        ("set_back", "BOOLEAN", "", "both its byte counters fell: they were reset"),
        ("link_up", "BOOLEAN", "", "link state at its end"),
        ("link_bytes_per_s", "BIGINT", "bytes/s", "link rate at its end"),
    ],
    source="TFD 2.3, 3.2",
    params={"longest": Param("30 s", "between two readings: over longer, a count shows no rate")},
)
def nic_rates() -> str:
    """What each port did between two readings; NULL where a counter was set back or is absent.

    Increases are whole however long the interval, so sums of them hold on thinned readings too.
    """
    return f"""
        WITH {_grown()}
        SELECT *, rate_bytes_per_s AS link_bytes_per_s, {per_second("tx_bytes")} AS tx_bytes_per_s,
            {per_second("rx_bytes")} AS rx_bytes_per_s,
            {share("pfc_rx_pause_ns")} AS rx_paused, {share("pfc_tx_pause_ns")} AS tx_paused
        FROM grown
    """


@relation(
    "priority_rates",
    reads=["nic_priorities"],
    columns=[
        "node nic port priority at_ns",
        ("since_ns", "BIGINT", "ns", "the reading before"),
        ("took_ns", "BIGINT", "ns", "time between them"),
        ("tx_bytes", "BIGINT", "bytes", "sent in the interval"),
    ],
    source="TFD 3.2",
    view=True,
)
def priority_rates() -> str:
    """What each priority of each port sent between two readings."""
    return f"""
        SELECT * REPLACE ({increase("tx_bytes", BYTE_WRAPS, MOST_BYTES_PER_NS)} AS tx_bytes)
        FROM (SELECT *, at_ns - since_ns AS took_ns FROM (
            {readings("nic_priorities", ["tx_bytes"], "node, nic, port, priority")}))
        WHERE took_ns > 0
    """
