"""Many dumps as one batch of arrays: what a reading process returns.

Communicators are codes here; who their members are is known only when every file has been read.
"""

from __future__ import annotations

import gc
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from oncall.ingest.flight_recorder.completion import Status, close_batches, completed, tell_kinds
from oncall.ingest.flight_recorder.entries import Array, Codes, Entries, read_entries
from oncall.ingest.flight_recorder.file import Unreadable, load_dump
from oncall.ingest.flight_recorder.groups import Group, groups_by_pg_id, listed_groups

_MALFORMED = (TypeError, ValueError, KeyError, IndexError, AttributeError, OverflowError)


@dataclass(frozen=True)
class Note:
    """What became of one file; `groups` are codes of the groups its rank lists or used."""

    path: str
    rank: int | None
    version: str | None = None
    rows: int = 0
    problem: str | None = None
    groups: tuple[int, ...] = ()


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
    dtype, peer (rank within the group), count, bytes, enqueued_ns, ended_ns, duration_ns, done.
    Codes, peers, counts and bytes below 0 are NULL, and so are times of 0.
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

    @property
    def columns(self) -> dict[str, Array]:
        return self.parts[0] if self.parts else {}


def rank_in_name(path: str) -> int | None:
    """The rank a dump's file name ends with: `fr_trace_rank_2.json` is 2; None if there is none."""
    match = re.search(r"(\d{1,9})(?:\.[A-Za-z]\w*)*$", Path(path).name)
    return int(match[1]) if match else None


def read_batch(paths: Sequence[str]) -> Batch:
    """Read files into one batch. A file that cannot be read leaves a note with its problem."""
    batch = Batch()
    with _no_garbage_collection():
        for path in paths:
            batch.notes.append(_read_file(path, batch))
    if batch.parts:
        names = batch.parts[0]
        batch.parts = [{name: np.concatenate([p[name] for p in batch.parts]) for name in names}]
    return batch


@contextmanager
def _no_garbage_collection() -> Iterator[None]:
    """Dumps are trees without cycles: collecting while their containers grow doubles the time."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _read_file(path: str, batch: Batch) -> Note:
    rank = rank_in_name(path)
    if rank is None:
        return Note(path, None, problem="the file's name does not end with a rank")
    try:
        return _add_dump(path, rank, load_dump(Path(path)), batch)
    except Unreadable as error:
        return Note(path, rank, problem=str(error))
    except _MALFORMED as error:
        problem = f"not what the Flight Recorder writes: {type(error).__name__}: {error}"
        return Note(path, rank, problem=problem)


def _add_dump(path: str, rank: int, dump: Mapping[str, Any], batch: Batch) -> Note:
    """Put a dump into the batch: all of it or, if a part is malformed, no row."""
    raw = dump["entries"]
    listed = listed_groups(dump.get("pg_config") or {})
    status = _pg_status(dump.get("pg_status") or {})
    version = str(dump["version"]) if "version" in dump else None
    if not raw:
        groups = groups_by_pg_id(status, listed, {})
        codes = tuple(batch.groups[group] for group in listed)
        batch.counts += [(rank, batch.groups[groups[i]], status[i]) for i in groups if i in status]
        return Note(path, rank, version, groups=codes)
    entries = close_batches(read_entries(raw, budget=dump["size"]))
    by_pair = {(group.name, group.desc): group for group in listed}
    used = [by_pair.get(pair) or Group(*pair) for pair in entries.pairs]
    seen = dict(zip(entries.pg_id.tolist(), entries.group.tolist(), strict=True))
    groups = groups_by_pg_id(status, listed, {pg_id: used[code] for pg_id, code in seen.items()})
    told = tell_kinds(entries, {code: status[i] for i, code in seen.items() if i in status})
    done = completed(entries, told)
    stacks = _stacks(raw, entries, done, rank, batch.frames)
    codes = np.array([batch.groups[group] for group in used], dtype=np.int32)
    batch.counts += [
        (rank, batch.groups[group], told[seen[pg_id]] if pg_id in seen else status[pg_id])
        for pg_id, group in groups.items()
        if pg_id in status
    ]
    batch.stacks += [Where(rank, int(codes[g]), seq, kind, code) for g, seq, kind, code in stacks]
    batch.sizes |= {int(codes[g]): size for g, size in _proven_sizes(raw, entries).items()}
    batch.parts.append(_part(entries, done, rank, codes, batch))
    mine = dict.fromkeys([*map(batch.groups.__getitem__, listed), *codes.tolist()])
    return Note(path, rank, version, len(entries.row), groups=tuple(mine))


def _pg_status(raw: Mapping[str, Any]) -> dict[int, Status]:
    return {
        int(pg_id): Status(
            int(one["last_enqueued_collective"]), int(one["last_completed_collective"])
        )
        for pg_id, one in raw.items()
    }


def _part(
    entries: Entries, done: Array, rank: int, groups: Array, batch: Batch
) -> dict[str, Array]:
    """The columns of one dump with the batch's codes."""
    ops = batch.ops.of(call.op for call in entries.calls)
    peers = np.array([-1 if call.peer is None else call.peer for call in entries.calls])
    dtypes = np.append(batch.dtypes.of(entries.dtypes), np.int32(-1))
    return {
        "rank": np.full(len(done), rank, dtype=np.int32),
        "group": groups[entries.group],
        "p2p": entries.p2p,
        "seq": entries.seq,
        "op": ops[entries.call],
        "dtype": dtypes[entries.dtype],
        "peer": peers[entries.call].astype(np.int32),
        "count": entries.count,
        "bytes": entries.bytes,
        "enqueued_ns": entries.enqueued_ns,
        "ended_ns": entries.ended_ns,
        "duration_ns": entries.duration_ns,
        "done": done,
    }


def _stacks(
    raw: Sequence[Mapping[str, Any]], entries: Entries, done: Array, rank: int, frames: Codes
) -> list[tuple[int, int, str, int]]:
    """Group, seq, kind and frames of what is in flight and of the last operation of each group."""
    last = dict(zip(entries.group.tolist(), range(len(done)), strict=True)).values()
    seq = entries.seq
    found = []
    for index in sorted({*np.flatnonzero(~done).tolist(), *last}):
        stack = raw[entries.row[index]].get("frames")
        if stack:
            lines = tuple(f"{f['name']} at {f['filename']}:{f['line']}" for f in stack)
            kind = "p2p" if entries.p2p[index] else "coll"
            found.append((int(entries.group[index]), int(seq[index]), kind, frames[lines]))
    return found


def _proven_sizes(raw: Sequence[Mapping[str, Any]], entries: Entries) -> dict[int, int]:
    """Group sizes that shapes prove: an all-gather puts out what all members put in."""
    gathers = np.array([call.op == "AllGather" for call in entries.calls])[entries.call]
    rows = np.flatnonzero(gathers & (entries.count > 0))
    sizes = {}
    for group, index in dict(zip(entries.group[rows].tolist(), rows, strict=True)).items():
        output = raw[entries.row[index]].get("output_sizes") or ()
        elements = sum(int(np.prod(tensor, dtype=np.int64)) for tensor in output[:65536])
        whole, rest = divmod(elements, int(entries.count[index]))
        if whole and not rest:
            sizes[group] = whole
    return sizes
