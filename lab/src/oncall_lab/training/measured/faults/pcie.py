"""PCIe: the link between a GPU and its NIC, and the port above both."""

from __future__ import annotations

from itertools import islice

from oncall_lab.training.measured import quantities as q
from oncall_lab.training.measured.case import Case

AER_LINES_MOST = 12  # the kernel's rate limit leaves some of a burst


def link(case: Case) -> None:
    """PCIE_LINK (TFD 4.2): the NIC's link trains narrower or slower, or repeats what it sends.

    Ways: `width`, `generation`; `replays`: nominal width, with errors reported; `silent`: as slow,
    with none of that reported; `gpu`: it is the GPU's side of the path that is narrow.
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
        # Bad signals: the link layer repeats packets, and the kernel tells of some (AER).
        case.change(q.NIC_PCIE_ERRORS, case.about(20, 80, 300))
        case.change(q.GPU_REPLAYS, case.about(2, 8, 30))
        for at in islice(case.moments(case.pick(30.0, 15.0, 8.0)), AER_LINES_MOST):
            case.log.aer_corrected(case.device, at)


def port(case: Case) -> None:
    """PCIE_PORT: everything beneath a port or switch suffers at once.

    Ways: `errors`: it reports errors, and all links below repeat; `retrained`: all links below
    run at a lower generation; `silent`: all are slow, and no event is logged.
    """
    below = case.fleet.under_port(case.device)
    for device in below.tolist():
        case.blame_device("pcie_port", "nic", "gpu", "rank", device=device)
    # Copies between host and GPU pass the port, too: batches and losses come late.
    case.change(q.HOST_SPEED, case.about(0.95, 0.88, 0.75), below)
    if case.fault.how == "retrained":
        lost = min(case.pick(1, 2, 3), case.fleet.machine.pcie_gen - 1)
        case.change(q.NIC_GEN_LOSS, lost, below)
        case.change(q.GPU_GEN_LOSS, lost, below)
        return
    case.change(q.PCIE_GOODPUT, case.about(0.55, 0.35, 0.18), below)
    if case.fault.how == "errors":
        case.change(q.NIC_PCIE_ERRORS, case.about(20, 80, 300), below)
        case.change(q.GPU_REPLAYS, case.about(2, 8, 30), below)
        for at in islice(case.moments(case.pick(30.0, 15.0, 8.0)), AER_LINES_MOST):
            case.log.port_aer(case.device, at, corrected=bool(case.rng.random() < 0.6))
