"""What a host's event codes mean, which part they concern, and what to do.

NVIDIA's Xid catalogue says for each Xid whether the program or the hardware is the likely cause,
and what to do; the rest are the kernel's own words, or states that a host's tools print.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

Part = Literal[
    "gpu",
    "nvlink",
    "nic",
    "pcie",
    "fabric",
    "memory",
    "cpu",
    "kernel",
    "limit",
    "process",
    "storage",
    "host",
]
# fault: the part is broken, or was for a while. warning: it works, and wears out or is close to
# its limit. program: what runs there did something wrong, or was ended. notice: nothing is wrong.
Weight = Literal["fault", "warning", "program", "notice"]

XIDS: Final[dict[int, tuple[Part, Weight, str]]] = {
    8: ("gpu", "program", "the GPU stopped processing: a kernel ran too long"),
    13: ("gpu", "program", "a kernel accessed what it must not, or executed garbage"),
    31: ("gpu", "program", "a kernel accessed memory that is not mapped (page fault)"),
    32: ("gpu", "fault", "damaged commands in the push buffer: driver, or PCIe link"),
    38: ("gpu", "fault", "the driver's firmware failed"),
    43: ("gpu", "program", "the GPU stopped the program's work after an error of the program"),
    45: ("gpu", "program", "the program's work was cleaned up: it was killed, or failed before"),
    46: ("gpu", "fault", "the GPU stopped processing"),
    48: ("gpu", "fault", "an uncorrectable (double-bit) ECC error in GPU memory"),
    54: ("gpu", "fault", "auxiliary power is not connected"),
    57: ("gpu", "fault", "programming the memory interface failed"),
    58: ("gpu", "fault", "unstable memory interface"),
    61: ("gpu", "warning", "the internal microcontroller warned or stopped at a breakpoint"),
    62: ("gpu", "fault", "the internal microcontroller halted"),
    63: ("gpu", "warning", "a memory row is remapped (or a page retired) at the next GPU reset"),
    64: ("gpu", "fault", "a memory row could not be remapped (or a page retired)"),
    68: ("gpu", "program", "the video decoder failed"),
    69: ("gpu", "program", "a kernel or command of a wrong class"),
    74: (
        "nvlink",
        "fault",
        "an NVLink error: of the link, of the GPU or NVSwitch at its other end",
    ),
    79: ("gpu", "fault", "the GPU has fallen off the PCIe bus"),
    92: ("gpu", "warning", "many corrected (single-bit) ECC errors"),
    94: ("gpu", "fault", "an uncorrectable ECC error, contained: it ended one program"),
    95: ("gpu", "fault", "an uncorrectable ECC error, not contained: the GPU needs a reset"),
    109: ("gpu", "fault", "a switch between contexts timed out"),
    110: ("gpu", "fault", "a security fault"),
    119: ("gpu", "fault", "the GPU's system processor (GSP) does not answer the driver"),
    120: ("gpu", "fault", "the GPU's system processor (GSP) failed"),
    121: ("nvlink", "warning", "an error of the link to the processor (C2C), corrected"),
    122: ("gpu", "fault", "its microcontroller could not read the board's memory (SPI)"),
    137: ("nvlink", "program", "a kernel accessed a peer's memory that it must not over NVLink"),
    140: ("gpu", "fault", "uncorrectable ECC errors that were not recovered"),
    143: ("gpu", "fault", "the GPU could not be initialised"),
    144: ("nvlink", "fault", "an NVLink error where packets leave (SAW)"),
    145: ("nvlink", "fault", "an NVLink error of the link layer (RLW)"),
    146: ("nvlink", "fault", "an NVLink error of the transport layer (TLW)"),
    147: ("nvlink", "fault", "an NVLink error of the crossbar interface (TREX)"),
    148: ("nvlink", "fault", "an NVLink error of its power control"),
    149: ("nvlink", "fault", "an NVLink error of the network interface (NETIR)"),
    150: ("nvlink", "fault", "an NVLink error of its memory subsystem (MSE)"),
    154: ("gpu", "warning", "the GPU asks for another recovery: reset, reboot or drain"),
    155: ("nvlink", "fault", "an NVLink error that the driver detected"),
    156: ("gpu", "warning", "a part of the GPU is retired at the next reset"),
    157: ("gpu", "fault", "a part of the GPU could not be retired"),
    158: ("gpu", "fault", "the GPU timed out"),
}

# By what the line says beside the number (`nvlink_errors`).
_NVLINK_STATED = ("xid_74", *(f"xid_{number}" for number in range(144, 151)), "sxid")
NVLINK: Final[dict[str, tuple[Part, Weight, str]]] = {
    "xid_74_parity": ("nvlink", "fault", "a parity or ECC error inside the GPU's NVLink unit"),
    "xid_74_contact": ("nvlink", "fault", "an NVLink error: perhaps a bad contact, or the link"),
    "xid_74_signal": ("nvlink", "fault", "an NVLink error: the signal is weak or disturbed"),
    "xid_74_unexpected": ("nvlink", "fault", "an NVLink error that no driver should see"),
    "xid_74_once": ("nvlink", "fault", "an NVLink error that matters only if it returns"),
    "xid_74_secondary": ("nvlink", "fault", "an NVLink error that follows from another"),
    "xid_74_corrected": ("nvlink", "warning", "many NVLink errors that ECC corrected"),
    "xid_74_ignored": ("nvlink", "notice", "an NVLink message that means no harm"),
    "xid_149_peer": ("nvlink", "fault", "the other end took the NVLink down"),
}

KERNEL: Final[dict[str, tuple[Part, Weight, str]]] = {
    "gpu_lost": ("gpu", "fault", "the GPU has fallen off the PCIe bus"),
    "gpu_unreachable": (
        "gpu",
        "fault",
        "nvidia-smi cannot reach the GPU: most likely it has fallen off the PCIe bus",
    ),
    "gpus_absent": ("gpu", "fault", "nvidia-smi finds no GPU"),
    "driver_down": ("gpu", "fault", "the NVIDIA driver is not loaded or does not answer"),
    "driver_mismatch": (
        "gpu",
        "fault",
        "the loaded NVIDIA driver and its libraries are of different versions",
    ),
    "nvml_failed": (
        "gpu",
        "fault",
        "NVML could not be initialised: the driver failed, or a container lost its devices",
    ),
    "gpu_reset_required": ("gpu", "fault", "the GPU does not answer until it is reset"),
    "gpu_init_failed": ("gpu", "fault", "the driver could not initialise the GPU"),
    "gpu_ecc": (
        "gpu",
        "fault",
        "an error of the GPU's memory or caches that ECC could not correct",
    ),
    "gpu_hung": ("gpu", "fault", "the GPU stopped processing: a queue timed out"),
    "gpu_reset": ("gpu", "fault", "the driver reset the GPU"),
    "gpu_page_fault": (
        "gpu",
        "program",
        "a kernel accessed memory that is not mapped (page fault)",
    ),
    "pages_pending": (
        "gpu",
        "fault",
        "memory errors that ECC could not correct; pages wait to be retired at the next GPU reset",
    ),
    "retirement_pending": (
        "gpu",
        "warning",
        "memory pages are to be retired at the next GPU reset, after corrected errors",
    ),
    "remap_pending": ("gpu", "warning", "a memory row is to be remapped at the next GPU reset"),
    "remap_failed": ("gpu", "fault", "a memory row could not be remapped: no spare row is left"),
    "gpu_missing": ("gpu", "fault", "fewer GPUs are listed than on other hosts"),
    "gpu_throttled": ("gpu", "warning", "heat or power holds its clocks down"),
    "gpu_capped": ("gpu", "warning", "its power limit is lower than that of the others"),
    "amd_gpu_capped": ("gpu", "warning", "its power limit is lower than that of the others"),
    "host_throttled": ("gpu", "warning", "heat or power holds the clocks of the host's GPUs down"),
    "ecc_grew": ("gpu", "fault", "uncorrectable memory errors between two snapshots"),
    "nvlinks_down": ("nvlink", "fault", "its NVLinks are down"),
    "nvlink_grew": ("nvlink", "fault", "NVLink errors between two snapshots"),
    "dcgm_failed": ("gpu", "fault", "DCGM's test or health check failed"),
    "fabric_not_ready": ("fabric", "fault", "the GPU has not joined the NVLink fabric"),
    "fabric_manager": ("fabric", "fault", "the fabric manager reported an error"),
    "imex": ("fabric", "fault", "the IMEX service of a multi-node NVLink domain reported an error"),
    "sxid": ("nvlink", "fault", "an NVSwitch reported an error (SXid)"),
    "link_down": ("nic", "fault", "the link of a network interface went down"),
    "link_up": ("nic", "notice", "the link of a network interface came up"),
    "port_down": ("nic", "fault", "an RDMA port is down"),
    "port_init": ("nic", "fault", "an RDMA port has a link and no subnet manager configured it"),
    "port_slow": ("nic", "warning", "an RDMA port runs at a lower rate than the others"),
    "link_downs_grew": ("nic", "fault", "the link of a network interface went down"),
    "link_errors_grew": ("nic", "warning", "link errors between two snapshots"),
    "timeouts_grew": (
        "nic",
        "warning",
        "requests that were not acknowledged in time between two snapshots",
    ),
    "storms_grew": (
        "nic",
        "warning",
        "its port held the network up with pauses for longer than its watchdog allows",
    ),
    "cable_unplugged": ("nic", "fault", "the cable or its module was pulled out, or lost contact"),
    "cable_error": ("nic", "fault", "the cable's module reports an error"),
    "nic_health": ("nic", "fault", "the NIC's firmware hangs or failed"),
    "nic_gone": ("nic", "fault", "the RDMA device disappeared"),
    "nic_hot": ("nic", "warning", "the NIC or its module is too hot"),
    "nic_power": ("nic", "notice", "the PCIe slot gives the NIC too little power"),
    "nic_command_timeout": ("nic", "fault", "the NIC's firmware did not answer the driver"),
    "nic_queue_timeout": ("nic", "fault", "a transmit queue of the NIC got stuck"),
    "aer_corrected": ("pcie", "warning", "PCIe errors that the link corrected"),
    "aer_uncorrected": ("pcie", "fault", "a PCIe transaction was lost"),
    "aer_fatal": ("pcie", "fault", "the PCIe link failed"),
    "pcie_bandwidth": ("pcie", "warning", "the PCIe link is slower than the device could use"),
    "edac_corrected": ("memory", "warning", "memory errors that ECC corrected"),
    "edac_uncorrected": ("memory", "fault", "a memory error that ECC could not correct"),
    "memory_failure": ("memory", "fault", "the kernel took a damaged page of memory out of use"),
    "machine_check": ("cpu", "fault", "the processor reported an error of itself or its memory"),
    "machine_check_logged": ("cpu", "warning", "the processor corrected errors, and logged them"),
    "cpu_hot": ("cpu", "warning", "the processor is too hot and lowers its clock"),
    "oom": ("process", "program", "the kernel killed a process because memory ran out"),
    "hung_task": ("process", "warning", "a task waits in the kernel, for a device or for storage"),
    "soft_lockup": ("cpu", "fault", "a CPU was stuck in the kernel for many seconds"),
    "hard_lockup": ("cpu", "fault", "a CPU did not even take interrupts"),
    "cpu_stall": ("cpu", "warning", "a CPU did not run the kernel's housekeeping in time"),
    "panic": ("kernel", "fault", "the kernel panicked"),
    "oops": ("kernel", "fault", "the kernel crashed in one of its drivers or in itself"),
    "file_limit": ("limit", "fault", "the host ran out of open files (fs.file-max)"),
    "peer_memory": (
        "nic",
        "warning",
        "nvidia-peermem failed: GPU Direct RDMA of a process that is gone or was restarted",
    ),
    "segfault": ("process", "program", "a process crashed"),
    "io_error": ("storage", "fault", "reading or writing a disk failed"),
    "storage_stalled": ("storage", "fault", "a file server does not answer"),
    "storage_waits": ("storage", "warning", "processes sleep uninterruptibly in its calls"),
    "storage_answers": ("storage", "notice", "a file server answers again"),
    "node_down": ("host", "fault", "the scheduler lost the node"),
    "node_drained": ("host", "warning", "the scheduler takes the node out of use"),
}

_CODES: Final = KERNEL | {f"xid_{number}": meaning for number, meaning in XIDS.items()}
STATED: Final[dict[str, tuple[Part, Weight, str]]] = {
    f"{code}_{'fatal' if fatal else 'nonfatal'}": (part, weight if fatal else "warning", meaning)
    for code in _NVLINK_STATED
    for part, weight, meaning in [_CODES[code]]
    for fatal in (True, False)
}
MEANINGS: Final = _CODES | NVLINK | STATED


@dataclass(frozen=True)
class Advice:
    """What to do, as a sentence without its full stop, and a command that shows more or does it.

    In the command NIC, GPU, ADDRESS, PID and NODE stand for what the event is about. `there`: it is
    typed on the event's host.
    """

    action: str
    command: str
    there: bool = True


_DEBUG = Advice(
    "Look for the fault in the program first: run it with compute-sanitizer",
    "compute-sanitizer --tool memcheck PROGRAM",
    there=False,
)
_EARLIER = Advice("Look for the earlier fault that this one follows from", "dmesg -T")
_LATER = Advice("Reset the GPU once the job has left it", "nvidia-smi --gpu-reset -i GPU")
_RESTART = Advice(
    "Restart the job; it may use the GPU again. If it returns, test it", "dcgmi diag -r 3"
)
_RESET = Advice("Drain the node and reset the GPU; if it returns, test it", "dcgmi diag -r 3")
_REBOOT = Advice(
    "Drain the node, save the driver's report and restart the node; if it returns, reseat or "
    "replace the GPU",
    "nvidia-bug-report.sh",
)
# What drivers of several vendors report; the tools of one are no use to the others.
_ANY_GPU = Advice(
    "Drain the node, save the driver's log and restart the node; if it returns, test or replace "
    "the GPU",
    "dmesg -T",
)
_ANY_PROGRAM = Advice("Look for the fault in the program first", "dmesg -T")
_REPLACE = Advice(
    "Drain the node, save the driver's report for the vendor and replace the GPU",
    "nvidia-bug-report.sh",
)
_NVLINKS = "nvidia-smi nvlink -e"
_NVLINK = Advice("Read the NVLinks' errors: only a fatal one asks for a reset", _NVLINKS)
_NVLINK_FATAL = Advice(
    "Drain the node, read the NVLinks' errors and the fabric manager's log, and reset all of its "
    "GPUs together",
    _NVLINKS,
)
_NVLINK_ELSEWHERE = Advice(
    "Look for the fatal error that it follows from, on every host of the NVLink domain; this GPU "
    "needs no reset of its own",
    "dmesg -T",
)
_NVLINK_CONTACT = Advice(
    "Drain the node, reseat the GPU and its NVLink bridge or cable, and test", "dcgmi diag -r 3"
)
_DRIVER = Advice(
    "See whether the kernel module is loaded, and what it said; after an update of the driver "
    "restart the node",
    "cat /proc/driver/nvidia/version",
)
_ADVICE: Final[dict[Advice, tuple[str, ...]]] = {
    _DEBUG: (*(f"xid_{number}" for number in (8, 13, 31, 32, 68, 69, 137)),),
    _EARLIER: ("xid_43", "xid_45", "machine_check_logged", "cpu_stall"),
    _LATER: ("xid_63", "xid_92", "xid_156", "remap_pending", "retirement_pending"),
    _RESTART: ("xid_94",),
    Advice(
        "See airflow, power supply and limit", "nvidia-smi -q -d PERFORMANCE,POWER,TEMPERATURE"
    ): ("gpu_throttled",),
    Advice("See the host's power supplies, fans and inlet", "ipmitool sdr"): ("host_throttled",),
    _RESET: (
        *(f"xid_{n}" for n in (38, 46, 48, 61, 62, 95, 109, 119, 120, 140, 154, 158)),
        *("ecc_grew", "pages_pending"),
    ),
    _ANY_GPU: (
        *("gpu_lost", "gpu_init_failed", "gpu_reset_required", "gpu_ecc", "gpu_hung", "gpu_reset"),
    ),
    _ANY_PROGRAM: ("gpu_page_fault",),
    Advice("Give it the limit of the others", "nvidia-smi -q -d POWER"): ("gpu_capped",),
    Advice("Give it the limit of the others", "rocm-smi --showmaxpower"): ("amd_gpu_capped",),
    Advice("See in which driver, and which version of it; then restart the node", "dmesg -T"): (
        *("oops", "panic"),
    ),
    Advice("See how many are open, and who holds them; then raise it", "sysctl fs.file-nr"): (
        "file_limit",
    ),
    Advice("See which process it was, and the module's version", "modinfo nvidia-peermem"): (
        "peer_memory",
    ),
    _REBOOT: (
        *("xid_79", "xid_54", "xid_110", "xid_143"),
        *("gpu_unreachable", "gpu_missing"),
    ),
    _REPLACE: ("xid_64", "xid_57", "xid_58", "xid_122", "xid_157", "remap_failed"),
    Advice(
        "Drain the node and test the GPU again, for longer: one failed test is no broken GPU",
        "dcgmi diag -r 3",
    ): ("dcgm_failed",),
    _NVLINK: (*_NVLINK_STATED, "nvlink_grew", "nvlinks_down", "xid_121", "xid_155", "xid_74_once"),
    _NVLINK_FATAL: tuple(code for code in STATED if code.endswith("_fatal")),
    _NVLINK_ELSEWHERE: (
        *("xid_74_secondary", "xid_149_peer"),
        *(code for code in STATED if code.endswith("_nonfatal")),
    ),
    _NVLINK_CONTACT: ("xid_74_contact", "xid_74_signal"),
    Advice(
        "Drain the node and reset the GPU; if it returns on the same link, replace the GPU",
        _NVLINKS,
    ): ("xid_74_parity",),
    Advice(
        "Save the driver's report for the vendor: a bug of driver or firmware is likely",
        "nvidia-bug-report.sh",
    ): ("xid_74_unexpected",),
    Advice("Nothing is lost: watch whether the link's errors go on", _NVLINKS): (
        *("xid_74_corrected", "xid_74_ignored"),
    ),
    _DRIVER: ("driver_down", "driver_mismatch"),
    Advice(
        "See whether the PCIe bus still lists GPUs; if it does, the driver's log says why they are "
        "unusable, else restart the node",
        "lspci -d 10de:",
    ): ("gpus_absent",),
    Advice(
        "Run it on the host itself: if it works there, restart the container, which lost its "
        "devices; else see the driver's log",
        "nvidia-smi -L",
    ): ("nvml_failed",),
    Advice("See its link at both ends", "mlxlink -d NIC"): (
        *("link_down", "port_down", "link_downs_grew", "link_errors_grew", "timeouts_grew"),
    ),
    Advice(
        "See what both ends agreed on, and its cable: lanes that failed, a cable or a switch port "
        "of another speed",
        "mlxlink -d NIC -m",
    ): ("port_slow",),
    Advice(
        "See why the host does not take what arrives, its PCIe link first, and whether the pauses "
        "go on",
        "ethtool -S NIC",
    ): ("storms_grew",),
    Advice("See whether a subnet manager runs, then why it does not reach this port", "sminfo"): (
        *("port_init",),
    ),
    Advice("Reseat or replace cable and module", "mlxlink -d NIC -m"): (
        *("cable_unplugged", "cable_error", "nic_hot", "nic_power"),
    ),
    Advice("Drain the node and read the adapter's health", "devlink health show"): (
        *("nic_health", "nic_gone", "nic_command_timeout", "nic_queue_timeout"),
    ),
    Advice("Compare LnkSta with LnkCap, reseat the card or riser", "lspci -vv -s ADDRESS"): (
        *("aer_corrected", "aer_uncorrected", "aer_fatal", "pcie_bandwidth"),
    ),
    Advice("Drain the node and replace the module", "ras-mc-ctl --error-count"): (
        *("edac_corrected", "edac_uncorrected", "memory_failure", "machine_check"),
    ),
    Advice("Give the job more memory, or find who uses it", "ps aux --sort -rss"): ("oom",),
    Advice("See where it crashed", "coredumpctl info PID"): ("segfault",),
    Advice("See what it waits for, storage first", "cat /proc/PID/stack"): ("hung_task",),
    Advice("See that server or disk, and who waits for it", "ps -eo pid,stat,wchan,cmd"): (
        *("io_error", "storage_stalled", "storage_waits"),
    ),
    Advice("See its state and its log", "systemctl status nvidia-fabricmanager"): (
        *("fabric_manager", "fabric_not_ready"),
    ),
    Advice("See the domain's state on all of its nodes", "nvidia-imex-ctl -N"): ("imex",),
    Advice(
        "See since when, and whether it can be reached at all; then its console",
        "scontrol show node NODE",
        there=False,
    ): ("node_down", "node_drained"),
}
_BY_WEIGHT: Final[dict[Weight, Advice]] = {
    "fault": Advice("Drain the node and examine it", "dmesg -T"),
    "warning": Advice("Watch whether it returns", "dmesg -T"),
    "program": _DEBUG,
    "notice": Advice("Nothing is to be done", "dmesg -T"),
}
_ADVICE_OF: Final = {code: advice for advice, codes in _ADVICE.items() for code in codes}


def advice_of(code: str, weight: Weight) -> Advice:
    """What to do about a code."""
    return _ADVICE_OF.get(code, _BY_WEIGHT[weight])
