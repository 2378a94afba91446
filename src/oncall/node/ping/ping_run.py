"""Many pings in a short time: a probe on demand, at a bounded rate, until all are over."""

from __future__ import annotations

import random
import select
import time
from collections.abc import Callable, Sequence

from oncall.core.units import NS_PER_S
from oncall.node.ping.ping import Ping, Pinging, Target

_MS = 1_000_000
_LOOK_UP_NS = 50 * _MS  # how often it is asked whether to stop

Shot = tuple[Pinging, Target]


def run_pings(
    shots: Sequence[Shot],
    count: int,
    per_second: float,
    is_over: Callable[[], bool] = lambda: False,
) -> list[Ping]:
    """Ping each target `count` times, in rounds of another order each, so that the nodes of a
    fleet do not all meet at one. A round before is not measured: it finds routes and fills caches.

    Stops early when `is_over`; returns what has ended by then.
    """
    chance = random.Random()
    plan = [
        (shot, number > 0)
        for number in range(count + 1)
        for shot in chance.sample(shots, len(shots))
    ]
    pingers = list({id(pinger): pinger for pinger, _ in shots}.values())
    poll = select.poll()
    for pinger in pingers:
        poll.register(pinger.fileno(), select.POLLIN)
    pings: list[Ping] = []
    measured_from_ns = 0
    next_ns = time.monotonic_ns()
    while not is_over():
        now_ns = time.monotonic_ns()
        if plan and now_ns >= next_ns:
            (pinger, target), is_measured = plan.pop(0)
            if is_measured and not measured_from_ns:
                measured_from_ns = time.time_ns()
            pinger.send(target)
            next_ns = max(next_ns + round(NS_PER_S / per_second), now_ns)
        under_way = [at for pinger in pingers if (at := pinger.next_deadline_ns()) is not None]
        if not plan and not under_way:
            break
        wake_ns = min([*under_way, now_ns + _LOOK_UP_NS, *([next_ns] if plan else [])])
        poll.poll(max(0, -(-(wake_ns - time.monotonic_ns()) // _MS)))
        for pinger in pingers:
            pings += pinger.ended()
    return [ping for ping in pings if measured_from_ns and ping.at_ns >= measured_from_ns]
