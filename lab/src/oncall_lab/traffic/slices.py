"""What was put on the wire: slices, or parts of them, with when they were posted and sent."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from oncall_lab.arrays import Bools, Floats, Ints


@dataclass(frozen=True)
class Slices:
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

    def __len__(self) -> int:
        return len(self.sender)

    def where(self, chosen: Bools | Ints) -> Slices:
        """Only the chosen ones; by their index in its order."""
        return Slices(**{item.name: getattr(self, item.name)[chosen] for item in fields(self)})


@dataclass(frozen=True)
class Expected:
    """What each sender is to send to each peer in each operation, payload only: one length."""

    operation: Ints
    sender: Ints
    peer: Ints
    bytes: Floats


def join(parts: Sequence[Slices]) -> Slices:
    """All of them as one."""
    none, nobody = np.empty(0), np.empty(0, dtype=np.int64)
    empty = Slices(nobody, nobody, nobody, nobody, none, none, none, none, none)
    return Slices(**_columns([empty, *parts]))


def join_expected(parts: Sequence[Expected]) -> Expected:
    """All of them as one."""
    nobody = np.empty(0, dtype=np.int64)
    return Expected(**_columns([Expected(nobody, nobody, nobody, np.empty(0)), *parts]))


def _columns(parts: Sequence[Any]) -> dict[str, Any]:
    names = [item.name for item in fields(parts[0])]
    return {name: np.concatenate([getattr(part, name) for part in parts]) for name in names}


def whole_bytes(slices: Slices) -> Slices:
    """The same slices with whole bytes, of which no operation's transfer loses any."""
    transfer = np.stack([slices.operation, slices.sender, slices.peer])
    order = np.lexsort((slices.begin_ns, *transfer))
    new = np.append(True, (np.diff(transfer[:, order]) != 0).any(axis=0))[: len(order)]
    sent = np.cumsum(slices.bytes[order])
    first = np.maximum.accumulate(np.where(new, np.arange(len(order)), 0))
    until = np.rint(sent - (sent - slices.bytes[order])[first])
    whole = np.empty(len(order))
    whole[order] = until - np.where(new, 0.0, np.append(0.0, until[:-1])[: len(order)])
    return replace(slices, bytes=whole)
