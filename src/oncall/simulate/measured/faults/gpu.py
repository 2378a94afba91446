"""GPUs: clocks held down."""

from __future__ import annotations

from oncall.simulate.measured import quantities as q
from oncall.simulate.measured.case import Case

# Kernels of training follow the SM clock, but for what waits for memory.
CLOCK_BOUND = 0.85


def throttle(case: Case) -> None:
    """THROTTLE. Ways: `power` cap, `thermal` (software), `hot` (hardware slowdown), power `brake`.

    Only the clock, power and temperature are changed; training follows from the clock.
    """
    case.blame_device("gpu", "rank")
    clock = case.about(0.75, 0.55, 0.35)
    if case.fault.how == "brake":
        clock = min(clock, 0.5)  # the brake halves clocks at least
    case.change(q.SM_CLOCK, clock)
    case.change(q.GPU_SPEED, 1 / (1 + CLOCK_BOUND * (1 / clock - 1)))
    if case.fault.how == "power":
        case.change(q.THROTTLED_POWER, 1)
        case.change(q.POWER, clock)
        case.change(q.POWER_LIMIT, clock)
    elif case.fault.how == "brake":
        case.change(q.THROTTLED_BRAKE, 1)
        case.change(q.POWER, clock**1.5)
    else:
        hard = case.fault.how == "hot"
        case.change(q.THROTTLED_HARD_HEAT if hard else q.THROTTLED_HEAT, 1)
        case.change(q.POWER, clock**1.5)
        case.change(q.HEAT, 34.0 if hard else 27.0)
