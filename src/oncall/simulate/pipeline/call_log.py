"""Calls as a log of NCCL's API shows them, which knows no more than what is called.

NCCL has no AllToAll: it is a Send to and a Recv from every member in one group call. Operations of
a communicator are counted as it launches them, those of one group call once (its opCount).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from oncall.simulate.pipeline.log import OPS

ALL_TO_ALL, SEND, RECV = (OPS.index(op) for op in ("AllToAll", "Send", "Recv"))

Columns = dict[str, NDArray[Any]]


def as_logged(calls: Columns, members: int) -> Columns:
    """The calls (n,) as logged (m,), m >= n; `members`: of communicators that exchange all to all.

    `seq` is the opCount, and the `group` of what is launched with others.
    """
    calls = _each_way(calls, members)
    alone = calls["group"] < 0
    order = np.lexsort((calls["seq"], calls["group"], calls["comm"], calls["rank"]))
    lane = _changes(calls, order, "rank", "comm")
    launch = _changes(calls, order, "rank", "comm", "group") | alone[order]
    launched = np.cumsum(launch)
    op_count = np.empty(len(order), dtype=np.int64)
    op_count[order] = launched - np.maximum.accumulate(np.where(lane, launched, 0))
    group = np.where(alone, calls["group"], op_count)
    return calls | {"seq": op_count, "group": group}


def _each_way(calls: Columns, members: int) -> Columns:
    """A Send and a Recv for each member instead of an AllToAll."""
    exchanged = np.flatnonzero(calls["op"] == ALL_TO_ALL)
    if not len(exchanged):
        return calls
    kept = np.flatnonzero(calls["op"] != ALL_TO_ALL)
    rows = np.concatenate([kept, np.repeat(exchanged, 2 * members)])
    told = {name: column[rows] for name, column in calls.items()}
    parts = slice(len(kept), None)
    told["op"][parts] = np.tile([SEND, RECV], members * len(exchanged))
    told["bytes"][parts] //= members
    told["group"][parts] = told["seq"][parts]
    return told


def _changes(calls: Columns, order: NDArray[np.int64], *names: str) -> NDArray[np.bool_]:
    """Where any of the columns differs from the row before, in that order."""
    new = np.zeros(len(order), dtype=np.bool_)
    new[:1] = True
    for name in names:
        column = calls[name][order]
        new[1:] |= column[1:] != column[:-1]
    return new
