"""Lines of the kernel log that report a fault, and their codes. What a code means is in
`event_catalogue`.

Each pattern was written after lines as kernels and drivers print them: NVIDIA's driver and
NVSwitch, amdgpu, xe and i915, mlx5 and other NIC drivers, PCIe AER, machine checks, EDAC, memory,
the kernel's own crashes and limits, watchdogs, storage.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from oncall.evidence.codes.pci_addresses import pci_address

_PCI = r"(?P<pci>[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}(?:\.[0-7])?)"
_NAME = r"(?P<name>[\w.@-]{1,15})"  # of an interface (IFNAMSIZ)
# What stands between. Bounded, as is what is read of a line: programs get text into the log too,
# and no line may cost more than a moment.
_ANY = r".{0,120}?"
_MOST_READ = 500
_MLX5 = rf"^mlx5_core {_PCI}"
_AMD = rf"^amdgpu {_PCI}: "
_INTEL = rf"^(?:xe|i915) {_PCI}: "
_NEW = r"(?: new| deferred)?"
_NETWORK = rf"{_NAME}:? (?:NIC )?[Ll]ink is "
_CARRIER = rf"^(?:<\w+> {{1,2}}\[[\d.]+\] )?(?:device \()?{_NAME}\)?: (?:carrier: link )?"
_LOST = re.compile(rf"NVRM:{_ANY}GPU {_PCI}")
_DRIVER = re.compile(rf"^[\w-]+ {_PCI}")  # as a driver begins what it says of a device


@dataclass(frozen=True)
class KnownLine:
    """What a line says: its code, and the device, interface or process it is about, if stated."""

    code: str
    device: str | None


@dataclass(frozen=True)
class _Pattern:
    code: str
    pattern: re.Pattern[str]


def _line(code: str, pattern: str) -> _Pattern:
    return _Pattern(code, re.compile(pattern, re.DOTALL))


# The first that fits counts. What it is about is `pci`, else the device whose driver speaks, else
# `name` or `process`; `number` is put behind the code.
_PATTERNS = (
    _line("xid", rf"^NVRM: Xid \(?(?:PCI:)?{_PCI}(?: GPU-I:\d+)?\)?: (?P<number>\d+)"),
    _line("sxid", rf"^(?:nvidia-nvswitch\d+: )?SXid \(PCI:{_PCI}\): (?P<number>\d+)"),
    _line("gpu_lost", rf"^NVRM:{_ANY}{_PCI}{_ANY}fallen off the bus"),
    _line("gpu_init_failed", rf"^NVRM: GPU {_PCI}: RmInitAdapter failed"),
    # "correctable" alone is corrected.
    _line("gpu_ecc", rf"{_AMD}{_ANY}\b[1-9]\d*{_NEW} uncorrectable hardware errors detected in"),
    _line("gpu_ecc", rf"{_AMD}{_ANY}poison (?:consumption|creation)"),
    _line("gpu_page_fault", rf"{_AMD}{_ANY}(?:no-)?retry page fault"),
    _line(
        "gpu_hung",
        rf"{_AMD}{_ANY}(?:ring \S+ timeout, signaled|queue preemption time out|unrecoverable)",
    ),
    _line("gpu_lost", rf"{_AMD}{_ANY}device lost from bus"),
    _line("gpu_init_failed", rf"{_AMD}{_ANY}Fatal error during GPU init"),
    _line(
        "gpu_reset",
        rf"{_AMD}{_ANY}(?:GPU reset begin|GPU re\w+(?:\(\d+\))? failed|ASIC reset failed)",
    ),
    _line(
        "gpu_hung",
        rf"{_INTEL}{_ANY}(?:Timedout job: |GPU HANG: |Engine reset: )",
    ),
    _line("gpu_page_fault", rf"{_INTEL}{_ANY}Engine memory (?:CAT|cat) error"),
    _line("gpu_reset_required", rf"{_INTEL}{_ANY}[Dd]eclar(?:ed|ing) .{{0,40}}wedged"),
    _line("gpu_reset", rf"{_INTEL}{_ANY}(?:trying reset from|reset started|Resetting \w+ for )"),
    _line("cable_unplugged", rf"{_MLX5}{_ANY}Port module event: module \d+, Cable unplugged"),
    _line("cable_error", rf"{_MLX5}{_ANY}Port module event\[error\]: module \d+"),
    _line("nic_hot", rf"{_MLX5}{_ANY}High temperature on sensors"),
    _line("nic_power", rf"{_MLX5}{_ANY}[Dd]etected insufficient power on the PCIe slot"),
    _line("nic_health", rf"^ena {_PCI}{_ANY}(?:Keep alive watchdog timeout|Trigger reset is on)"),
    _line("nic_health", rf"{_MLX5}{_ANY}(?:health compromised|Fatal error \d+ detected|synd )"),
    _line(
        "nic_command_timeout", rf"{_MLX5}{_ANY}timeout\. Will cause a leak of a command resource"
    ),
    _line("link_down", rf"{_MLX5} {_NAME}: (?:Port: \d+ )?Link (?:down|DOWN)"),
    _line("link_up", rf"{_MLX5} {_NAME}: (?:Port: \d+ )?Link (?:up|ACTIVE)"),
    _line("nic_queue_timeout", rf"^NETDEV WATCHDOG: {_NAME} "),
    _line("link_down", rf"{_NETWORK}[Dd]own"),
    _line("link_up", rf"{_NETWORK}[Uu]p"),
    _line("link_down", rf"{_CARRIER}(?:Lost carrier|disconnected)"),
    _line("link_up", rf"{_CARRIER}(?:Gained carrier|connected)"),
    _line("aer_fatal", rf"^\S+ {_PCI}: {_ANY}PCIe Bus Error: severity=Uncorrect\w+ \(Fatal\)"),
    _line("aer_uncorrected", rf"^\S+ {_PCI}: {_ANY}PCIe Bus Error: severity=Uncorrect"),
    _line("aer_corrected", rf"^\S+ {_PCI}: {_ANY}PCIe Bus Error: severity=Correct"),
    _line("pcie_bandwidth", rf"^\S+ {_PCI}: [\d.]+ Gb/s available PCIe bandwidth, limited by"),
    _line("edac_uncorrected", rf"^EDAC {_ANY}(?P<name>MC\d+): \d+ UE "),
    _line("edac_corrected", rf"^EDAC {_ANY}(?P<name>MC\d+): \d+ CE "),
    _line("memory_failure", r"Memory failure: 0x[0-9a-f]+: "),
    _line("machine_check", r"\[Hardware Error\]: CPU \d+: Machine Check(?: Exception)?: "),
    _line("machine_check_logged", r"\[Hardware Error\]: Machine check events logged"),
    _line("cpu_hot", r"(?:Core|Package) temperature (?:is )?above threshold"),
    _line("oom", r"[Oo]ut of memory: Kill(?:ed)? process (?P<process>\d+)"),
    _line("hung_task", r"task \S+:(?P<process>\d+) blocked for more than \d+ seconds"),
    _line("soft_lockup", r"BUG: soft lockup - (?P<name>CPU#\d+) stuck for "),
    _line("hard_lockup", r"hard LOCKUP on cpu"),
    _line("cpu_stall", r"rcu: INFO: \w+ (?:self-detected stall|detected stalls)"),
    _line("panic", r"^Kernel panic - not syncing"),
    # The heading of a crash by its reason, then one that counts them: `Oops: 0002 [#1] SMP`.
    _line("oops", r"^BUG: (?:unable to handle|kernel NULL pointer)|^kernel BUG at "),
    _line("oops", r"^Unable to handle kernel |: [0-9a-f]{4,16} \[#\d{1,4}\]"),
    _line("file_limit", r"^VFS: file-max limit \d+ reached"),
    _line("peer_memory", r"^nvidia[-_]peermem \w+:\d+ ERROR "),
    _line("segfault", r"\[(?P<process>\d+)\]: segfault at |traps: \S+\[\d+\] general protection"),
    _line("io_error", r"I/O error, dev (?P<name>\w+),"),
    _line("io_error", r"^EXT4-fs error \(device (?P<name>[\w-]+)\)"),
    _line("io_error", r"^XFS \((?P<name>[\w-]+)\): .{0,60}(?:shutting down|Shutting down)"),
    _line("io_error", r"^nvme (?P<name>nvme\d+): controller is down"),
    _line("storage_stalled", r"nfs: server (?P<name>\S+) not responding"),
    _line("storage_stalled", r"Lustre: \S+: Connection to (?P<name>[\w-]+) \(at \S+\) was lost"),
    _line("storage_stalled", r"LustreError: |ceph: mds\d+ hung"),
    _line("storage_answers", r"nfs: server (?P<name>\S+) OK"),
    _line("storage_answers", r"Lustre: (?P<name>[\w]+-\w+)-\S+: Connection restored"),
)

# Each line of a fault holds one of these: what a large log is searched for.
WORDS = (
    *("NVRM:", "SXid", "fallen off the bus", "Port module event", "High temperature on sensors"),
    *("nsufficient power", "health compromised", "Fatal error ", "synd ", "command resource"),
    *("watchdog timeout", "Trigger reset", "ink down", "ink up", "ink DOWN", "ink ACTIVE"),
    *("ink is ", "NETDEV WATCHDOG", "PCIe Bus Error", "PCIe bandwidth", "EDAC ", "Memory failure"),
    *("[Hardware Error]", "temperature above", "temperature is above", "ut of memory: Kill"),
    *("blocked for more than", "soft lockup", "hard LOCKUP", "rcu: INFO", "Kernel panic"),
    *("segfault at", "general protection", "I/O error, dev", "nfs: server ", "LustreError: "),
    *("Connection to ", "Connection restored", "ceph: mds"),
    *("uncorrectable hardware", "poison c", "retry page fault", "preemption time out"),
    *(" timeout, signaled", "unrecoverable", "device lost from bus", "error during GPU init"),
    *("GPU reset begin", "GPU recovery failed", "ASIC reset failed"),
    *("Timedout job", "GPU HANG", "Engine reset: ", "Engine memory", "wedged", "trying reset from"),
    *("reset started", ": Resetting ", "carrier", "BUG: ", "kernel BUG", "nable to handle kernel"),
    *(
        "Oops: ",
        " [#1]",
        " [#2]",
        "VFS: file-max",
        "peermem",
        "EXT4-fs error",
        "XFS (",
        "controller is down",
    ),
)
CODES = frozenset(known.code for known in _PATTERNS)


def known_line(text: str) -> KnownLine | None:
    """What a line of the kernel log says; None for the many that tell of no fault."""
    text = text[:_MOST_READ]
    for known in _PATTERNS:
        if match := known.pattern.search(text):
            found = match.groupdict()
            number = found.get("number")
            code = f"{known.code}_{int(number)}" if number else known.code
            driver = _DRIVER.match(text)
            pci = pci_address(found.get("pci") or (driver["pci"] if driver else ""))
            return KnownLine(code, pci or found.get("name") or found.get("process"))
    return None


def lost_gpu(text: str, above: Sequence[str]) -> KnownLine | None:
    """A GPU that has fallen off the bus: older drivers print it over three lines, the address in
    the first. `above`: the lines before, the nearest first."""
    if "fallen off the bus" not in text:
        return None
    found = next(filter(None, map(_LOST.search, (text, *above))), None)
    return KnownLine("gpu_lost", pci_address(found["pci"]) if found else None)
