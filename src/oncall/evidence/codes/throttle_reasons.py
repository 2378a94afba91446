"""NVML's clocks event reasons, by bit, and what `nvidia-smi -q` calls them."""

from __future__ import annotations

REASONS = {
    0x01: "idle",
    0x02: "application clocks",
    0x04: "power cap",
    0x08: "hardware slowdown",
    0x10: "sync boost",
    0x20: "thermal",
    0x40: "hardware thermal",
    0x80: "power brake",
    0x100: "display clocks",
    0x200: "board limit",
    0x400: "reliable voltage",
}
# Those of idleness, of chosen clocks and of the highest reliable voltage, which a sound GPU reaches
# under load, are no throttling.
THROTTLING = 0x04 | 0x08 | 0x20 | 0x40 | 0x80 | 0x200
# A GPU under full load reaches its power limit: a sign only where its neighbours do not.
POWER_CAP = 0x04
AS_PRINTED = {
    "Idle": 0x01,
    "Applications Clocks Setting": 0x02,
    "SW Power Cap": 0x04,
    "HW Slowdown": 0x08,
    "Sync Boost": 0x10,
    "SW Thermal Slowdown": 0x20,
    "HW Thermal Slowdown": 0x40,
    "HW Power Brake Slowdown": 0x80,
    "Display Clock Setting": 0x100,
}
