"""What each fault changes, a family a file. Physics only: nothing here knows a rule."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from oncall.simulate.measured.case import Case
from oncall.simulate.measured.faults import gpu, host, nic, pcie, switch, wire

AFFLICT: Mapping[str, Callable[[Case], None]] = {
    "PCIE_LINK": pcie.link,
    "NIC": nic.adapter,
    "CABLE": wire.cable,
    "LINK": wire.degraded,
    "SWITCH": switch.switch,
    "THROTTLE": gpu.throttle,
    "GC": host.garbage_collection,
}
