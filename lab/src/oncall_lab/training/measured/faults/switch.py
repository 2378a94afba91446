"""A top-of-rack switch: every NIC of its rail suffers at once, on all nodes."""

from __future__ import annotations

from oncall_lab.training.measured import quantities as q
from oncall_lab.training.measured.case import Case
from oncall_lab.training.measured.faults.wire import flap, goodput


def switch(case: Case) -> None:
    """SWITCH. Ways: `loss`: it drops packets without reporting it; `congestion`: uplinks or buffer
    memory are gone and its ports mark and pause; `restart`: all of its links go down together.
    """
    rail = int(case.fleet.device_rail[case.device])
    nics = case.fleet.on_rail(rail)
    for device in nics.tolist():
        case.blame_device("switch", "nic", "rank", device=device)
    if case.fault.how == "restart":
        for at in case.moments(case.pick(120.0, 60.0, 35.0)):
            down = float(case.rng.uniform(2.0, 6.0))
            for device in nics.tolist():
                late_ns = float(case.rng.uniform(0, 30e6))
                flap(case, device, at + late_ns, down * float(case.rng.uniform(0.95, 1.05)))
        return
    if case.fault.how == "loss":
        loss = case.pick(3e-4, 1e-3, 3e-3) * float(case.rng.uniform(0.8, 1.2))
        case.change(q.LOSS, loss, nics)
        case.change(q.WIRE_SPEED, goodput(loss), nics)
        case.change(q.PROBE_LOSS, 10 * loss, nics)
        case.change(q.NETWORK_LATENCY, 500.0, nics)
        return
    case.change(q.WIRE_SPEED, case.about(0.7, 0.45, 0.25), nics)
    case.change(q.MARKS, case.about(3e-3, 1e-2, 3e-2), nics)
    case.change(q.PAUSED, case.about(0.02, 0.06, 0.15), nics)
    case.change(q.NETWORK_LATENCY, case.about(8e3, 20e3, 60e3), nics)
