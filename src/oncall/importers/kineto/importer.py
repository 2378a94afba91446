"""From the traces of a job's ranks to its evidence."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from oncall.core.errors import BadInput
from oncall.evidence.incident import Incident
from oncall.importers.flight_recorder.groups import Group, communicator, infer_members
from oncall.importers.kineto.reading import Reading, read_files
from oncall.importers.kineto.tasks import Task

KIND = "kineto"


def import_traces(paths: Sequence[Path], incident: Incident, job: str) -> None:
    """See `kineto.read`."""
    readings = _without_repeats(list(read_files(sorted(paths))))
    by_rank: dict[int, list[Reading]] = defaultdict(list)
    for one in readings:
        if one.owner.rank is not None and one.rows:
            by_rank[one.owner.rank].append(one)
    _refuse_mixture(readings)
    known = _known_groups(by_rank)
    if by_rank:
        _append_job(by_rank, known, incident, job)
    comm = {group: communicator(whole) for group, whole in known.items()}
    for rank, windows in sorted(by_rank.items()):
        _append_operations(rank, windows, comm, incident, job)
        _append_tasks(rank, windows, comm, incident, job)
        _append_work(rank, windows, incident, job)
    _append_recordings(readings, incident, job)


# ------------------------------------------------------------------- one job


def _without_repeats(readings: Sequence[Reading]) -> list[Reading]:
    """A rank traced twice over the same time would count twice; of such traces the first counts."""
    kept: dict[int, list[tuple[int, int, str]]] = defaultdict(list)
    found = []
    for one in sorted(readings, key=lambda reading: reading.span_ns or (0, 0)):
        rank = one.owner.rank
        if rank is not None and one.span_ns is not None:
            begin, end = one.span_ns
            twin = next((name for b, e, name in kept[rank] if begin <= e and b <= end), None)
            if twin is not None:
                problem = f"left out: {twin} is of rank {rank} at the same time"
                found.append(one.without_rows(problem))
                continue
            kept[rank].append((begin, end, one.path.name))
        found.append(one)
    return found


def _refuse_mixture(readings: Sequence[Reading]) -> None:
    sizes: dict[int, Path] = {}
    for one in readings:
        if one.owner.world_size is not None:
            sizes.setdefault(one.owner.world_size, one.path)
    if len(sizes) > 1:
        said = "; ".join(f"{path.name}: {size} ranks" for size, path in sizes.items())
        folder = str(next(iter(sizes.values())).parent)
        problem = f"the traces disagree about the job's size ({said}); two jobs mixed?"
        raise BadInput(folder, problem)


def _known_groups(by_rank: Mapping[int, Sequence[Reading]]) -> dict[Group, Group]:
    """Every group as some rank knows it -> with members; of unlisted ones they are inferred."""
    carriers: dict[Group, set[int]] = defaultdict(set)
    sizes: dict[Group, int] = {}
    for rank, windows in by_rank.items():
        for one in windows:
            sizes |= one.sizes
            for group in one.groups.values():
                carriers[group].add(rank)
    inferred = infer_members(carriers, sizes, by_rank)
    return {group: inferred.get(group, group) for group in carriers}


# -------------------------------------------------------------------- tables


def _append_job(
    by_rank: Mapping[int, Sequence[Reading]],
    known: Mapping[Group, Group],
    incident: Incident,
    job: str,
) -> None:
    """jobs, ranks, comms: every member of every group, those that left no trace included."""
    owners = {rank: windows[0].owner for rank, windows in sorted(by_rank.items())}
    sizes = [one.world_size for one in owners.values() if one.world_size is not None]
    members = {member for group in known.values() for member in group.members}
    world_size = sizes[0] if sizes else max(members | set(by_rank)) + 1
    incident.append("jobs", {"job": [job], "world_size": [world_size]})
    incident.append(
        "ranks",
        {
            "job": job,
            "rank": list(owners),
            "node": [one.host for one in owners.values()],
            "gpu": [one.gpu for one in owners.values()],
            "pid": [one.pid for one in owners.values()],
        },
    )
    rows = [
        (comm, rank, place, len(group.members) if group.sure else None, group)
        for comm, group in {communicator(group): group for group in known.values()}.items()
        for place, rank in enumerate(group.members)
    ]
    if rows:
        comm, rank, place, size, group = zip(*rows, strict=True)
        incident.append(
            "comms",
            {
                "job": job,
                "comm": np.array(comm, dtype=np.uint64),
                "rank": rank,
                "comm_rank": place,
                "size": size,
                "name": [one.name for one in group],
                "role": [one.desc or None for one in group],
            },
        )


def _append_operations(
    rank: int, windows: Sequence[Reading], comm: Mapping[Group, int], incident: Incident, job: str
) -> None:
    """Operations of a rank, one window after another; what was counted is counted on."""
    last: dict[tuple[int, bool], int] = defaultdict(int)
    for one in windows:
        columns = one.operations
        if not len(columns):
            continue
        lanes = [(comm[one.groups[name]], p2p) for name, p2p in columns.lanes]
        behind = [last[lane] if lane[1] or one.counted else 0 for lane in lanes]
        seq = columns.seq + np.array(behind)[columns.lane]
        for code, lane in enumerate(lanes):
            last[lane] = int(seq[columns.lane == code].max())
        comms = np.array([key for key, _ in lanes], dtype=np.uint64)[columns.lane]
        incident.append(
            "ops", {"job": job, "comm": comms, "seq": seq, "rank": rank, **columns.values}
        )


def _append_tasks(
    rank: int, windows: Sequence[Reading], comm: Mapping[Group, int], incident: Incident, job: str
) -> None:
    for one in windows:
        tasks = one.named.tasks
        if not tasks:
            continue
        incident.append(
            "stage_tasks",
            {
                "job": job,
                "rank": rank,
                "iteration": [task.iteration for task in tasks],
                "task": [task.task for task in tasks],
                "stage": [task.stage for task in tasks],
                "chunk": [task.chunk for task in tasks],
                "micro_batch": [task.micro_batch for task in tasks],
                "peer": [task.call.peer if task.call else None for task in tasks],
                "comm": [_comm(task, one, comm) for task in tasks],
                "started_ns": [task.started_ns for task in tasks],
                "ended_ns": [task.ended_ns for task in tasks],
                "whole": True,
                "source": "recorded",
            },
        )


def _append_work(rank: int, windows: Sequence[Reading], incident: Incident, job: str) -> None:
    """Work of a rank; steps that were counted in each window are counted on."""
    last = -1
    for one in windows:
        if one.work:
            behind = last + 1 if one.work[0].step <= last else 0
            last = one.work[-1].step + behind
            incident.append(
                "profiled_work",
                {
                    "job": job,
                    "rank": rank,
                    "iteration": [work.step + behind for work in one.work],
                    "started_ns": [work.begin_ns for work in one.work],
                    "kind": [work.kind for work in one.work],
                    "name": [work.name for work in one.work],
                    "count": [work.times for work in one.work],
                    "spent_ns": [work.spent_ns for work in one.work],
                },
            )


def _comm(task: Task, one: Reading, comm: Mapping[Group, int]) -> int | None:
    return comm[one.groups[task.call.group]] if task.call else None


def _append_recordings(readings: Sequence[Reading], incident: Incident, job: str) -> None:
    notes = ["; ".join(one.notes) for one in readings]
    incident.append(
        "recordings",
        {
            "job": job,
            "path": [str(one.path) for one in readings],
            "kind": KIND,
            "rank": [one.owner.rank for one in readings],
            "version": [one.owner.version for one in readings],
            "rows": [one.rows for one in readings],
            "problem": [one.problem for one in readings],
            "note": [note or None for note in notes],
        },
    )
