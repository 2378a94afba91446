"""PFC deadlock: ports wait for one another in a cycle and nothing moves."""

from __future__ import annotations

from oncall_lab.training.measured import quantities as q
from oncall_lab.training.measured.case import Case


def deadlock(case: Case) -> None:
    """PFC_DEADLOCK: the NICs of a rail are paused without end, and so are those that send to them.

    Ordinary traffic has a priority of its own and goes on: UDP probes answer, RDMA probes do not.
    Severity: two NICs, four, or all of the rail. Ways: `mutual`: hosts pause as well as switches;
    `network`: the switches alone.
    """
    rail = case.fleet.on_rail(int(case.fleet.device_rail[case.device])).tolist()
    others = [device for device in rail if device != case.device]
    caught = [case.device, *others[: case.pick(1, 3, len(others))]]
    for device in caught:
        case.blame_device("nic", "rank", device=device)
    case.change(q.WIRE_SPEED, 0.0, caught)
    case.change(q.PAUSED, 1.0, caught)
    if case.fault.how == "mutual":
        case.change(q.STALLED, 1.0, caught)
    case.change(q.PAUSE_STORMS, 0.5, caught)
    case.change(q.RDMA_PROBE_LOSS, 0.98, caught)
