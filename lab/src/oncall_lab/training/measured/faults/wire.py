"""The cable of a NIC, and a link that negotiated less than it could."""

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
