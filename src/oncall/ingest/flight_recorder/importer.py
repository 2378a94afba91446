"""From batches of dumps to the evidence tables of one job."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from oncall.errors import BadInput
from oncall.evidence.incident import Incident, Words
from oncall.ingest.flight_recorder import KIND
from oncall.ingest.flight_recorder.batch import Batch, Note, rank_in_name
from oncall.ingest.flight_recorder.entries import Array
from oncall.ingest.flight_recorder.groups import Group, communicator, infer_members
from oncall.ingest.flight_recorder.pool import read_batches
from oncall.nodeset import fold_ranks


@dataclass(frozen=True)
class _Communicators:
    """The job's communicators: `codes` gives each group that a rank named its place in the rest."""

    codes: Mapping[Group, int]
    groups: Sequence[Group]  # with members, as far as they can be known
    comm: Array  # uint64 (n,)


def import_dumps(paths: Sequence[Path], incident: Incident, job: str) -> None:
    """See `flight_recorder.read`."""
    ordered = sorted(map(str, paths), key=lambda path: (rank_in_name(path) or 0, path))
    _refuse_twins(ordered)
    batches = list(read_batches(ordered))
    notes = [note for batch in batches for note in batch.notes]
    _refuse_mixture(batches)
    known = _communicators(batches)
    incident.append("recordings", _recordings(notes, job))
    readable = [note.rank for note in notes if note.problem is None]
    if not readable:
        return
    incident.append("jobs", {"job": [job], "world_size": [_world_size(readable, known.groups)]})
    incident.append("ranks", {"job": job, "rank": readable})
    _append_members(known, incident, job)
    _append_launches(batches, known, incident, job)
    for batch in batches:
        _append_stacks(batch, known, incident, job)
        _append_operations(batch, known, incident, job)
        batch.parts.clear()  # the largest part of memory; the database holds it now


# ------------------------------------------------------------------- one job


def _refuse_twins(paths: Iterable[str]) -> None:
    by_rank: dict[int, str] = {}
    for path in paths:
        rank = rank_in_name(path)
        if rank is not None and by_rank.setdefault(rank, path) != path:
            raise BadInput(by_rank[rank], f"a second dump of rank {rank}, beside {path}")


def _refuse_mixture(batches: Sequence[Batch]) -> None:
    """Files of one job agree on who its ranks are. Raises BadInput, saying which file says what."""
    claims: dict[tuple[int, ...], list[Note]] = defaultdict(list)
    for batch in batches:
        worlds = {c: g.members for g, c in batch.groups.items() if g.is_default and g.members}
        for note in batch.notes:
            for code in worlds.keys() & set(note.groups):
                claims[worlds[code]].append(note)
    if len(claims) > 1:
        said = "; ".join(
            f"{_files(notes)}: {len(world)} ranks, {fold_ranks(world)}"
            for world, notes in claims.items()
        )
        raise BadInput(
            _folder(claims), f"the dumps disagree about the job's ranks ({said}); two jobs mixed?"
        )
    for world, notes in claims.items():
        strangers = [note for note in notes if note.rank not in world]
        if strangers:
            raise BadInput(
                strangers[0].path,
                f"is named rank {strangers[0].rank}, but says that the job has ranks "
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
    carriers: dict[Group, set[int]] = defaultdict(set)
    sizes: dict[Group, int] = {}
    ranks = []
    for batch in batches:
        groups = list(batch.groups)
        sizes |= {groups[code]: size for code, size in batch.sizes.items()}
        for note in batch.notes:
            if note.rank is not None:
                ranks.append(note.rank)
            for code in note.groups:
                carriers[groups[code]].add(note.rank or 0)
    inferred = infer_members(carriers, sizes, ranks)
    codes = {group: code for code, group in enumerate(carriers)}
    placed = [inferred.get(group, group) for group in codes]
    return _Communicators(codes, placed, np.array([*map(communicator, placed)], dtype=np.uint64))


# -------------------------------------------------------------------- tables


def _recordings(notes: Sequence[Note], job: str) -> dict[str, object]:
    return {
        "job": job,
        "path": [note.path for note in notes],
        "kind": KIND,
        "rank": [note.rank for note in notes],
        "version": [note.version for note in notes],
        "rows": [note.rows if note.problem is None else None for note in notes],
        "problem": [note.problem for note in notes],
    }


def _append_members(known: _Communicators, incident: Incident, job: str) -> None:
    """Every member of every communicator, those that left no dump included."""
    one_each = dict(zip(reversed(known.comm.tolist()), reversed(known.groups), strict=True))
    groups = list(one_each.values())
    size = np.array([len(group.members) for group in groups])
    if not size.sum():
        return
    each = np.repeat(np.arange(len(groups)), size).astype(np.int32)
    starts = np.cumsum(size) - size
    incident.append(
        "comms",
        {
            "job": job,
            "comm": np.array(list(one_each), dtype=np.uint64)[each],
            "rank": np.concatenate([np.array(group.members) for group in groups]),
            "comm_rank": np.arange(len(each)) - starts[each],
            "size": size[each],
            "name": Words(each, [group.name for group in groups]),
            "role": Words(each, [group.desc for group in groups]),
        },
    )


def _append_launches(
    batches: Sequence[Batch], known: _Communicators, incident: Incident, job: str
) -> None:
    """pg_status where it counts collectives; P2P counts of healthy members differ and tell nothing.

    A member without entries does not say what it counts; it counts as the others do.
    """
    rows = []
    for batch in batches:
        comm = known.comm[[known.codes[group] for group in batch.groups]].tolist()
        rows += [(comm[group], rank, status) for rank, group, status in batch.counts]
    kinds: dict[int, set[str | None]] = defaultdict(set)
    for comm, _, status in rows:
        kinds[comm].add(status.kind)
    rows = [row for row in rows if kinds[row[0]] - {None} == {"coll"}]
    if rows:
        incident.append(
            "launches",
            {
                "job": job,
                "comm": np.array([comm for comm, _, _ in rows], dtype=np.uint64),
                "rank": [rank for _, rank, _ in rows],
                "launched": [max(status.launched, 0) for _, _, status in rows],
                "completed": [max(status.completed, 0) for _, _, status in rows],
                "state": "running",
                "source": KIND,
            },
        )


def _append_stacks(batch: Batch, known: _Communicators, incident: Incident, job: str) -> None:
    if not batch.stacks:
        return
    comm = known.comm[[known.codes[group] for group in batch.groups]]
    frames = list(batch.frames)
    incident.append(
        "stacks",
        {
            "job": job,
            "rank": [stack.rank for stack in batch.stacks],
            "comm": comm[[stack.group for stack in batch.stacks]],
            "seq": [stack.seq for stack in batch.stacks],
            "kind": [stack.kind for stack in batch.stacks],
            "frames": [frames[stack.frames] for stack in batch.stacks],
        },
    )


def _append_operations(batch: Batch, known: _Communicators, incident: Incident, job: str) -> None:
    column = batch.columns
    if not column:
        return
    codes = np.array([known.codes[group] for group in batch.groups])[column["group"]]
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
            "peer": _peers(column["peer"], codes, known.groups),
            "enqueued_ns": _from(1, column["enqueued_ns"]),
            "ended_ns": _from(1, column["ended_ns"]),
            "duration_ns": _from(1, column["duration_ns"]),
            "done": column["done"],
        },
    )


def _from(least: int, column: Array) -> Array:
    """The column with everything below `least` NULL."""
    return np.ma.MaskedArray(column, mask=column < least)


def _peers(local: Array, codes: Array, groups: Sequence[Group]) -> Array:
    """Global ranks (n,) of peers given within their groups; NULL for none, or one off the group."""
    size = np.array([len(group.members) for group in groups])
    members = np.concatenate([np.array(group.members, dtype=np.int32) for group in groups])
    at = (np.cumsum(size) - size)[codes] + local
    told = (local >= 0) & (local < size[codes])
    return np.ma.MaskedArray(members[np.where(told, at, 0)], mask=~told)
