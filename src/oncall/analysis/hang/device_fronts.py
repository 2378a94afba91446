"""How far devices can have got, where a recorder logs only calls.

A host calls ahead of its device, which executes the calls in order. So a call that one member never
made does not complete; neither does what its other members called after it, nor what waits for
those calls elsewhere. All ranks are replayed up to their first call that cannot complete.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


def exchange_slots(rank: Array, transfer: Array, way: Array) -> Array:
    """Numbers (n,) of the steps of each rank: a joint call, or Sends and Recvs made together.

    Rows are in the order of the calls of each `rank`; `transfer` marks Sends and Recvs, and `way`
    is equal for transfers to, or from, one peer. A run of transfers in which each way occurs once
    is one exchange: its halves do not wait for one another.
    """
    starts = np.ones(len(rank), bool)
    starts[1:] = (rank[1:] != rank[:-1]) | ~transfer[1:] | ~transfer[:-1]
    seen: set[int] = set()
    for i in np.flatnonzero(transfer).tolist():
        if starts[i] or way[i] in seen:
            starts[i] = True
            seen.clear()
        seen.add(int(way[i]))
    return np.cumsum(starts) - 1


def blocked_steps(rank: Array, step: Array, call: Array, unmet: Array) -> tuple[Array, Array]:
    """The first step of each rank whose calls cannot all complete (ranks,), and those calls.

    `rank` (n,) counts from 0, `step` rises over its calls, `call` (n,) is equal for the members of
    one call, `unmet` (n,) marks those that lack a member. A rank that is not blocked has the number
    behind the last step. The second array (n,) marks the calls that cannot complete.
    """
    none = int(step[-1]) + 1 if len(step) else 0
    blocked = np.full(int(rank[-1]) + 1 if len(rank) else 0, none)
    stuck = np.zeros(int(call.max()) + 1 if len(call) else 0, bool)
    stuck[call[unmet]] = True
    while True:
        held = stuck[call]
        earlier = blocked.copy()
        np.minimum.at(earlier, rank[held], step[held])
        behind = step > earlier[rank]
        if np.array_equal(earlier, blocked) and stuck[call[behind]].all():
            return blocked, held
        blocked = earlier
        stuck[call[behind]] = True
