"""Calls as a log of NCCL's API shows them, which knows no more than what is called.

NCCL has no AllToAll: it is a Send to and a Recv from every member in one group call. Operations of
a communicator are counted as it launches them, those of one group call once (its opCount).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from oncall_lab.arrays import Bools, Ints, changes
from oncall_lab.pipeline.log import OPS

ALL_TO_ALL, SEND, RECV = (OPS.index(op) for op in ("AllToAll", "Send", "Recv"))

Columns = dict[str, NDArray[Any]]


def as_logged(calls: Columns, members: int) -> Columns:
    """The calls (n,) as logged (m,), m >= n, those of a rank in the order that it made them;
    `members`: of communicators that exchange all to all.

    `seq` is the opCount, and the `group` of what is launched with others.
    """
    made = np.lexsort((calls["seq"], calls["group"], calls["called_ns"], calls["rank"]))
    calls = _each_way({name: column[made] for name, column in calls.items()}, members)
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
    times = np.where(calls["op"] == ALL_TO_ALL, 2 * members, 1)
    rows = np.repeat(np.arange(len(times)), times)
    parts = np.flatnonzero(calls["op"][rows] == ALL_TO_ALL)
    repeated = {name: column[rows] for name, column in calls.items()}
    repeated["op"][parts] = np.tile([SEND, RECV], len(parts) // 2)
    repeated["bytes"][parts] //= members
    repeated["group"][parts] = repeated["seq"][parts]
    return repeated


def _changes(calls: Columns, order: Ints, *names: str) -> Bools:
    """Where any of the columns differs from the row before, in that order."""
    return changes(*(calls[name][order] for name in names))
