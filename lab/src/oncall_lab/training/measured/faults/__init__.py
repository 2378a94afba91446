"""What each fault changes, a family a file. Physics only: nothing here knows a rule."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from oncall_lab.training.measured.case import Case
from oncall_lab.training.measured.faults import application, gpu, host, network, pcie

AFFLICT: Mapping[str, Callable[[Case], None]] = {
    "PCIE_LINK": pcie.link,
    "NVLINK": gpu.nvlink,
    "GPU": gpu.hardware,
    "HOST_MEMORY": host.memory_subsystem,
    "PCIE_PORT": pcie.port,
    "NIC": network.adapter,
    "CABLE": network.cable,
    "SWITCH": network.switch,
    "LINK": network.degraded,
    "PFC_DEADLOCK": network.deadlock,
    "RESOURCES": application.resources,
    "PATTERN": application.pattern,
    "SCHEDULING": application.scheduling,
    "SETTINGS": application.settings,
    "MEMORY": application.memory,
    "THROTTLE": gpu.throttle,
    "CPU_STARVED": host.starved,
    "CPU_QUOTA": host.quota,
    "NUMA": host.numa,
    "GC": host.garbage_collection,
    "DATA_LOADER": host.data_loader,
    "SLOW_NODE": host.slow_node,
}
