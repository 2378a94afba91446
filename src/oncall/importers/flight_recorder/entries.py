"""The entries of one dump as columns: one pass a field, no work a row that a column can do."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from itertools import chain
from operator import itemgetter
from typing import Any, TypeAlias

import numpy as np

from oncall.importers.documents import scalars
from oncall.importers.flight_recorder.names import DTYPE_BYTES, CallName, parse_call

Array: TypeAlias = np.ndarray[Any, Any]

_FIELDS = (
    "process_group",
    "pg_id",
    "collective_seq_id",
    "p2p_seq_id",
    "op_id",
    "profiling_name",
    "time_created_ns",
    "input_sizes",
    "input_dtypes",
    "output_sizes",
    "state",
    "time_discovered_started_ns",
    "time_discovered_completed_ns",
    "retired",
    "timeout_ms",
    "is_p2p",
)
_MAX_DIMENSIONS = 64
_OUTLIVED = 0.9  # of the timeout
_MOST_MILLISECONDS = 1e12
_TOO_MANY = 2.0**62  # elements; a sum of two still fits 64 bits


class Codes(dict[Any, int]):
    """A vocabulary in the making: looking a word up gives its code, a new word the next one."""

    def __missing__(self, word: Any) -> int:
        self[word] = code = len(self)
        return code

    def of(self, words: Iterable[Any]) -> Array:
        """The codes of words, int32 (n,)."""
        return np.fromiter(map(self.__getitem__, words), dtype=np.int32)


@dataclass(frozen=True)
class Entries:
    """Columns (n,) of one dump. `group` codes index `pairs`, `call` codes `calls`.

    `dtype` codes index `dtypes`, -1 is NULL; `count` and `bytes` below 0 and times of 0 are NULL.
    `finished` is what the entry itself says: its state is completed, or it was retired; `held` that
    it is completed and the watchdog has not retired it, as an operation that was aborted;
    `aborted` that it was. `seen_ns` is when the dump was written, for what the watchdog had not
    retired by then. `row` is the entry's place in the dump.
    """

    pairs: list[tuple[str, str]]
    calls: list[CallName]
    dtypes: list[str]
    row: Array
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

    @property
    def seq(self) -> Array:
        """The number of each operation among those of its kind on its group."""
        return np.where(self.p2p, self.p2p_seq, self.collective_seq)

    @property
    def key(self) -> Array:
        """A number (n,) that entries share if their group, kind and seq are the same."""
        return (self.seq * len(self.pairs) + self.group) * 2 + self.p2p

    def reopened(self, aborted: Array) -> Entries:
        """The entries where these (n,) of the held ones did not complete: they were aborted."""
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


def read_entries(entries: Sequence[Mapping[str, Any]], budget: int) -> Entries:
    """Entries of a dump as columns; fields that older formats lack are NULL or derived.

    Raises ValueError, TypeError, KeyError or OverflowError on what PyTorch does not write. No more
    than `budget` tensors are looked at: a hostile file can refer to one list a million times, and
    what is hashed or compared is a scalar: of lists within lists that would never end.
    """
    column = _columns(entries)
    pairs, calls, dtypes = Codes(), Codes(), Codes()
    group = pairs.of(_pairs(column["process_group"], column["pg_id"]))
    scalars(column["profiling_name"])
    call = calls.of(column["profiling_name"])
    parsed = [parse_call(name) for name in calls]
    receives = np.array([name.op == "Recv" for name in parsed])[call]
    sizes = list(column["input_sizes"])
    for index in np.flatnonzero(receives):
        sizes[index] = column["output_sizes"][index] or sizes[index]
    types: list[Sequence[str]] = [one or () for one in column["input_dtypes"]]
    if sum(map(len, types)) > budget:
        raise ValueError("more tensors than its size explains")
    scalars(chain.from_iterable(types))
    dtype = dtypes.of([one[0] if len(one) == 1 else _common(one) for one in types])
    count = elements_of(sizes, budget)
    no_tensors = np.array([name.op == "Barrier" for name in parsed])[call] & (count < 0)
    count[no_tensors] = 0
    width = np.array([DTYPE_BYTES.get(name, -1) for name in dtypes], dtype=np.int64)[dtype]
    byte_count = np.where((count >= 0) & (width > 0), count * width, -1)
    byte_count[no_tensors] = 0
    completed = np.array([state == "completed" for state in column["state"]], dtype=bool)
    retired = np.fromiter(map(bool, column["retired"]), dtype=bool)
    called = _integers(column["time_created_ns"])
    ended = np.where(completed, _integers(column["time_discovered_completed_ns"]), 0)
    discovered = _integers(column["time_discovered_started_ns"])
    seen = np.maximum(ended, discovered)
    begun = np.array([state == "started" for state in column["state"]], dtype=bool) & ~retired
    p2p = _is_p2p(column["is_p2p"], parsed, call)
    duration = _durations(entries)
    # Transfers between other ranks have streams of their own.
    stream = group * (len(calls) + 1) + np.where(p2p, call + 1, 0)
    unnamed = np.array([name is None for name in dtypes], dtype=bool)
    found = Entries(
        pairs=[(str(name), str(desc)) for name, desc in pairs],
        calls=parsed,
        dtypes=[str(name) for name in dtypes],
        row=np.arange(len(entries)),
        group=group,
        pg_id=_integers(column["pg_id"]),
        call=call,
        p2p=p2p,
        collective_seq=np.fromiter(column["collective_seq_id"], dtype=np.int64),
        p2p_seq=_integers(column["p2p_seq_id"]),
        op_id=_integers(column["op_id"]),
        dtype=np.where(unnamed[dtype], np.int32(-1), dtype),
        count=count,
        bytes=byte_count,
        enqueued_ns=called,
        # Discovered when the dump was written, not when it began.
        started_ns=np.where(begun, called, 0),
        ended_ns=ended_by_then(stream, called, discovered, ended, duration),
        duration_ns=duration,
        finished=completed | retired,
        held=completed & ~retired,
        aborted=np.zeros(len(entries), dtype=bool),
        seen_ns=np.where(retired, 0, _written_ns(called, np.where(retired, 0, seen))),
    )
    outlived = _outlived(called, ended, _integers(column["timeout_ms"]))
    return found.reopened(found.held & outlived)


def _outlived(called: Array, ended: Array, timeout_ms: Array) -> Array:
    """Entries (n,) that did not end before the watchdog's own timeout: it ended them.

    An abort ends the kernel, so that the entry is "completed". Members begin one after the other,
    and the first timeout ends all of them.
    """
    limit = np.where(timeout_ms > 0, timeout_ms * (1e6 * _OUTLIVED), np.inf)
    outlived: Array = (ended > 0) & (ended - called >= limit)
    return outlived


def _written_ns(called: Array, seen: Array) -> int:
    """When the dump was written, 0 if it does not show: PyTorch looks at each entry that is not
    retired and stamps what has begun or ended since, all in one pass after the last call."""
    stamps = seen[seen > 0]
    if not len(stamps) or stamps.max() < called.max():
        return 0
    return int(stamps.max())


def _columns(entries: Sequence[Mapping[str, Any]]) -> dict[str, tuple[Any, ...]]:
    try:
        rows = list(map(itemgetter(*_FIELDS), entries))
    except KeyError:  # an older format: what it lacks is None
        rows = [tuple(map(entry.get, _FIELDS)) for entry in entries]
    return dict(zip(_FIELDS, zip(*rows, strict=True), strict=True))


def _pairs(process_groups: Sequence[Any], pg_ids: Sequence[Any]) -> Iterable[tuple[Any, ...]]:
    """Name and description of each entry's group; the pg_id stands in where a format lacks them."""
    lacking = None in process_groups
    given = [it for it in process_groups if it is not None] if lacking else process_groups
    if set(map(len, given)) - {2}:
        raise ValueError("a group that is not its name and description")
    scalars(chain.from_iterable(given))
    if lacking:
        scalars(pg_ids)
        return [
            (pg_id, "") if it is None else tuple(it)
            for it, pg_id in zip(process_groups, pg_ids, strict=True)
        ]
    return map(tuple, process_groups)


def _integers(values: Sequence[Any]) -> Array:
    """int64 (n,); None is 0. One by one: an array of what holds itself twice would never end."""
    try:
        return np.fromiter(values, dtype=np.int64, count=len(values))
    except TypeError:
        known = [value or 0 for value in values]
        return np.fromiter(known, dtype=np.int64, count=len(known))


def _durations(entries: Sequence[Mapping[str, Any]]) -> Array:
    """Nanoseconds (n,) from `duration_ms`, which is there only with NCCL's timing on."""
    milliseconds = np.zeros(len(entries))
    for row, entry in enumerate(entries):
        if "duration_ms" in entry:
            milliseconds[row] = float(entry["duration_ms"] or 0)
    milliseconds[~(np.abs(milliseconds) < _MOST_MILLISECONDS)] = 0
    return np.rint(milliseconds * 1e6).astype(np.int64)


def _is_p2p(flags: Sequence[Any], calls: Sequence[CallName], call: Array) -> Array:
    if None in flags:
        return np.array([name.p2p for name in calls], dtype=bool)[call]
    return np.fromiter(map(bool, flags), dtype=bool, count=len(flags))


def _common(dtypes: Sequence[str]) -> str | None:
    """The element type of all tensors of a call; None if they differ or there are none."""
    return dtypes[0] if dtypes and all(other == dtypes[0] for other in dtypes) else None


def elements_of(sizes: Iterable[Any], budget: int) -> Array:
    """Elements of all tensors of each call (n,), -1 where there are no tensors."""
    calls = [tensors or () for tensors in sizes]
    tensors_of = np.fromiter(map(len, calls), dtype=np.int64, count=len(calls))
    if tensors_of.sum() > budget:
        raise ValueError("more tensors than its size explains")
    tensors = list(chain.from_iterable(calls))
    dimensions_of = np.fromiter(map(len, tensors), dtype=np.int64, count=len(tensors))
    if dimensions_of.max(initial=0) > _MAX_DIMENSIONS:
        raise ValueError(f"a tensor of more than {_MAX_DIMENSIONS} dimensions")
    if dimensions_of.sum() > budget:
        raise ValueError("more dimensions of tensors than its size explains")
    dimensions = np.fromiter(chain.from_iterable(tensors), dtype=np.int64)
    elements = _each(np.multiply, dimensions, dimensions_of, of_none=1)
    return _each(np.add, elements, tensors_of, of_none=-1)


def _each(operation: np.ufunc, values: Array, lengths: Array, of_none: int) -> Array:
    """The sum or product of each run of values, runs being so long; of an empty one `of_none`."""
    found = np.full(len(lengths), of_none, dtype=np.int64)
    filled = lengths > 0
    if filled.any():
        starts = (np.cumsum(lengths) - lengths)[filled]
        if np.abs(operation.reduceat(values.astype(np.float64), starts)).max() >= _TOO_MANY:
            raise OverflowError("more elements than a tensor can have")
        found[filled] = operation.reduceat(values, starts)
    return found


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
