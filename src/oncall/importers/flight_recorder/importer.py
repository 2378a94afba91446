"""From batches of dumps to the evidence tables of one job."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np

from oncall.core.errors import BadInput
from oncall.core.nodeset import fold_ranks, named_ranks
from oncall.core.units import format_duration
from oncall.evidence.incident import Incident, Words
from oncall.importers.bounds import check_rows
from oncall.importers.files import modified_ns
from oncall.importers.flight_recorder import KIND
from oncall.importers.flight_recorder.batch import Batch, Note, rank_in_name, read_batch
from oncall.importers.flight_recorder.groups import Group, communicator, infer_members
from oncall.importers.flight_recorder.identity import identify
from oncall.importers.flight_recorder.rows import Array
from oncall.importers.one_job import FAR_NS
from oncall.importers.pool import on_cores

_FEW_FILES = 1024  # for one process: to start it costs as much as reading 300
_FILES_A_BATCH = 256  # some 100,000 operations: the database prefers large helpings
# None of them completes before all members have called it.
_JOINT = ("AllReduce", "AllGather", "ReduceScatter", "AllToAll", "Barrier")
_INFERRED = "the dumps list no group members; ranks whose entries name a group count as its members"


class _Communicators:
    """The job's communicators: who is meant by each group that any rank named.

    `groups` have members, as far as they can be known; `comm` (n,) are their uint64 identities.
    """

    def __init__(self, named: Sequence[Group], inferred: Mapping[Group, Group]) -> None:
        self.codes = {group: code for code, group in enumerate(named)}
        self.groups = [inferred.get(group, group) for group in named]
        self.comm = np.array([communicator(group) for group in self.groups], dtype=np.uint64)
        self.sizes = np.array([len(group.members) for group in self.groups], dtype=np.int64)
        self._starts = np.cumsum(self.sizes) - self.sizes
        self._members = np.fromiter(
            (rank for group in self.groups for rank in group.members), dtype=np.int32
        )

    def place(self, batch: Batch) -> Array:
        """The communicators (as codes of this object) of a batch's groups, -1 for an unused one."""
        return np.array([self.codes.get(group, -1) for group in batch.groups], dtype=np.int64)

    def numbers(self, batch: Batch) -> Array:
        """A number from 0 of the communicator of each of a batch's operations (n,), equal on all
        ranks."""
        _, same = np.unique(self.comm, return_inverse=True)
        numbers: Array = same[self.place(batch)[batch.columns["group"]]]
        return numbers

    def peers(self, local: Array, codes: Array) -> Array:
        """Global ranks (n,) of peers given within their groups; NULL for none, or one outside."""
        known = (local >= 0) & (local < self.sizes[codes])
        at = np.where(known, self._starts[codes] + local, 0)
        ranks = self._members[at] if len(self._members) else np.zeros(len(at), dtype=np.int32)
        return np.ma.MaskedArray(ranks, mask=~known)


def import_dumps(paths: Sequence[Path], incident: Incident, job: str) -> None:
    """See `flight_recorder.read`."""
    newest, left_out = _newest_of_each_rank(paths)
    batches = _batches(newest)
    if old := _of_another_day(batches):
        left_out |= old
        batches = _batches([path for path in newest if path not in old])
    batches.append(Batch(notes=[Note(path, None, problem=why) for path, why in left_out.items()]))
    notes = [note for batch in batches for note in batch.notes]
    _refuse_mixture(batches)
    known = _communicators(batches)
    _append_recordings(batches, incident, job)
    readable = [note.rank for note in notes if note.problem is None]
    if not readable:
        return
    incident.append("jobs", {"job": [job], "world_size": [_world_size(readable, known.groups)]})
    incident.append("ranks", {"job": job, "rank": readable})
    _append_members(known, incident, job)
    filled = [batch for batch in batches if batch.columns]
    _reopen_aborted(filled, [known.numbers(batch) for batch in filled])
    _append_launches(batches, known, incident, job)
    for batch in batches:
        _append_stacks(batch, known, incident, job)
        _append_operations(batch, known, incident, job)
        batch.parts.clear()  # the largest part of memory; the database holds it now


def _batches(paths: Sequence[str]) -> list[Batch]:
    ordered = sorted(paths, key=lambda path: (rank_in_name(path) or 0, path))
    shares = [ordered[at : at + _FILES_A_BATCH] for at in range(0, len(ordered), _FILES_A_BATCH)]
    most = len(ordered) // _FEW_FILES
    return _collected(on_cores(read_batch, shares, most, ordered[0], "dumps"))


def _collected(batches: Iterable[Batch]) -> list[Batch]:
    """All batches; raises BadInput as soon as they hold more rows than fit here."""
    found, rows = [], 0
    for batch in batches:
        rows += sum(note.rows for note in batch.notes)
        check_rows(rows)
        found.append(batch)
    return found


# ------------------------------------------------------------------- one job


def _newest_of_each_rank(paths: Sequence[Path]) -> tuple[list[str], dict[str, str]]:
    """The dumps to read, and those left out with why: a folder may hold the dumps of several
    attempts, or each dump as a pickle and as JSON, in series of files that are named alike."""
    series: dict[str, list[Path]] = defaultdict(list)
    for path in paths:
        series[re.sub(r"\d+(?=\D*$)", "#", str(path))].append(path)
    kept: dict[int, str] = {}
    left_out: dict[str, str] = {}
    newest: list[str] = []
    for found in sorted(series.values(), key=_worth, reverse=True) if len(series) > 1 else [paths]:
        ranks = {rank: str(path) for path in found if (rank := rank_in_name(str(path))) is not None}
        again = sorted(ranks.keys() & kept.keys())
        if not again:
            kept |= ranks
            newest += map(str, found)
        else:
            twin, whose = Path(kept[again[0]]).name, named_ranks(again)
            why = f"ignored, of another attempt or job: of {whose} {twin} and others are newer"
            left_out |= dict.fromkeys(map(str, found), why)
    return newest, left_out


def _of_another_day(batches: Sequence[Batch]) -> dict[str, str]:
    """The dumps that a former job left among the newest ones, with why they are not used: ranks of
    one job are blocked in the same hour."""
    stamped = [note for batch in batches for note in batch.notes if note.newest_ns]
    # A clock that is ahead of the file's own time makes no dump the newest.
    ends = {note.path: min(note.newest_ns, modified_ns(Path(note.path))) for note in stamped}
    last_ns = max(ends.values(), default=0)
    return {
        path: f"not used: of another job ({format_duration(last_ns - end_ns)} earlier); the newest "
        "job is diagnosed"
        for path, end_ns in ends.items()
        if last_ns - end_ns > FAR_NS
    }


def _worth(paths: Sequence[Path]) -> tuple[int, int, bool]:
    """Of two series of dumps of the same ranks the later one counts, then the longer one, then
    the pickles, which have stack frames."""
    found = identify(paths)
    return max((at_ns for _, _, at_ns in found.marks), default=0), len(paths), found.pickled


def _refuse_mixture(batches: Sequence[Batch]) -> None:
    """Files of one job agree on who its ranks are. Raises BadInput, saying which file says what."""
    claims: dict[tuple[int, ...], list[Note]] = defaultdict(list)
    for batch in batches:
        for code, group in enumerate(batch.groups):
            if group.is_default and group.members:
                claims[group.members] += [note for note in batch.notes if code in note.groups]
    if len(claims) > 1:
        said = "; ".join(
            f"{_files(notes)}: {len(world)} ranks, {fold_ranks(world)}"
            for world, notes in claims.items()
        )
        problem = f"the dumps disagree about the job's ranks ({said}); two jobs mixed?"
        raise BadInput(_folder(claims), problem)
    for world, notes in claims.items():
        members = set(world)
        stranger = next((note for note in notes if note.rank not in members), None)
        if stranger:
            raise BadInput(
                stranger.path,
                f"is named rank {stranger.rank}, but says that the job has ranks "
                f"{fold_ranks(world)}; two jobs mixed?",
            )


def _folder(claims: Mapping[tuple[int, ...], Sequence[Note]]) -> str:
    return str(Path(next(iter(claims.values()))[0].path).parent)


def _files(notes: Sequence[Note]) -> str:
    names = [Path(note.path).name for note in notes]
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def _world_size(ranks: Sequence[int | None], groups: Iterable[Group]) -> int:
    default = [len(group.members) for group in groups if group.is_default]
    members = [rank for group in groups for rank in group.members]
    seen = [rank for rank in ranks if rank is not None]
    return max(default) if default else max([*seen, *members]) + 1


def _communicators(batches: Sequence[Batch]) -> _Communicators:
    carriers: dict[Group, set[int]] = {}
    sizes: dict[Group, int] = {}
    ranks: list[int] = []
    for batch in batches:
        groups = list(batch.groups)
        by_code: dict[int, set[int]] = defaultdict(set)
        for note in batch.notes:
            if note.rank is not None:
                ranks.append(note.rank)
                for code in note.groups:
                    by_code[code].add(note.rank)
        for code, carried in by_code.items():
            carriers.setdefault(groups[code], set()).update(carried)
        sizes |= {groups[code]: size for code, size in batch.sizes.items()}
    return _Communicators(list(carriers), infer_members(carriers, sizes, ranks))


def _reopen_aborted(batches: Sequence[Batch], comms: Sequence[Array]) -> None:
    """Let operations be in flight that completed on no rank, although a dump calls them so: they
    were aborted. `comms` (n,) number the communicators of each batch.

    An abort ends the kernel, which PyTorch takes for completion, and the process ends before its
    watchdog could retire the operation. So of what was not retired the other dumps decide: a member
    whose last recorded call is an earlier one never entered it. One without any call on a
    communicator says nothing: its ring may have lost them.
    """
    if not batches:
        return
    last_common = _last_common(batches, comms)
    for batch, comm in zip(batches, comms, strict=True):
        column = batch.columns
        joint = np.isin(column["op"], [batch.ops[name] for name in _JOINT])
        aborted = column["held"] & joint & (column["seq"] > last_common[comm])
        column["done"] = column["done"] & ~aborted
        column["ended_ns"] = np.where(aborted, 0, column["ended_ns"])


def _last_common(batches: Sequence[Batch], comms: Sequence[Array]) -> Array:
    """Of each communicator the last collective that all its members with calls have called."""
    most = np.iinfo(np.int64).max
    common = np.full(max(int(comm.max(initial=0)) for comm in comms) + 1, most)
    for batch, comm in zip(batches, comms, strict=True):
        rows = np.flatnonzero(~batch.columns["p2p"])
        here, at = np.unique(comm[rows], return_inverse=True)
        ranks, of = np.unique(batch.columns["rank"][rows], return_inverse=True)
        newest = np.full((len(ranks), len(here)), -1)
        np.maximum.at(newest, (of, at), batch.columns["seq"][rows])
        lowest = np.where(newest < 0, most, newest).min(axis=0, initial=most)
        common[here] = np.minimum(common[here], lowest)
    return common


# -------------------------------------------------------------------- tables


def _append_recordings(batches: Sequence[Batch], incident: Incident, job: str) -> None:
    for batch in batches:
        unlisted = {code for code, group in enumerate(batch.groups) if not group.members}
        rows = (
            {"path": note.path, "rank": note.rank, "version": note.version,
             "rows": note.rows if note.problem is None else None, "problem": note.problem,
             "note": None if unlisted.isdisjoint(note.groups) else _INFERRED,
             "written_ns": _written_ns(note)}
            for note in batch.notes
        )  # fmt: skip
        incident.append_rows("recordings", rows, job=job, kind=KIND)


def _written_ns(note: Note) -> int | None:
    """None where it is older than what is inside, as unpacked from an archive of another zone."""
    written_ns = modified_ns(Path(note.path))
    return written_ns if written_ns >= note.newest_ns else None


def _append_members(known: _Communicators, incident: Incident, job: str) -> None:
    """Every member of every communicator, those that left no dump included."""
    one_each = dict(zip(reversed(known.comm.tolist()), reversed(known.groups), strict=True))
    groups = list(one_each.values())
    size = np.array([len(group.members) for group in groups])
    if not size.sum():
        return
    unsure = np.array([not group.sure for group in groups])
    each = np.repeat(np.arange(len(groups)), size).astype(np.int32)
    starts = np.cumsum(size) - size
    incident.append(
        "comms",
        {
            "job": job,
            "comm": np.array(list(one_each), dtype=np.uint64)[each],
            "rank": np.concatenate([np.array(group.members) for group in groups]),
            "comm_rank": np.arange(len(each)) - starts[each],
            "size": np.ma.MaskedArray(size[each], mask=unsure[each]),
            "name": Words(each, [group.name for group in groups]),
            "role": Words(each, [group.desc for group in groups]),
        },
    )


def _append_launches(
    batches: Sequence[Batch], known: _Communicators, incident: Incident, job: str
) -> None:
    """pg_status where it counts collectives; P2P counts differ also between healthy members.

    A member without entries does not say what it counts; it counts as the others do, where all of
    them say so. Without a watchdog nothing is counted: then entries say more.
    """
    rows = []
    for batch in batches:
        place = known.place(batch)
        rows += [
            (int(known.comm[place[group]]), rank, status)
            for rank, group, status in batch.counts
            if status.launched >= 0 or status.kind is None
        ]
    kinds: dict[int, set[str | None]] = defaultdict(set)
    for comm, _, status in rows:
        kinds[comm].add(status.kind)
    rows = [
        (comm, rank, status)
        for comm, rank, status in rows
        if (status.kind == "coll" and kinds[comm] <= {"coll", "either", None})
        or (status.kind is None and kinds[comm] == {"coll", None})
    ]
    launches = (
        {"comm": comm, "rank": rank, "launched": max(status.launched, 0),
         "completed": max(status.completed, 0)}
        for comm, rank, status in rows
    )  # fmt: skip
    incident.append_rows("launches", launches, job=job, state="running", source=KIND)


def _append_stacks(batch: Batch, known: _Communicators, incident: Incident, job: str) -> None:
    comm, frames = known.comm[known.place(batch)].tolist(), list(batch.frames)
    rows = (
        {"rank": one.rank, "comm": comm[one.group], "seq": one.seq, "kind": one.kind,
         "frames": list(frames[one.frames])}
        for one in batch.stacks
    )  # fmt: skip
    incident.append_rows("stacks", rows, job=job)


def _append_operations(batch: Batch, known: _Communicators, incident: Incident, job: str) -> None:
    column = batch.columns
    if not column:
        return
    codes = known.place(batch)[column["group"]]
    incident.append(
        "ops",
        {
            "job": job,
            "comm": known.comm[codes],
            "seq": column["seq"],
            "rank": column["rank"],
            "kind": Words(column["p2p"].astype(np.int32), ("coll", "p2p")),
            "op": Words(column["op"], list(batch.ops)),
            "dtype": Words(column["dtype"], list(batch.dtypes)),
            "count": _from(0, column["count"]),
            "bytes": _from(0, column["bytes"]),
            "peer": known.peers(column["peer"], codes),
            "group_id": _from(0, column["group_id"]),
            "enqueued_ns": _from(1, column["enqueued_ns"]),
            "started_ns": _from(1, column["started_ns"]),
            "ended_ns": _from(1, column["ended_ns"]),
            "duration_ns": _from(1, column["duration_ns"]),
            "done": column["done"],
            "observed_ns": _from(1, column["observed_ns"]),
        },
    )


def _from(least: int, column: Array) -> Array:
    """The column with everything below `least` NULL."""
    return np.ma.MaskedArray(column, mask=column < least)
