"""The network: cables, links that negotiated less than they could, switches, adapters, and ports
that wait for one another."""

from __future__ import annotations

import numpy as np

from oncall_lab.training.measured import quantities as q
from oncall_lab.training.measured.case import Case

# RoCE goes back to the lost packet and sends again what came after it, about one window.
WINDOW_PACKETS = 1000.0


def goodput(loss: float) -> float:
    """What go-back-N leaves of a link that loses this share of its packets."""
    return 1 / (1 + WINDOW_PACKETS * loss)


def cable(case: Case) -> None:
    """CABLE: the signal between NIC and switch is bad.

    Ways: `fec`: forward error correction mends ever more bits and sometimes fails; `symbols`:
    errors pass and packets are lost to their checksum; `flaps`: contact is lost for moments.
    """
    case.blame_device("nic", "rank")
    if case.fault.how == "flaps":
        for at in case.moments(case.pick(40.0, 20.0, 8.0)):
            flap(case, case.device, at, float(case.rng.uniform(0.8, 3.0)))
            if case.rng.random() < 0.2:
                case.log.cable_error(case.device, at)
        case.change(q.LINK_ERRORS, 0.5)
        return
    loss = case.pick(3e-4, 1e-3, 4e-3) * float(case.rng.uniform(0.8, 1.2))
    if case.fault.how == "fec":
        # A link at the edge: millions of corrected bits a second, few that could not be.
        case.change(q.CORRECTED_BITS, case.about(3e6, 3e7, 2e8))
        case.change(q.LINK_ERRORS, case.about(0.2, 1.0, 5.0))
    else:
        case.change(q.LINK_ERRORS, case.about(20, 150, 1500))
        case.change(q.CORRECTED_BITS, case.about(1e4, 1e5, 5e5))
    case.change(q.LOSS, loss)
    case.change(q.WIRE_SPEED, goodput(loss))
    case.change(q.NETWORK_LATENCY, case.pick(300.0, 800.0, 2e3))
    case.change(q.PROBE_LOSS, 4 * loss)


def flap(case: Case, device: int, at_ns: float, seconds: float) -> None:
    """A link goes down and comes back: the host says both."""
    end = at_ns + seconds * 1e9
    case.change(q.WIRE_SPEED, 0.0, [device], begin_ns=at_ns, end_ns=end)
    case.change(q.LINK_UP, 0.0, [device], begin_ns=at_ns, end_ns=end)
    case.change(q.TIMEOUTS, 25.0, [device], begin_ns=at_ns, end_ns=end)
    case.once(q.LINK_DOWNS, at_ns, device)
    case.log.link_down(device, at_ns)
    case.log.link_up(device, end)


def degraded(case: Case) -> None:
    """LINK: up, but at less than its rate.

    Ways: `rate`: it trained lower, after a moment down; `lanes`: one of its lanes is dark and the
    reported rate is still the nominal one; `shaped`: the switch port lets less through.
    """
    case.blame_device("nic", "rank")
    share = case.pick(0.5, 0.25, 0.125 if case.fault.how == "rate" else 0.2)
    if case.fault.how == "rate":
        if case.begin_ns > 0:
            flap(case, case.device, case.begin_ns, float(case.rng.uniform(1.5, 4.0)))
        case.change(q.LINE_RATE, share)
    else:
        case.change(q.WIRE_SPEED, share * float(case.rng.uniform(0.95, 1.05)))
    # The switch's port to the NIC is narrower than those that send to it: it queues and marks.
    case.change(q.MARKS, case.about(1e-3, 3e-3, 6e-3))
    case.change(q.NETWORK_LATENCY, case.about(2e3, 4e3, 8e3))
    if case.fault.how == "shaped":
        case.change(q.PAUSED, float(np.clip(1 - share, 0, 1)) * 0.1)


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


STALL_S = 0.12  # a firmware's health poll and recovery of a queue take some tenths
RESET_S = 2.5  # mlx5 recovery flow: reload of the firmware, port up again


def adapter(case: Case) -> None:
    """NIC: the adapter stalls, resets or drops while its link and PCIe are clean.

    Ways: `stalls` of the firmware; `resets`, after which counters begin at zero; `discards` for
    lack of its own buffers; `slow`: an internal engine at part of its rate, nothing counted.
    """
    case.blame_device("nic", "rank")
    ways = {"stalls": _stalls, "resets": _resets, "discards": _discards, "slow": _slow}
    ways[case.fault.how](case)


def _stalls(case: Case) -> None:
    """Neither direction moves for a moment; what arrives is held off by pause frames."""
    length_ns = STALL_S * case.pick(0.7, 1.5, 3.0) * 1e9
    for count, at in enumerate(case.moments(case.pick(2.0, 1.2, 0.8))):
        end = at + length_ns * float(case.rng.uniform(0.6, 1.4))
        case.change(q.NIC_SPEED, 0.0, begin_ns=at, end_ns=end)
        case.change(q.STALLED, 0.9, begin_ns=at, end_ns=end)
        case.change(q.HOST_LATENCY, 0.5 * length_ns, begin_ns=at, end_ns=end)
        if case.rng.random() < 0.3:
            case.once(q.PAUSE_STORMS, at)
        if count % 40 == 5:
            case.log.nic_command_timeout(case.device, at)


def _resets(case: Case) -> None:
    for at in case.moments(case.pick(80.0, 45.0, 25.0)):
        end = at + RESET_S * float(case.rng.uniform(0.7, 1.5)) * 1e9
        case.change(q.NIC_SPEED, 0.0, begin_ns=at, end_ns=end)
        case.change(q.LINK_UP, 0.0, begin_ns=at, end_ns=end)
        case.change(q.TIMEOUTS, 40.0, begin_ns=at, end_ns=end)
        case.reset(case.device, end)
        case.log.nic_health(case.device, at)
        case.log.link_down(case.device, at)
        case.log.link_up(case.device, end)


def _discards(case: Case) -> None:
    """Receive buffers leak away: good packets are dropped on arrival, senders repeat them."""
    loss = case.pick(3e-4, 1e-3, 3e-3) * float(case.rng.uniform(0.8, 1.2))
    case.change(q.RX_LOSS, loss)
    case.change(q.NIC_SPEED, goodput(loss))
    case.change(q.STALLED, case.pick(0.005, 0.01, 0.02))


def _slow(case: Case) -> None:
    case.change(q.NIC_SPEED, case.about(0.7, 0.5, 0.3))
    case.change(q.HOST_LATENCY, case.about(3e3, 8e3, 20e3))
