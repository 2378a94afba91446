"""Operations of one process put together from its records: called, described, started, ended.

Pure: arrays in, arrays out. An operation is kept by its process-wide number from the record that
it was entered until the one that it ended; records arrive in any order within a batch.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from oncall.node.rings.pairs import PairNumbers
from oncall.node.rings.ring_layout import (
    DESCRIBED,
    ENDED,
    ENQUEUED,
    ENTERED,
    NCCL_IN_PROGRESS,
    NCCL_SUCCESS,
    POINT_TO_POINT,
    TRANSFER_OVER,
    RecordKind,
)

# Which operations are known to be over, by the newest of each communicator. Pure.
#
# A board names the last operation entered on its communicator and counts those that ended, in any
# order. So the last one may be over while an older one is in flight.

_MOST_KEPT = 4_096  # communicators, the newest: as many as boards are kept of


class NewestOver:
    """The newest operation that is over, of each communicator and kind (collective or not)."""

    def __init__(self, packed: bytes = b"") -> None:
        """`packed`: the bookmark of an earlier collector; without one nothing is known."""
        # Rows: communicator and kind as one key, number of the operation; sorted.
        self._newest: Array = np.zeros((0, 2), np.int64)
        if len(packed) % (2 * self._newest.itemsize) == 0:
            self._newest = np.frombuffer(packed, np.int64).reshape(-1, 2)

    @property
    def packed(self) -> bytes:
        """What the next collector goes on with."""
        return self._newest.tobytes()

    def saw(self, operations: Array) -> None:
        """These (OPERATION) are over: their rows are made, and nothing more will come of them."""
        if not len(operations):
            return
        seen = np.column_stack([_keys(operations), operations["operation"].astype(np.int64)])
        seen = np.concatenate([self._newest, seen])
        seen = seen[np.lexsort((seen[:, 1], seen[:, 0]))]
        is_last = np.append(seen[1:, 0] != seen[:-1, 0], True)
        self._newest = seen[is_last][-_MOST_KEPT:]

    def covers(self, last: Array) -> Array:
        """Whether each of these (OPERATION), the last entered of its kind on its communicator, is
        over: (n,) of bool."""
        newest = dict(self._newest.tolist())
        keys = _keys(last).tolist()
        numbers = last["operation"].tolist()
        return np.array(
            [number <= newest.get(key, 0) for key, number in zip(keys, numbers, strict=True)], bool
        )


def _keys(operations: Array) -> Array:
    keys: Array = operations["communicator"].astype(np.int64) * 2 + operations["point_to_point"]
    return keys


Array: TypeAlias = np.ndarray[Any, Any]

MOST_IN_FLIGHT = 65_536
_KINDS = np.arange(1, max(RecordKind) + 2, dtype=np.uint16)  # and one more, for the last one's end
_IS_POINT_TO_POINT = np.isin(np.arange(256), POINT_TO_POINT)  # by `op`

# One operation as far as it is known. Instants are CLOCK_MONOTONIC ns, 0: not yet.
OPERATION = np.dtype(
    [
        ("operation", "u8"),
        ("communicator", "i4"),  # the tracker's own number, not the ring's slot
        ("sequence", "i8"),
        ("point_to_point", "?"),
        ("op", "u1"),
        ("dtype", "u1"),
        ("captured", "?"),
        ("described", "?"),
        ("count", "i8"),
        ("stream", "u8"),
        ("peer", "i4"),
        ("group", "u4"),
        ("pair_seq", "i8"),  # 0: not known
        ("result", "i4"),
        ("entered_ns", "i8"),
        ("enqueued_ns", "i8"),
        ("started_ns", "i8"),
        ("ended_ns", "i8"),
        ("over", "?"),  # nothing more will come; not ended where that cannot be known
        ("algorithm", "S12"),
        ("protocol", "S8"),
        ("channels", "i4"),
        ("sends", "i8"),
        ("recvs", "i8"),
        ("gpu_ns", "i8"),  # of its kernels, by the GPU's clock; 0: not recorded
        ("wire_ns", "i8"),  # of its sends, from posting to completion, added up; 0: not recorded
    ]
)

_LAYOUT = zlib.crc32(repr(OPERATION.descr).encode()).to_bytes(4, "little")
_MOST_PACKED = 1_024


def concatenated(several: Sequence[Array]) -> Array:
    """Rows of a struct one after the other.

    Here and below rows are concatenated as bytes and selected with `take` and `compress`: numpy's
    concatenate and its indexing copy a struct field by field, 50 times slower.
    """
    kind = several[0].dtype
    row_bytes = np.dtype((np.void, kind.itemsize))
    return np.concatenate([part.view(row_bytes) for part in several]).view(kind)


def pack(operations: Array) -> bytes:
    """Operations (OPERATION) as they can be kept for the next collector; nothing if too many."""
    return _LAYOUT + operations.tobytes() if len(operations) <= _MOST_PACKED else b""


def unpack(packed: bytes) -> Array | None:
    """What `pack` made; None if nothing, or by an oncall that knew other things of an operation."""
    body = packed[len(_LAYOUT) :]
    if not packed.startswith(_LAYOUT) or len(body) % OPERATION.itemsize:
        return None
    return np.frombuffer(body, OPERATION)


@dataclass(frozen=True)
class Advance:
    """What a batch of records brought about."""

    finished: Array  # of OPERATION: ended, or over as far as can be known
    failed: Array  # of OPERATION: the call returned an error
    transfers: Array  # of TRANSFER_OVER
    transfers_of: Array  # of OPERATION: what each belongs to; operation 0: unknown
    forgotten: int  # in flight for too long among too many


class Tracker:
    """The operations of one process that are in flight, sorted by their number."""

    def __init__(self, pairs: PairNumbers | None = None, over: NewestOver | None = None) -> None:
        self._table: Array = np.zeros(0, OPERATION)
        self._pairs = pairs or PairNumbers()
        self._over = over or NewestOver()

    @property
    def in_flight(self) -> Array:
        """A copy of all operations entered and not over, as far as the records show."""
        return self._table.copy()

    @property
    def packed(self) -> bytes:
        """The same as `pack` makes it, with no copy where there are too many."""
        return pack(self._table)

    def advance(self, records: Array, communicators: Array, ends_recorded: Array) -> Advance:
        """Take in a batch of records (n,), oldest first.

        `communicators` (n,) gives the communicator of each, `ends_recorded` (n,) whether a profiler
        records the end of its operations.
        """
        order = np.argsort(records["kind"], kind="stable")
        records, communicators = records.take(order), communicators.take(order)
        began = np.searchsorted(records["kind"], _KINDS)
        of = {kind: slice(*began[kind - 1 : kind + 1]) for kind in RecordKind}
        self._enter(records[of[RecordKind.ENTERED]], communicators[of[RecordKind.ENTERED]])
        self._describe(records[of[RecordKind.DESCRIBED]])
        at, started = self._find(records[of[RecordKind.STARTED]])
        self._table["started_ns"][at] = started["time_ns"]
        transfers = records[of[RecordKind.TRANSFER]].view(TRANSFER_OVER)
        transfers_of = self._transfer(transfers, communicators[of[RecordKind.TRANSFER]])
        self._enqueue(
            records[of[RecordKind.ENQUEUED]], ends_recorded[order[of[RecordKind.ENQUEUED]]]
        )
        self._end(records[of[RecordKind.ENDED]])
        return self._leave(transfers, transfers_of)

    def _leave(self, transfers: Array, transfers_of: Array) -> Advance:
        """Take out of the table what is over, failed, or too much."""
        result = self._table["result"]
        failed = (result != NCCL_SUCCESS) & (result != NCCL_IN_PROGRESS)
        over = self._table["over"] & ~failed
        staying = self._table.compress(~(over | failed))
        forgotten = max(0, len(staying) - MOST_IN_FLIGHT)
        advance = Advance(
            self._table.compress(over),
            self._table.compress(failed),
            transfers,
            transfers_of,
            forgotten,
        )
        self._over.saw(advance.finished)
        self._over.saw(advance.failed)
        self._table = staying[forgotten:]
        return advance

    def take_over(self, operations: Array) -> None:
        """Put operations in that an earlier collector had in flight (OPERATION)."""
        self._merge(operations)

    def add_last(self, operations: Array) -> None:
        """Put operations in that are known from the boards alone, each the last one entered
        (OPERATION): but for those that are over."""
        self._merge(operations.compress(~self._over.covers(operations)))

    def retire(self, numbers: Array) -> Array:
        """Take operations out whose end went unseen; returns them."""
        gone = np.isin(self._table["operation"], numbers)
        retired = self._table.compress(gone)
        self._over.saw(retired)
        self._table = self._table.compress(~gone)
        return retired

    # ------------------------------------------------------------- by record kind

    def _enter(self, records: Array, communicators: Array) -> None:
        if not len(records):
            return
        entered = records.view(ENTERED)
        new = np.zeros(len(records), OPERATION)
        for name in (
            *("operation", "group", "sequence", "count", "stream"),
            *("peer", "op", "dtype", "captured"),
        ):
            new[name] = entered[name]
        new["communicator"] = communicators
        new["entered_ns"] = entered["time_ns"]
        new["point_to_point"] = _IS_POINT_TO_POINT[new["op"]]
        self._pairs.number(new)
        self._merge(new)

    def _merge(self, new: Array) -> None:
        """Add to the table, kept sorted; of two with one number the later one counts."""
        table = concatenated([self._table, new])
        order = np.argsort(table["operation"], kind="stable")
        numbers = table["operation"][order]
        last = np.append(numbers[1:] != numbers[:-1], True) if len(numbers) else slice(0)
        self._table = table.take(order[last])

    def _describe(self, records: Array) -> None:
        at, found = self._find(records)
        described = found.view(DESCRIBED)
        self._table["described"][at] = True
        for name in ("algorithm", "protocol", "channels"):
            self._table[name][at] = described[name]

    def _transfer(self, records: Array, communicators: Array) -> Array:
        """Count the steps of finished transfers (TRANSFER_OVER); returns the operation of each."""
        at = self._positions(records["operation"])
        known = at >= 0
        of = concatenated([self._table, np.zeros(1, OPERATION)]).take(at)  # at -1: the last
        of["communicator"][~known] = communicators[~known]
        steps = records["group"][known].astype(np.int64)
        is_send = records["is_send"][known] != 0
        np.add.at(self._table["sends"], at[known][is_send], steps[is_send])
        np.add.at(self._table["recvs"], at[known][~is_send], steps[~is_send])
        wire_ns = records["last_wait_us"][known].astype(np.int64) * 1000
        np.add.at(self._table["wire_ns"], at[known][is_send], wire_ns[is_send])
        return of

    def _enqueue(self, records: Array, ends_recorded: Array) -> None:
        at = self._positions(records["operation"])
        known = at >= 0
        at = at[known]
        found = records.compress(known).view(ENQUEUED)
        self._table["enqueued_ns"][at] = found["time_ns"]
        self._table["result"][at] = found["result"]
        # Of what is only captured, or what no profiler follows, no end will ever be recorded.
        unrecorded = ~ends_recorded[known] | self._table["captured"][at]
        self._table["over"][at[unrecorded]] = True

    def _end(self, records: Array) -> None:
        at, found = self._find(records)
        ended = found.view(ENDED)
        self._table["ended_ns"][at] = ended["time_ns"]
        self._table["over"][at] = True
        self._table["gpu_ns"][at] = ended["gpu_duration_ns"]
        for name in ("sends", "recvs"):
            self._table[name][at] = np.maximum(self._table[name][at], ended[name])

    def _find(self, records: Array) -> tuple[Array, Array]:
        """Where the operations of these records are in the table, and those records of which
        the operation is known: the record that it was entered may have been dropped."""
        at = self._positions(records["operation"])
        known = at >= 0
        return at[known], records.compress(known)

    def _positions(self, numbers: Array) -> Array:
        """Index of each operation in the table, -1 where it is not there."""
        table = self._table["operation"]
        at = np.searchsorted(table, numbers)
        inside = at < len(table)
        found = np.zeros(len(numbers), bool)
        found[inside] = table[at[inside]] == numbers[inside]
        return np.where(found, at, -1)
