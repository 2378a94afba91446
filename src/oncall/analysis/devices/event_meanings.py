"""What the codes in `host_events` mean, and which device they

concern. NVIDIA's Xid catalogue says for each Xid whether the program or the hardware is the likely
cause; the rest are the kernel's own words.
"""

from __future__ import annotations

from typing import Final, Literal

from oncall.evidence import relation

Part = Literal["gpu", "nvlink", "nic", "pcie", "memory", "cpu", "process", "storage"]
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
    144: ("nvlink", "fault", "NVLink: an error where packets leave (SAW)"),
    145: ("nvlink", "fault", "NVLink: an error of the link layer (RLW)"),
    146: ("nvlink", "fault", "NVLink: an error of the transport layer (TLW)"),
    147: ("nvlink", "fault", "NVLink: an error of the crossbar interface (TREX)"),
    148: ("nvlink", "fault", "NVLink: an error of its power control"),
    149: ("nvlink", "fault", "NVLink: an error of the network interface (NETIR)"),
    150: ("nvlink", "fault", "NVLink: an error of its memory subsystem (MSE)"),
    154: ("gpu", "warning", "the GPU asks for another recovery: reset, reboot or drain"),
    155: ("nvlink", "fault", "NVLink: an error that the driver detected"),
    156: ("gpu", "warning", "a part of the GPU is retired at the next reset"),
    157: ("gpu", "fault", "a part of the GPU could not be retired"),
    158: ("gpu", "fault", "the GPU timed out"),
}

KERNEL: Final[dict[str, tuple[Part, Weight, str]]] = {
    "gpu_lost": ("gpu", "fault", "the GPU has fallen off the PCIe bus"),
    "gpu_reset_required": ("gpu", "fault", "the GPU does not answer until it is reset"),
    "sxid": ("nvlink", "fault", "an NVSwitch reported an error (SXid)"),
    "link_down": ("nic", "fault", "the link of a network interface went down"),
    "link_up": ("nic", "notice", "the link of a network interface came up"),
    "cable_unplugged": ("nic", "fault", "the cable or its module was pulled out, or lost contact"),
    "cable_error": ("nic", "fault", "the cable's module reports an error"),
    "nic_health": ("nic", "fault", "the NIC's firmware hangs or failed"),
    "nic_gone": ("nic", "fault", "the RDMA device disappeared"),
    "nic_hot": ("nic", "warning", "the NIC or its module is too hot"),
    "nic_command_timeout": ("nic", "fault", "the NIC's firmware did not answer the driver"),
    "nic_queue_timeout": ("nic", "fault", "a transmit queue of the NIC got stuck"),
    "aer_corrected": ("pcie", "warning", "PCIe errors that the link corrected: the link is bad"),
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
    "segfault": ("process", "program", "a process crashed"),
    "io_error": ("storage", "fault", "reading or writing a disk failed"),
    "storage_stalled": ("storage", "fault", "a file server does not answer"),
}

MEANINGS: Final = KERNEL | {f"xid_{number}": meaning for number, meaning in XIDS.items()}


@relation(
    "event_meanings",
    reads=["host_events|hosts|nics|gpus|devices"],
    columns=[
        ("code", "VARCHAR", "", "as in host_events"),
        ("part", "VARCHAR", "", "gpu, nvlink, nic, pcie, memory, cpu, process or storage"),
        ("weight", "VARCHAR", "", "fault, warning, program (its own doing) or notice"),
        ("meaning", "VARCHAR", "", "in words"),
    ],
    source="NVIDIA Xid catalogue; the kernel's own messages",
)
def event_meanings() -> str:
    """What each code that was seen means; an Xid that is not known is a warning of its GPU."""
    known = ", ".join(
        f"('{code}', '{part}', '{weight}', '{meaning.replace(chr(39), chr(39) * 2)}')"
        for code, (part, weight, meaning) in MEANINGS.items()
    )
    return f"""
        WITH known(code, part, weight, meaning) AS (VALUES {known}),
        seen AS (
            SELECT DISTINCT code, regexp_replace(code, '^sxid_\\d+$', 'sxid') AS known_as,
                regexp_extract(code, '^xid_(\\d+)$', 1) AS xid
            FROM host_events WHERE code IS NOT NULL)
        SELECT seen.code, coalesce(part, 'gpu') AS part, coalesce(weight, 'warning') AS weight,
            coalesce(meaning, 'Xid ' || xid || ', see the driver''s documentation') AS meaning
        FROM seen LEFT JOIN known ON known.code = known_as WHERE part IS NOT NULL OR xid <> ''
    """
