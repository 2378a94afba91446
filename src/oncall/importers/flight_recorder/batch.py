"""Many dumps as one batch of arrays: what a reading process returns.

Communicators are codes here; who their members are is known only when every file has been read.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from oncall.core.errors import Unreadable
from oncall.importers.codes import Codes
from oncall.importers.documents import no_garbage_collection, scalars
from oncall.importers.flight_recorder.completion import (
    Status,
    close_batches,
    completed,
    never_launched,
    tell_kinds,
)
from oncall.importers.flight_recorder.entries import Entries, read_entries
from oncall.importers.flight_recorder.file import load_dump
from oncall.importers.flight_recorder.groups import (
    MOST_RANKS,
    Group,
    groups_by_pg_id,
    listed_groups,
)
from oncall.importers.flight_recorder.rows import Array, Dump, Rows, joined

MALFORMED = (
    *(TypeError, ValueError, LookupError, AttributeError, ArithmeticError, RecursionError),
)
_RANK = re.compile(r"(?<!\d)(\d{1,6})(?:\.[A-Za-z]\w*+){0,9}$")
_ROWS_AT_ONCE = 1 << 15  # of which a column fits the processor's cache
_MOST_FRAME_LETTERS = 1000  # of one line; C++ names of templates reach 500


@dataclass(frozen=True)
class Note:
    """The outcome of one file; `groups` are codes of the groups its rank lists or used, and
    `newest_ns` is the newest stamp inside: the dump is no older."""

    path: str
    rank: int | None
    version: str | None = None
    rows: int = 0
    problem: str | None = None
    groups: tuple[int, ...] = ()
    newest_ns: int = 0


@dataclass(frozen=True)
class Where:
    """Where a rank's program made one call; `frames` is a code."""

    rank: int
    group: int
    seq: int
    kind: str
    frames: int


@dataclass
class Batch:
    """The operations of several dumps and what is needed to place them.

    `parts` (one a dump, later one in all) hold equally long columns: rank, group, p2p, seq, op,
    dtype, peer (rank within the group), count, bytes, enqueued_ns, started_ns (of what is open),
    ended_ns, duration_ns, done, held (completed and not retired), observed_ns. Codes, peers, counts
    and bytes below 0 are NULL, and so are times of 0.
    """

    notes: list[Note] = field(default_factory=list)
    counts: list[tuple[int, int, Status]] = field(default_factory=list)  # rank, group
    stacks: list[Where] = field(default_factory=list)
    parts: list[dict[str, Array]] = field(default_factory=list)
    sizes: dict[int, int] = field(default_factory=dict)  # group: size that shapes prove
    groups: Codes = field(default_factory=Codes)
    ops: Codes = field(default_factory=Codes)
    dtypes: Codes = field(default_factory=Codes)
    frames: Codes = field(default_factory=Codes)

    def count(self, rank: int, groups: Mapping[int, Group], status: Mapping[int, Status]) -> None:
        """Keep the pg_status of a rank, for each pg_id whose group is known."""
        for pg_id, group in groups.items():
            if pg_id in status:
                self.counts.append((rank, self.groups[group], status[pg_id]))

    @property
    def columns(self) -> dict[str, Array]:
        return self.parts[0] if self.parts else {}


def rank_in_name(path: str) -> int | None:
    """The rank a dump's file name ends with: `fr_trace_rank_2.json` is 2; None if there is none."""
    match = _RANK.search(path.rpartition("/")[2])
    return int(match[1]) if match else None


@dataclass(frozen=True)
class _Called:
    """A dump with operations, the `place` of its note, and what its head says."""

    place: int
    note: Note
    rank: int
    rows: Rows
    listed: Sequence[Group]
    status: dict[int, Status]


def read_batch(paths: Sequence[str]) -> Batch:
    """Read files into one batch. A file that cannot be read leaves a note with its problem."""
    batch = Batch()
    waiting: list[_Called] = []
    rows = 0
    with no_garbage_collection():
        for path in paths:
            read = _read_file(path, batch)
            batch.notes.append(read if isinstance(read, Note) else read.note)
            if isinstance(read, _Called):
                waiting.append(read)
                rows += len(read.rows)
            if rows >= _ROWS_AT_ONCE:
                _place(waiting, batch)
                waiting, rows = [], 0
        if waiting:
            _place(waiting, batch)
    if batch.parts:
        names = batch.parts[0]
        batch.parts = [{name: np.concatenate([p[name] for p in batch.parts]) for name in names}]
    return batch


def _read_file(path: str, batch: Batch) -> Note | _Called:
    rank = rank_in_name(path)
    if rank is None:
        return Note(path, None, problem="the file's name does not end with a rank")
    try:
        return _read_dump(path, rank, load_dump(Path(path)), batch)
    except Unreadable as error:
        return Note(path, rank, problem=str(error))
    except MALFORMED as error:
        what = Unreadable(f"not what the Flight Recorder writes: {type(error).__name__}: {error}")
        return Note(path, rank, problem=str(what))


def _read_dump(path: str, rank: int, dump: Dump, batch: Batch) -> Note | _Called:
    """All of a dump or, if a part is malformed, nothing."""
    head, rows = dump.head, dump.rows
    listed = listed_groups(head.get("pg_config") or {})
    status = _pg_status(head.get("pg_status") or {})
    scalars([head.get("version")])
    version = str(head["version"]) if "version" in head else None
    if not len(rows):
        batch.count(rank, groups_by_pg_id(status, listed, {}), status)
        return Note(path, rank, version, groups=tuple(batch.groups.of(listed).tolist()))
    return _Called(len(batch.notes), Note(path, rank, version), rank, rows, listed, status)


def _place(dumps: Sequence[_Called], batch: Batch) -> None:
    """Put dumps into the batch."""
    rows, dump = joined([one.rows for one in dumps])
    called = close_batches(read_entries(rows, dump))
    seen = [_groups_seen(called, part) for part in _parts(called.dump, len(dumps))]
    status = {
        group: one.status[pg_id]
        for one, groups in zip(dumps, seen, strict=True)
        for pg_id, group in groups.items()
        if pg_id in one.status
    }
    kinds = tell_kinds(called, status)
    called = called.reopened(never_launched(called, kinds))
    done = completed(called, kinds)
    used = [group for one in dumps for group in _used(one)]
    codes = batch.groups.of(used)
    ranks = np.array([one.rank for one in dumps], dtype=np.int32)
    batch.parts.append(_part(called, done, ranks[called.dump], codes, batch))
    batch.sizes |= {int(codes[group]): size for group, size in _proven_sizes(rows, called).items()}
    for index, lines in _stacks(rows, called, done):
        kind = "p2p" if called.p2p[index] else "coll"
        where = int(ranks[called.dump[index]]), int(codes[called.group[index]])
        batch.stacks.append(Where(*where, int(called.seq[index]), kind, batch.frames[lines]))
    newest_ns = np.zeros(len(dumps), dtype=np.int64)
    for stamps in (called.enqueued_ns, called.ended_ns, called.seen_ns):
        np.maximum.at(newest_ns, called.dump, stamps)
    first = 0
    for at, (one, mine) in enumerate(zip(dumps, seen, strict=True)):
        of = {pg_id: used[group] for pg_id, group in mine.items()}
        groups = groups_by_pg_id(one.status, one.listed, of)
        stated = {pg_id: kinds[group] for pg_id, group in mine.items() if group in kinds}
        batch.count(one.rank, groups, one.status | stated)
        own = codes[first : first + len(one.rows.pairs)].tolist()
        first += len(own)
        batch.notes[one.place] = replace(
            one.note,
            rows=int(np.count_nonzero(called.dump == at)),
            groups=tuple(dict.fromkeys([*batch.groups.of(one.listed).tolist(), *own])),
            newest_ns=int(newest_ns[at]),
        )


def _parts(dump: Array, dumps: int) -> list[slice]:
    """The rows of each dump."""
    bounds = np.searchsorted(dump, np.arange(dumps + 1)).tolist()
    return [slice(*pair) for pair in pairwise(bounds)]


def _groups_seen(called: Entries, part: slice) -> dict[int, int]:
    """The group of each pg_id in these rows."""
    return dict(zip(called.pg_id[part].tolist(), called.group[part].tolist(), strict=True))


def _used(dump: _Called) -> Iterator[Group]:
    """Its groups, with members where it lists them."""
    by_pair = {(group.name, group.desc): group for group in dump.listed}
    return (by_pair.get(pair) or Group(*pair) for pair in dump.rows.pairs)


def _pg_status(raw: Mapping[str, Any]) -> dict[int, Status]:
    return {
        int(pg_id): Status(
            _int64(one["last_enqueued_collective"]), _int64(one["last_completed_collective"])
        )
        for pg_id, one in raw.items()
    }


def _int64(value: Any) -> int:
    """A whole number that fits the database; JSON dumps write it as a string."""
    return int(np.int64(int(value)))


def _part(
    entries: Entries, done: Array, rank: Array, groups: Array, batch: Batch
) -> dict[str, Array]:
    """The columns of dumps with the batch's codes."""
    ops = batch.ops.of(call.op for call in entries.calls)
    peers = np.array([-1 if call.peer is None else call.peer for call in entries.calls])
    dtypes = np.append(batch.dtypes.of(entries.dtypes), np.int32(-1))
    return {
        "rank": rank,
        "group": groups[entries.group],
        "p2p": entries.p2p,
        "seq": entries.seq,
        "group_id": np.where(entries.batched, entries.key, -1),
        "op": ops[entries.call],
        "dtype": dtypes[entries.dtype],
        "peer": peers[entries.call].astype(np.int32),
        "count": entries.count,
        "bytes": entries.bytes,
        "enqueued_ns": entries.enqueued_ns,
        "started_ns": entries.started_ns,
        "ended_ns": entries.ended_ns,
        "duration_ns": entries.duration_ns,
        "done": done,
        "held": entries.held,
        "observed_ns": entries.seen_ns,
    }


def _stacks(rows: Rows, called: Entries, done: Array) -> Iterator[tuple[int, tuple[str, ...]]]:
    """What is in flight and each group's last operation, with the frames of its call."""
    last = np.full(len(called.pairs), -1)
    last[called.group] = np.arange(len(done))
    shown = np.unique([*np.flatnonzero(~done), *last[last >= 0]])
    known: dict[int, tuple[str, ...]] = {}
    for index, stack in zip(shown.tolist(), rows.stack[called.row[shown]].tolist(), strict=True):
        if stack >= 0:
            if stack not in known:
                known[stack] = tuple(_line(*frame) for frame in rows.frames(stack))
            yield index, known[stack]


def _line(name: str, file: str, line: str) -> str:
    half = _MOST_FRAME_LETTERS // 2
    return f"{name[:half]} at {file[:half]}:{line[:half]}"


def _proven_sizes(rows: Rows, called: Entries) -> dict[int, int]:
    """Group sizes that shapes prove: an all-gather puts out what all members put in."""
    gathers = np.array([call.op == "AllGather" for call in called.calls])[called.call]
    at = np.flatnonzero(gathers & (called.count > 0))
    groups, first = np.unique(called.group[at], return_index=True)
    at = at[first]
    output = np.maximum(rows.output_elements[called.row[at]], 0)
    whole, rest = np.divmod(output, called.count[at])
    sizes = np.where((rest > 0) | (whole > MOST_RANKS), 0, whole)
    return dict(zip(groups.tolist(), sizes.tolist(), strict=True))
