"""What `ethtool -S` calls the counters of a port: names of drivers to columns.

mlx5 (Documentation/networking/device_drivers/ethernet/mellanox/mlx5/counters.rst) and bnxt. Bytes
on the wire are the sum over all that uses the port, RDMA included.
"""

from __future__ import annotations

import re

from oncall.importers.switches.shell_tables import Reading

_NS_PER_US = 1000
_PRIORITY = (
    (re.compile(r"(rx|tx)_prio(\d)_pause"), "{}_pause", 1),
    (re.compile(r"(rx|tx)_prio(\d)_pause_duration"), "{}_pause_ns", _NS_PER_US),
    (re.compile(r"(rx|tx)_prio(\d)_bytes"), "{}_bytes", 1),
    (re.compile(r"(rx|tx)_pfc_ena_frames_pri(\d)"), "{}_pause", 1),
    (re.compile(r"(rx|tx)_bytes_pri(\d)"), "{}_bytes", 1),
)
_BNXT_DURATION = re.compile(r"pfc_pri(\d)_(rx|tx)_duration_us")
_DISCARDS = re.compile(r"rx_prio(\d)_(?:discards|buf_discard)")
_PORT = {
    "rx_bytes_phy": "rx_bytes",
    "tx_bytes_phy": "tx_bytes",
    "rx_total_bytes": "rx_bytes",
    "tx_total_bytes": "tx_bytes",
    "rx_pause_ctrl_phy": "pfc_rx_pause",
    "tx_pause_ctrl_phy": "pfc_tx_pause",
    "rx_discards_phy": "rx_discards",
    "tx_discards_phy": "tx_discards",
    "tx_pause_storm_error_events": "pause_storms",
    "link_down_events_phy": "link_downs",
}


def reading(port: str, name: str, value: int) -> Reading | None:
    """What a counter of a port means; None for the many that are not kept."""
    if name in _PORT:
        return Reading(port, None, _PORT[name], value)
    for pattern, column, factor in _PRIORITY:
        if found := pattern.fullmatch(name):
            return Reading(port, int(found[2]), column.format(found[1]), value * factor)
    if found := _BNXT_DURATION.fullmatch(name):
        return Reading(port, int(found[1]), f"{found[2]}_pause_ns", value * _NS_PER_US)
    if found := _DISCARDS.fullmatch(name):
        return Reading(port, int(found[1]), "discards", value)
    return None
