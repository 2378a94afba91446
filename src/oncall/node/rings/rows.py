"""Evidence rows of operations and transfers, from what the ring records. Pure.

Instants in a ring are CLOCK_MONOTONIC; rows hold Unix time. All instants of a row are converted
with one offset, taken when the row is made, so that a step of the clock bends no duration.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np

from oncall.evidence.columns import ColumnData, Words
from oncall.node.rings.operations import concatenated
from oncall.node.rings.ring_layout import (
    DIRECTIONS,
    DTYPE_BYTES,
    DTYPES,
    KINDS,
    OPERATIONS,
    PAIRED,
    ROOTED,
    WAITS,
)
from oncall.node.store.batch import Batch

Array: TypeAlias = np.ndarray[Any, Any]
_NS_PER_US = 1000
_IS_ROOTED, _IS_PAIRED = (np.isin(np.arange(256), ops) for ops in (ROOTED, PAIRED))  # by `op`


@dataclass(frozen=True)
class Scale:
    """Whose rows, and how its clock reads: Unix time = CLOCK_MONOTONIC + `offset_ns`."""

    job: str
    rank: int
    offset_ns: int


@dataclass(frozen=True)
class Operations:
    """Operations (OPERATION) and the communicator of each (MEMBER), of one process or several:
    then job and rank are given for each. Unix time = CLOCK_MONOTONIC + `offset_ns`."""

    table: Array
    members: Array
    job: str | Words
    rank: int | Array
    offset_ns: int

    @property
    def comm(self) -> ColumnData:
        """Each one's commHash, NULL where it is not known."""
        identities = self.members["identity"]
        return np.ma.MaskedArray(identities, mask=identities == 0)

    def unix_ns(self, monotonic_ns: Array) -> ColumnData:
        """Instants as Unix time; 0 (never) becomes NULL."""
        return np.ma.MaskedArray(monotonic_ns + self.offset_ns, mask=monotonic_ns == 0)


def together(parts: Sequence[Operations]) -> Operations:
    """Operations of one process each, of one instant, as one: making rows costs by the column,
    and a node has many processes."""
    jobs = list(dict.fromkeys(part.job for part in parts))
    each = [len(part.table) for part in parts]
    codes = np.repeat(np.array([jobs.index(part.job) for part in parts], np.int32), each)
    return Operations(
        concatenated([part.table for part in parts]),
        concatenated([part.members for part in parts]),
        Words(codes, jobs),
        np.repeat([part.rank for part in parts], each),
        parts[0].offset_ns,
    )


def finished_rows(operations: Operations) -> Batch:
    """Rows of operations that are over. `done` is NULL where no profiler recorded their end."""
    table, members = operations.table, operations.members
    ended = table["ended_ns"] != 0
    # A rank alone waits for nobody, and what is only captured does not run now.
    known = ended | members["ends_recorded"] | members["is_alone"] | table["captured"]
    columns = _common(operations) | {
        "ended_ns": operations.unix_ns(table["ended_ns"]),
        # The stream goes on when the kernel is over, though the proxy may still be sending.
        "duration_ns": _positive(table["gpu_ns"]),
        "done": np.ma.MaskedArray(np.ones(len(table), bool), mask=~known),
        **_rates(table, members["steps_reported"]),
    }
    return Batch("ops", len(table), columns)


def over_rows(operations: Operations) -> Batch:
    """Rows of operations that are neither done nor in flight: refused by NCCL, or left behind by
    a process that ended in order."""
    return Batch("ops", len(operations.table), _common(operations))


def open_rows(operations: Operations, observed_ns: int | Array) -> Batch:
    """Rows of operations entered and not over, as they stand at `observed_ns` (Unix time, one for
    all or (n,))."""
    table, members = operations.table, operations.members
    # For communicators whose transfers are recorded, no step means none; for others, not known.
    steps_unknown = ~members["steps_reported"]
    columns = _common(operations) | {
        "done": np.ma.MaskedArray(np.zeros(len(table), bool), mask=~members["ends_recorded"]),
        "sends": np.ma.MaskedArray(table["sends"], mask=steps_unknown),
        "recvs": np.ma.MaskedArray(table["recvs"], mask=steps_unknown),
        "observed_ns": observed_ns,
    }
    return Batch("ops", len(table), columns)


def _common(of: Operations) -> dict[str, ColumnData]:
    """What is known of an operation whether it is over or not."""
    operations = of.table
    op = operations["op"]
    dtype = operations["dtype"].astype(np.int64)
    known_dtype = dtype < len(DTYPES)
    size = DTYPE_BYTES[np.where(known_dtype, dtype, 0)]
    paired = _IS_PAIRED[op] & (operations["peer"] >= 0)
    return {
        "job": of.job,
        "comm": of.comm,
        "seq": operations["sequence"],
        "rank": of.rank,
        "kind": Words(operations["point_to_point"].astype(np.int32), KINDS),
        "op": _words(op, OPERATIONS),
        "dtype": Words(np.where(known_dtype, dtype, -1).astype(np.int32), DTYPES),
        "count": operations["count"],
        "bytes": np.ma.MaskedArray(operations["count"] * size, mask=~known_dtype),
        "root": np.ma.MaskedArray(operations["peer"], mask=~_IS_ROOTED[op]),
        "comm_peer": np.ma.MaskedArray(operations["peer"], mask=~paired),
        "pair_seq": _positive(operations["pair_seq"]),
        "algo": _names(operations["algorithm"]),
        "proto": _names(operations["protocol"]),
        "channels": _positive(operations["channels"]),
        "stream": operations["stream"],
        "group_id": _positive(operations["group"].astype(np.int64)),
        "enqueued_ns": of.unix_ns(operations["entered_ns"]),
        "started_ns": of.unix_ns(operations["started_ns"]),
    }


def _rates(operations: Array, steps_reported: Array) -> dict[str, ColumnData]:
    """Send and receive primitives, and how many a second (CCL-D 4.1); NULL where not known.

    A rank that comes early waits inside the operation, so steps over its whole span would make
    it look slow: where the sends' time on the wire is recorded, the rate is that of the wire, and
    how fast data comes in is the sender's rate.
    """
    began = np.where(operations["started_ns"], operations["started_ns"], operations["entered_ns"])
    span_ns = operations["ended_ns"] - began
    wire_ns = operations["wire_ns"]
    sending_ns = np.where(wire_ns > 0, wire_ns, span_ns)
    receiving_ns = np.where(wire_ns > 0, 0, span_ns)
    columns: dict[str, ColumnData] = {}
    for count, rate, time_ns in (
        ("sends", "send_rate", sending_ns),
        ("recvs", "recv_rate", receiving_ns),
    ):
        steps = operations[count]
        # Whole numbers compress well, and a rate is never known better than that.
        per_second = np.rint(steps * 1e9 / np.maximum(time_ns, 1))
        columns[count] = np.ma.MaskedArray(steps, mask=(steps == 0) & ~steps_reported)
        columns[rate] = np.ma.MaskedArray(per_second, mask=(steps == 0) | (time_ns <= 0))
    return columns


# ------------------------------------------------------------------ transfers


def finished_transfers(records: Array, operations: Operations) -> Batch:
    """Rows of transfers that are over (TRANSFER_OVER); `operations` gives the operation of each,
    number 0 where its record was dropped."""
    is_send = records["is_send"] != 0
    first, last = (_ns(records[name]) for name in ("first_wait_us", "last_wait_us"))
    steps = records["group"].astype(np.int64)
    columns = _of_operation(operations) | {
        "channel": records["channel"].astype(np.int64),
        "comm_peer": records["peer"],
        "direction": Words(is_send.astype(np.int32), DIRECTIONS),
        "steps": steps,
        "steps_done": steps,
        "bytes": records["bytes"].astype(np.int64),
        "gpu_wait_ns": np.where(is_send, first, last),
        "peer_wait_ns": _ns(records["peer_wait_us"]),
        "wire_wait_ns": np.where(is_send, last, first),
        "started_ns": operations.unix_ns(records["time_ns"] - _ns(records["span_us"])),
        "ended_ns": operations.unix_ns(records["time_ns"]),
    }
    return Batch("transfers", len(records), columns)


def open_transfers(boards: Array, operations: Operations, observed_ns: Array) -> Batch:
    """Rows of transfers in flight, from their boards; `operations` gives the operation of each."""
    is_send = boards["is_send"] != 0
    waited = boards["waited_ns"]  # (n, 7) by wait
    columns = _of_operation(operations) | {
        "channel": boards["channel"].astype(np.int64),
        "comm_peer": boards["peer"],
        "direction": Words(is_send.astype(np.int32), DIRECTIONS),
        "steps": boards["steps"].astype(np.int64),
        "steps_done": boards["steps_done"].astype(np.int64),
        "bytes": boards["bytes"].astype(np.int64),
        "waits_for": _words(boards["wait"], WAITS),
        "since_ns": operations.unix_ns(np.where(boards["wait"] == 0, 0, boards["since_ns"])),
        "gpu_wait_ns": np.where(is_send, waited[:, 1], waited[:, 6]),
        "peer_wait_ns": np.where(is_send, waited[:, 2], waited[:, 5]),
        "wire_wait_ns": np.where(is_send, waited[:, 3], waited[:, 4]),
        "started_ns": operations.unix_ns(boards["started_ns"]),
        "observed_ns": observed_ns,
    }
    return Batch("transfers", len(boards), columns)


@dataclass(frozen=True)
class InFlight:
    """What processes have in flight, each part of one process and as it stood at an instant (Unix
    ns): operations, and transfers with the operation of each. Made into rows together."""

    operations: list[tuple[Operations, int]] = field(default_factory=list)
    transfers: list[tuple[Array, Operations, int]] = field(default_factory=list)

    def rows(self) -> list[Batch]:
        batches = []
        if self.operations:
            parts, observed_ns = zip(*self.operations, strict=True)
            batches.append(open_rows(together(parts), _each(observed_ns, parts)))
        if self.transfers:
            boards, parts, observed_ns = zip(*self.transfers, strict=True)
            of = together(parts)
            batches.append(open_transfers(concatenated(boards), of, _each(observed_ns, parts)))
        return batches


def _each(values: Sequence[int], parts: Sequence[Operations]) -> Array:
    """Each part's value for each of its operations (n,)."""
    return np.repeat(np.array(values, np.int64), [len(part.table) for part in parts])


def _of_operation(of: Operations) -> dict[str, ColumnData]:
    operations = of.table
    known = operations["operation"] != 0
    kinds = np.where(known, operations["point_to_point"], -1).astype(np.int32)
    return {
        "job": of.job,
        "comm": of.comm,
        "seq": np.ma.MaskedArray(operations["sequence"], mask=~known),
        "kind": Words(kinds, KINDS),
        "rank": of.rank,
    }


# ------------------------------------------------------------------ columns


def _words(codes: Array, vocabulary: tuple[str, ...]) -> Words:
    """Words by number, where number 0 is none and what a newer hook may add is none either."""
    inside = (codes > 0) & (codes < len(vocabulary))
    return Words(np.where(inside, codes.astype(np.int64), -1).astype(np.int32), vocabulary)


def _names(values: Array) -> Words:
    """NUL-padded bytes as words; an empty one is none."""
    if len(values) and (values == values[0]).all():  # the common case, and sorting is slow
        names, codes = values[:1], np.zeros(len(values), np.intp)
    else:
        names, codes = np.unique(values, return_inverse=True)
    words = [name.decode("ascii", "replace") for name in names.tolist()]
    if words and words[0] == "":
        return Words(codes.astype(np.int32) - 1, words[1:])
    return Words(codes.astype(np.int32), words)


def _positive(values: Array) -> ColumnData:
    return np.ma.MaskedArray(values, mask=values <= 0)


def _ns(microseconds: Array) -> Array:
    return microseconds.astype(np.int64) * _NS_PER_US
