"""The calls that ranks made: columns that grow operation by operation."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from oncall_lab.arrays import Floats, Ints

HOST_LEAD_NS = 2e6  # the host calls this much before the device enters, at most
HOST_CALL_NS = 5e3


@dataclass(frozen=True)
class Calls:
    """Calls of ranks, one row each (m,); times are ns since the job began, infinity is never.

    `operation` is what slices carry; -1 where nothing goes between nodes. `peer` is -1 for
    collectives.
    """

    comm: NDArray[np.uint64]
    seq: Ints
    rank: Ints
    peer: Ints
    pair_seq: Ints
    group: Ints
    op: NDArray[np.str_]
    algo: NDArray[np.str_]
    bytes: Ints
    operation: Ints
    enqueued_ns: Floats
    entered_ns: Floats
    ended_ns: Floats


class CallLog:
    """Numbers calls as NCCL's users see them, and keeps them."""

    def __init__(self, world_size: int, rng: np.random.Generator) -> None:
        self._rng = rng
        self._host_ns = np.full(world_size, -np.inf)
        self._collectives: dict[tuple[int, int], int] = defaultdict(int)
        self._sends: dict[tuple[int, int], int] = defaultdict(int)
        self._pairs: dict[tuple[int, int, int], int] = defaultdict(int)
        self._rows: list[tuple[object, ...]] = []
        self._groups = 0

    def group(self) -> int:
        """A number for a group call."""
        self._groups += 1
        return self._groups

    def call_ns(self, ranks: Ints, entered_ns: Floats) -> Floats:
        """When each rank's host calls: ahead of its device, in order, and never if it never
        enters."""
        lead = self._rng.uniform(0.05, 1.0, len(ranks)) * HOST_LEAD_NS
        moment = np.maximum(self._host_ns[ranks] + HOST_CALL_NS, entered_ns - lead)
        moment = np.minimum(moment, entered_ns)
        self._host_ns[ranks] = np.where(np.isfinite(moment), moment, self._host_ns[ranks])
        return moment

    def collective(
        self, comm: int, op: str, algo: str, size_bytes: int, operation: int,
        ranks: Ints, called: Floats, entered: Floats, ended: Floats,
    ) -> None:  # fmt: skip
        """One operation of a communicator, called by `ranks`."""
        for rank, call, begin, end in zip(ranks, called, entered, ended, strict=True):
            self._collectives[comm, int(rank)] += 1
            seq = self._collectives[comm, int(rank)]
            self._rows.append(
                (comm, seq, rank, -1, 0, 0, op, algo, size_bytes, operation, call, begin, end)
            )

    def transfer(
        self, comm: int, op: str, rank: int, peer: int, size_bytes: int, operation: int,
        group: int, called: float, entered: float, ended: float,
    ) -> None:  # fmt: skip
        """A Send or Recv of one rank."""
        self._sends[comm, rank] += 1
        direction = (comm, rank, peer) if op == "Send" else (comm, -1 - rank, peer)
        self._pairs[direction] += 1
        self._rows.append(
            (comm, self._sends[comm, rank], rank, peer, self._pairs[direction], group, op, "",
             size_bytes, operation, called, entered, ended)
        )  # fmt: skip

    def calls(self) -> Calls:
        """All that were made: those whose rank entered, or whose host called at least."""
        kinds = (
            np.uint64, np.int64, np.int64, np.int64, np.int64, np.int64, np.str_, np.str_,
            np.int64, np.int64, np.float64, np.float64, np.float64,
        )  # fmt: skip
        columns = list(zip(*self._rows, strict=True)) if self._rows else [()] * len(kinds)
        made = Calls(*(np.array(c, dtype=k) for c, k in zip(columns, kinds, strict=True)))
        there = np.isfinite(made.enqueued_ns)
        return Calls(*(getattr(made, name)[there] for name in Calls.__dataclass_fields__))
