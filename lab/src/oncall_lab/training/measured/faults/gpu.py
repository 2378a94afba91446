"""GPUs: clocks held down, broken hardware, NVLinks."""

from __future__ import annotations

from oncall_lab.training.measured import quantities as q
from oncall_lab.training.measured.case import Case

# Kernels of training follow the SM clock, but for what waits for memory.
CLOCK_BOUND = 0.85


def speed_at(clock: float) -> float:
    """How fast a GPU computes at a share of its normal clock."""
    return 1 / (1 + CLOCK_BOUND * (1 / clock - 1))


def throttle(case: Case) -> None:
    """THROTTLE. Ways: `power` cap, `thermal` (software), `hot` (hardware slowdown), power `brake`.

    Only the clock, power and temperature are changed; training follows from the clock.
    """
    case.blame_device("gpu", "rank")
    clock = case.about(0.75, 0.55, 0.35)
    if case.fault.how == "brake":
        clock = min(clock, 0.5)  # the brake halves clocks at least
    case.change(q.SM_CLOCK, clock)
    case.change(q.GPU_SPEED, speed_at(clock))
    if case.fault.how == "power":
        case.change(q.THROTTLED_POWER, 1)
        case.change(q.POWER, clock)
        case.change(q.POWER_LIMIT, clock)
        return
    case.change(q.POWER, clock**1.5)
    if case.fault.how == "brake":
        case.change(q.THROTTLED_BRAKE, 1)
        return
    hard = case.fault.how == "hot"
    case.change(q.THROTTLED_HARD_HEAT if hard else q.THROTTLED_HEAT, 1)
    case.change(q.HEAT, 34.0 if hard else 27.0)


def hardware(case: Case) -> None:
    """GPU: the chip or its memory is broken, and the GPU computes slower.

    Ways: `ecc`: errors that cannot be corrected, rows remapped; `xid`: only the driver reports it;
    `remap`: no spare row is left; `slow`: no event is logged; `slowdown`: the hardware clocks
    itself down, cool and within its power limit.
    """
    case.blame_device("gpu", "rank")
    way = case.fault.how
    if way == "slowdown":
        clock = case.about(0.7, 0.5, 0.3)
        case.change(q.SM_CLOCK, clock)
        case.change(q.POWER, clock**1.5)
        case.change(q.THROTTLED_HARDWARE, 1)
        case.change(q.GPU_SPEED, speed_at(clock))
        return
    case.change(q.GPU_SPEED, case.about(0.8, 0.6, 0.4))
    case.change(q.POWER, case.about(0.97, 0.9, 0.8))
    if way == "xid":
        for at in case.moments(case.pick(60.0, 30.0, 15.0)):
            case.log.xid(case.device, at, 94, "pid=4010, name=python, Contained: SM (0x1)")
    elif way == "ecc":
        case.change(q.ECC_CORRECTED, case.about(0.5, 3.0, 20.0))
        case.change(q.ECC_UNCORRECTED, case.about(0.05, 0.1, 0.4))
        case.change(q.REMAPPED_ROWS, case.pick(1, 3, 8))
        case.log.xid(case.device, case.begin_ns, 63, "Row Remapper: New row marked for remapping")
    elif way == "remap":
        case.change(q.REMAP_FAILED, 1)
        case.change(q.ECC_UNCORRECTED, case.about(0.03, 0.06, 0.2))
        case.log.xid(case.device, case.begin_ns, 64, "Row Remapper: Failed to remap row")


def nvlink(case: Case) -> None:
    """NVLINK: what a GPU exchanges within its node is slow.

    Ways: `down`: some of its links are; `errors`: all are up and repeat what they send; `xid`:
    errors, and the driver says so (74).
    """
    case.blame_device("gpu", "rank")
    if case.fault.how == "down":
        links = case.fleet.machine.nvlinks
        gone = round(links * case.pick(0.35, 0.6, 0.85))
        case.change(q.NVLINKS_DOWN, gone)
        case.change(q.NVLINK_SPEED, 1 - gone / links)
        return
    case.change(q.NVLINK_SPEED, case.about(0.65, 0.4, 0.15))
    case.change(q.NVLINK_ERRORS, case.about(5, 60, 800))
    if case.fault.how == "xid":
        for at in case.moments(case.pick(60.0, 30.0, 15.0)):
            case.log.xid(case.device, at, 74, "pid=4010, NVLink: fatal error detected on link 3")
