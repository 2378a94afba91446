"""Many dumps as one batch of arrays: what a reading process returns.

Communicators are codes here; who their members are is known only when every file has been read.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
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
from oncall.importers.flight_recorder.rows import Array, Dump, Rows

MALFORMED = (
    *(TypeError, ValueError, LookupError, AttributeError, ArithmeticError, RecursionError),
)
_RANK = re.compile(r"(?<!\d)(\d{1,6})(?:\.[A-Za-z]\w*+){0,9}$")
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


def read_batch(paths: Sequence[str]) -> Batch:
    """Read files into one batch. A file that cannot be read leaves a note with its problem."""
    batch = Batch()
    with no_garbage_collection():
        for path in paths:
            batch.notes.append(_read_file(path, batch))
    if batch.parts:
        names = batch.parts[0]
        batch.parts = [{name: np.concatenate([p[name] for p in batch.parts]) for name in names}]
    return batch


def _read_file(path: str, batch: Batch) -> Note:
    rank = rank_in_name(path)
    if rank is None:
        return Note(path, None, problem="the file's name does not end with a rank")
    try:
        return _add_dump(path, rank, load_dump(Path(path)), batch)
    except Unreadable as error:
        return Note(path, rank, problem=str(error))
    except MALFORMED as error:
        what = Unreadable(f"not what the Flight Recorder writes: {type(error).__name__}: {error}")
        return Note(path, rank, problem=str(what))


def _add_dump(path: str, rank: int, dump: Dump, batch: Batch) -> Note:
    """Put a dump into the batch: all of it or, if a part is malformed, no row."""
    head, rows = dump.head, dump.rows
    listed = listed_groups(head.get("pg_config") or {})
    status = _pg_status(head.get("pg_status") or {})
    scalars([head.get("version")])
    version = str(head["version"]) if "version" in head else None
    if not len(rows):
        batch.count(rank, groups_by_pg_id(status, listed, {}), status)
        return Note(path, rank, version, groups=tuple(batch.groups.of(listed).tolist()))
    called = close_batches(read_entries(rows))
    by_pair = {(group.name, group.desc): group for group in listed}
    used = [by_pair.get(pair) or Group(*pair) for pair in called.pairs]
    seen = dict(zip(called.pg_id.tolist(), called.group.tolist(), strict=True))
    kinds = tell_kinds(called, {code: status[i] for i, code in seen.items() if i in status})
    called = called.reopened(never_launched(called, kinds))
    done = completed(called, kinds)
    codes = batch.groups.of(used)
    stacks = _stacks(rows, called, done)
    sizes = _proven_sizes(rows, called)
    part = _part(called, done, rank, codes, batch)

    groups = groups_by_pg_id(status, listed, {pg_id: used[code] for pg_id, code in seen.items()})
    status |= {pg_id: kinds[code] for pg_id, code in seen.items() if code in kinds}
    batch.count(rank, groups, status)
    for group, seq, kind, frames in stacks:
        batch.stacks.append(Where(rank, int(codes[group]), seq, kind, batch.frames[frames]))
    batch.sizes |= {int(codes[group]): size for group, size in sizes.items()}
    batch.parts.append(part)
    mine = dict.fromkeys([*batch.groups.of(listed).tolist(), *codes.tolist()])
    stamps = np.concatenate([called.enqueued_ns, called.ended_ns, called.seen_ns])
    newest_ns = int(stamps.max(initial=0))
    return Note(path, rank, version, len(done), groups=tuple(mine), newest_ns=newest_ns)


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


def _stacks(
    rows: Rows, called: Entries, done: Array
) -> list[tuple[int, int, str, tuple[str, ...]]]:
    """Group, seq, kind and frames of what is in flight and of each group's last operation."""
    last = dict(zip(called.group.tolist(), range(len(done)), strict=True)).values()
    seq = called.seq
    found = []
    for index in sorted({*np.flatnonzero(~done).tolist(), *last}):
        frames = rows.frames(int(called.row[index]))
        if frames:
            kind = "p2p" if called.p2p[index] else "coll"
            lines = tuple(_line(*frame) for frame in frames)
            found.append((int(called.group[index]), int(seq[index]), kind, lines))
    return found


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
