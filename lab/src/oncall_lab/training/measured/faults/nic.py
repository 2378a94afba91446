"""The adapter itself."""

from __future__ import annotations

from oncall_lab.training.measured import quantities as q
from oncall_lab.training.measured.case import Case
from oncall_lab.training.measured.faults.wire import goodput

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
