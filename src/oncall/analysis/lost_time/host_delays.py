"""How long hosts held up their own calls: what calls alone show where hosts run ahead of devices.

From one call to the next a host takes as long as its program needs, plus what it waits for: members
that called later, of this call or of any before. What it takes beyond that and beyond its peers is
its own: a data loader, a garbage collection, a starved process. That is measured on one clock. Who
waits for what no call explains, as for a transfer that is not recorded, is as late as the cause:
the last stage of a pipeline goes on before the stage that it waits for.
"""

from __future__ import annotations

import numpy as np

from oncall.analysis.common.quantiles import median_of_alike
from oncall.analysis.lost_time.arrays import NONE, Ints, Times, numbered
from oncall.analysis.lost_time.iterations import Iterations
from oncall.analysis.lost_time.limits import Limits
from oncall.analysis.lost_time.moments import Moments, on_one_clock
from oncall.analysis.lost_time.programs import Programs, matched, with_unseen


def host_delays(
    programs: Programs, iterations: Iterations, moments: Moments, limits: Limits
) -> Times:
    """By how much each rank's host held up its own calls in each iteration, and the largest part of
    that before one call (2, s, r), ns; NaN where not recorded whole, or where it may have waited
    for a rank that left nothing behind. What is done for `extra` calls is none."""
    number = iterations.number
    at = np.flatnonzero(number != NONE)
    at = at[at > 0]
    at = at[programs.rank[at] == programs.rank[at - 1]]
    call_ns = on_one_clock(programs, moments)
    waited_ns = np.maximum(_held_until(programs, number, call_ns, moments) - call_ns, 0.0)
    took_ns = np.maximum(programs.at_ns[at] - programs.at_ns[at - 1] - waited_ns[at - 1], 0.0)
    own_ns = took_ns - _of_peers(programs, iterations, at, took_ns, limits)
    own_ns = np.where(own_ns >= limits.exact, own_ns, 0.0)
    shape = (len(iterations.begin_ns), len(programs.ranks))
    place = number[at] * shape[1] + programs.rank[at]
    own_ns = np.where(iterations.extra[at], 0.0, own_ns)
    found = np.zeros((2, shape[0] * shape[1]))
    np.add.at(found[0], place, own_ns)
    np.maximum.at(found[1], place, own_ns)
    whole = iterations.program != 0
    shown = whole & ~with_unseen(programs, seen=whole.any(0))
    return np.where(shown, found.reshape(2, *shape), np.nan)


def _held_until(programs: Programs, number: Ints, call_ns: Times, moments: Moments) -> Times:
    """Until when each rank may have to wait after each call (n,): for the last member of all
    collectives so far, and for the other side of all transfers."""
    until_ns = np.zeros(len(call_ns))
    met = np.isfinite(moments.came_ns)
    group = numbered(programs.comm, programs.seq)
    latest_ns = np.zeros(int(group.max()) + 1)
    np.maximum.at(latest_ns, group[met], call_ns[met])
    until_ns[met] = latest_ns[group[met]]
    sender, receiver = matched(programs, number)
    np.maximum.at(until_ns, sender, call_ns[receiver])
    np.maximum.at(until_ns, receiver, call_ns[sender])
    # Ranks lie apart by more than any of them is long, so that a maximum stays in its own.
    apart_ns = programs.rank * (2 * float(call_ns.max()) + 1)
    return np.asarray(np.maximum.accumulate(until_ns + apart_ns) - apart_ns)


def _of_peers(
    programs: Programs, iterations: Iterations, at: Ints, took_ns: Times, limits: Limits
) -> Times:
    """What peers take to the same call in the same iteration, in the median (n,), ns; where fewer
    than a few have the same program, in all iterations; infinite where there are as few."""
    number = iterations.number[at]
    program = iterations.program[number, programs.rank[at]].view(np.int64)
    place = numbered(program, iterations.nth[at])
    found_ns = np.full(len(at), np.inf)
    for kind in (place, numbered(number, place)):
        middle_ns, peers = median_of_alike(kind, took_ns)
        found_ns = np.where(peers >= limits.few, middle_ns, found_ns)
    return found_ns
