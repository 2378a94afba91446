"""What the entries of one dump mean: its raw columns with groups, calls and elements derived."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property

import numpy as np

from oncall.importers.flight_recorder.names import DTYPE_BYTES, CallName, parse_call
from oncall.importers.flight_recorder.rows import COMPLETED, STARTED, Array, Rows

_OUTLIVED = 0.9  # of the timeout
_MOST_MILLISECONDS = 1e12


@dataclass(frozen=True)
class Entries:
    """Columns (n,) of dumps, one of which `dump` says. `group` codes index `pairs`, `call` codes
    `calls`.

    `dtype` codes index `dtypes`, -1 is NULL; `count` and `bytes` below 0 and times of 0 are NULL.
    `finished` is what the entry itself says: its state is completed, or it was retired; `held` that
    it is completed and the watchdog has not retired it, as an operation that was aborted;
    `aborted` that it was. `seen_ns` is when the dump was written, for what the watchdog had not
    retired by then. `row` is the entry's place among the rows that were read.
    """

    pairs: Sequence[tuple[str, str]]
    calls: Sequence[CallName]
    dtypes: Sequence[str]
    row: Array
    dump: Array
    group: Array
    pg_id: Array
    call: Array
    p2p: Array
    collective_seq: Array
    p2p_seq: Array
    op_id: Array
    dtype: Array
    count: Array
    bytes: Array
    enqueued_ns: Array
    started_ns: Array
    ended_ns: Array
    duration_ns: Array
    finished: Array
    held: Array
    aborted: Array
    seen_ns: Array

    @cached_property
    def seq(self) -> Array:
        """The number of each operation among those of its kind on its group."""
        return np.where(self.p2p, self.p2p_seq, self.collective_seq)

    @cached_property
    def key(self) -> Array:
        """A number (n,) that entries share if their group, kind and seq are the same."""
        return (self.seq * len(self.pairs) + self.group) * 2 + self.p2p

    @cached_property
    def batched(self) -> Array:
        """P2P entries (n,) that share their number with another one of their group."""
        batched = np.zeros(len(self.row), dtype=bool)
        rows = np.flatnonzero(self.p2p)
        if len(rows):
            _, inverse, size = np.unique(self.key[rows], return_inverse=True, return_counts=True)
            batched[rows] = size[inverse] > 1
        return batched

    def reopened(self, aborted: Array) -> Entries:
        """The entries where these (n,) of the held ones did not complete: they were aborted."""
        if not aborted.any():
            return self
        return replace(
            self,
            finished=self.finished & ~aborted,
            held=self.held & ~aborted,
            aborted=self.aborted | aborted,
            ended_ns=np.where(aborted, 0, self.ended_ns),
        )

    def select(self, keep: Array) -> Entries:
        """The entries where `keep` (a boolean mask or indices) holds."""
        columns = {
            column.name: value[keep]
            for column in fields(self)
            if isinstance(value := getattr(self, column.name), np.ndarray)
        }
        return Entries(self.pairs, self.calls, self.dtypes, **columns)


def read_entries(rows: Rows, dump: Array) -> Entries:
    """What the columns of dumps mean; `dump` (n,) numbers these, in order."""
    parsed = [parse_call(name) for name in rows.calls]
    call, group = rows.call, rows.group
    receives = np.array([name.op == "Recv" for name in parsed])[call]
    count = np.where(
        receives & (rows.output_elements >= 0), rows.output_elements, rows.input_elements
    )
    no_tensors = np.array([name.op == "Barrier" for name in parsed])[call] & (count < 0)
    count[no_tensors] = 0
    width = np.array([*(DTYPE_BYTES.get(name, -1) for name in rows.dtypes), -1])[rows.dtype]
    byte_count = np.where((count >= 0) & (width > 0), count * width, -1)
    byte_count[no_tensors] = 0
    completed, retired = rows.state == COMPLETED, rows.retired.astype(bool)
    called, discovered = rows.created_ns, rows.started_ns
    ended = np.where(completed, rows.ended_ns, 0)
    seen = np.maximum(ended, discovered)
    begun = (rows.state == STARTED) & ~retired
    p2p = _is_p2p(rows.is_p2p, parsed, call, dump)
    duration = _durations(rows.duration_ms)
    # Transfers between other ranks have streams of their own.
    stream = group * (len(parsed) + 1) + np.where(p2p, call + 1, 0)
    found = Entries(
        pairs=rows.pairs,
        calls=parsed,
        dtypes=rows.dtypes,
        row=np.arange(len(rows)),
        dump=dump,
        group=group,
        pg_id=rows.pg_id,
        call=call,
        p2p=p2p,
        collective_seq=rows.collective_seq,
        p2p_seq=rows.p2p_seq,
        op_id=rows.op_id,
        dtype=rows.dtype,
        count=count,
        bytes=byte_count,
        enqueued_ns=called,
        # Discovered when the dump was written, not when it began.
        started_ns=np.where(begun, called, 0),
        ended_ns=ended_by_then(stream, called, discovered, ended, duration),
        duration_ns=duration,
        finished=completed | retired,
        held=completed & ~retired,
        aborted=np.zeros(len(rows), dtype=bool),
        seen_ns=np.where(retired, 0, _written_ns(called, np.where(retired, 0, seen), dump)),
    )
    outlived = _outlived(called, ended, rows.timeout_ms)
    return found.reopened(found.held & outlived)


def _outlived(called: Array, ended: Array, timeout_ms: Array) -> Array:
    """Entries (n,) that did not end before the watchdog's own timeout: it ended them.

    An abort ends the kernel, so that the entry is "completed". Members begin one after the other,
    and the first timeout ends all of them.
    """
    limit = np.where(timeout_ms > 0, timeout_ms * (1e6 * _OUTLIVED), np.inf)
    outlived: Array = (ended > 0) & (ended - called >= limit)
    return outlived


def _written_ns(called: Array, seen: Array, dump: Array) -> Array:
    """When each row's dump was written (n,), 0 if it does not show: PyTorch looks at each entry
    that is not retired and stamps what has begun or ended since, in one pass after the last call.
    """
    first = np.flatnonzero(np.diff(dump, prepend=-1))
    stamped, last_call = np.maximum.reduceat(seen, first), np.maximum.reduceat(called, first)
    written: Array = np.where(stamped >= np.maximum(last_call, 1), stamped, 0)[dump]
    return written


def _durations(milliseconds: Array) -> Array:
    """Nanoseconds (n,)."""
    sound = np.where(np.abs(milliseconds) < _MOST_MILLISECONDS, milliseconds, 0)
    return np.rint(sound * 1e6).astype(np.int64)


def _is_p2p(flags: Array, calls: Sequence[CallName], call: Array, dump: Array) -> Array:
    """Which rows (n,) are: as their dump says, or by their names where its format lacks it."""
    lacks = np.minimum.reduceat(flags, np.flatnonzero(np.diff(dump, prepend=-1)))[dump] < 0
    by_name = np.array([name.p2p for name in calls], dtype=bool)[call]
    p2p: Array = np.where(lacks, by_name, flags > 0)
    return p2p


# When timed operations ended: between the watchdog's last two looks, and after their durations.
#
# A dump says when the watchdog discovered that an operation was over. It looks every 100 ms
# (kWatchdogThreadSleepMillis of each PyTorch that has a recorder), so that this is late by up to as
# much: more than most iterations can bear. With timing, an operation ended no sooner than its
# duration after its call and after the previous operation on its stream, and it had not ended when
# the watchdog last looked without finding it.

_LOOKS_EVERY_NS = 100_000_000  # of the watchdog


def ended_by_then(
    stream: Array, called_ns: Array, begun_ns: Array, ended_ns: Array, duration_ns: Array
) -> Array:
    """The earliest end (n,) that an entry's times allow, ns; `ended_ns` where it has no duration.

    `stream` (n,) numbers what the device runs one after the other, in the order of entries;
    `begun_ns` and `ended_ns` are when the watchdog discovered it, 0 where it did not.
    """
    timed = np.flatnonzero((ended_ns > 0) & (duration_ns > 0))
    if not len(timed):
        return ended_ns
    timed = timed[np.argsort(stream[timed], kind="stable")]
    called, ended = called_ns[timed], ended_ns[timed]
    took = np.clip(duration_ns[timed], 0, np.maximum(ended - called, 0))  # a file may say anything
    began = np.maximum(called, ended - _LOOKS_EVERY_NS - took)
    began = np.maximum(began, begun_ns[timed] - _LOOKS_EVERY_NS)
    # Each begins once the one before it is over: a running maximum of what lies before their sum.
    first = np.flatnonzero(np.diff(stream[timed], prepend=-1))
    busy = np.cumsum(took) - took
    busy -= np.repeat(busy[first], np.diff(first, append=len(timed)))
    free = np.empty_like(began)
    for begin, end in zip(first, [*first[1:], len(timed)], strict=True):
        free[begin:end] = np.maximum.accumulate((began - busy)[begin:end])
    found = ended_ns.copy()
    found[timed] = np.clip(free + busy + took, np.minimum(called + took, ended), ended)
    return found
