"""What was put on the wire: slices, or parts of them, with when they were posted and sent."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from oncall_lab.arrays import Columns, Floats, Ints, changes


@dataclass(frozen=True)
class Slices(Columns):
    """Slices of any number of operations: arrays of one length; times are ns since the job began.

    begin_ns to end_ns: on the wire. posted_ns to completed_ns: as a work request; infinite if the
    completion never came. `operation` numbers the operations of one rank and communicator.
    """

    operation: Ints
    sender: Ints
    peer: Ints
    channel: Ints
    bytes: Floats
    posted_ns: Floats
    begin_ns: Floats
    end_ns: Floats
    completed_ns: Floats


@dataclass(frozen=True)
class Expected(Columns):
    """What each sender is to send to each peer in each operation, payload only: one length."""

    operation: Ints
    sender: Ints
    peer: Ints
    bytes: Floats


_NUMBERS, _AMOUNTS = np.empty(0, dtype=np.int64), np.empty(0)
NO_SLICES = Slices(
    _NUMBERS, _NUMBERS, _NUMBERS, _NUMBERS, _AMOUNTS, _AMOUNTS, _AMOUNTS, _AMOUNTS, _AMOUNTS
)
NOTHING_EXPECTED = Expected(_NUMBERS, _NUMBERS, _NUMBERS, _AMOUNTS)


def whole_bytes(slices: Slices) -> Slices:
    """The same slices with whole bytes, of which no operation's transfer loses any."""
    transfer = np.stack([slices.operation, slices.sender, slices.peer])
    order = np.lexsort((slices.begin_ns, *transfer))
    new = changes(*transfer[:, order])
    sent = np.cumsum(slices.bytes[order])
    first = np.maximum.accumulate(np.where(new, np.arange(len(order)), 0))
    until = np.rint(sent - (sent - slices.bytes[order])[first])
    whole = np.empty(len(order))
    whole[order] = until - np.where(new, 0.0, np.append(0.0, until[:-1])[: len(order)])
    return replace(slices, bytes=whole)
