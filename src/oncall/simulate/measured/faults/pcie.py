"""PCIe: the link between a GPU and its NIC."""

from __future__ import annotations

from oncall.simulate.measured import quantities as q
from oncall.simulate.measured.case import Case

AER_LINES_MOST = 12  # the kernel's rate limit leaves some of a burst


def link(case: Case) -> None:
    """PCIE_LINK (TFD 4.2): the NIC's link trains narrower or slower, or repeats what it sends.

    Ways: `width`, `generation`; `replays`: nominal width, with errors told; `silent`: as slow,
    with none of that told; `gpu`: it is the GPU's side of the path that is narrow.
    """
    case.blame_device("nic", "gpu", "rank")
    way = case.fault.how
    if way == "width":
        case.change(q.NIC_WIDTH, case.pick(8, 4, 2))
    elif way == "generation":
        case.change(q.NIC_GEN_LOSS, min(case.pick(1, 2, 3), case.fleet.machine.pcie_gen - 1))
    elif way == "gpu":
        # GPUDirect reads and writes GPU memory: its narrow link caps the NIC all the same.
        width = case.pick(8, 4, 2)
        case.change(q.GPU_WIDTH, width)
        case.change(q.PCIE_GOODPUT, width / 16)
    else:
        case.change(q.PCIE_GOODPUT, case.about(0.6, 0.4, 0.2))
        if way == "replays":
            _errors(case)


def _errors(case: Case) -> None:
    """Bad signals: the link layer repeats packets, and the kernel tells of some (AER)."""
    case.change(q.NIC_PCIE_ERRORS, case.about(20, 80, 300))
    case.change(q.GPU_REPLAYS, case.about(2, 8, 30))
    bus = case.fleet.pci_bus(case.device, "nic")
    for count, at in enumerate(case.moments(case.pick(30.0, 15.0, 8.0))):
        if count < AER_LINES_MOST:
            case.event(
                "kernel", "pcie_aer",
                f"mlx5_core {bus}: PCIe Bus Error: severity=Corrected, type=Data Link Layer, "
                "(Transmitter ID): [12] Timeout",
                device=bus, at_ns=at,
            )  # fmt: skip
