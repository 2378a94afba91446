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
from oncall.importers.recordings import append_recording

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
    for one in readings:
        owner = {"rank": one.owner.rank, "version": one.owner.version}
        append_recording(incident, job, KIND, one.path, one.rows, one.problem, one.notes, **owner)


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
    ranks = (
        {"rank": rank, "node": one.host, "gpu": one.gpu, "pid": one.pid}
        for rank, one in owners.items()
    )
    incident.append_rows("ranks", ranks, job=job)
    rows = (
        {"comm": comm, "rank": rank, "comm_rank": place,
         "size": len(group.members) if group.sure else None,
         "name": group.name, "role": group.desc or None}
        for comm, group in {communicator(group): group for group in known.values()}.items()
        for place, rank in enumerate(group.members)
    )  # fmt: skip
    incident.append_rows("comms", rows, job=job)


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
        rows = (
            {"iteration": task.iteration, "task": task.task, "stage": task.stage,
             "chunk": task.chunk, "micro_batch": task.micro_batch,
             "peer": task.call.peer if task.call else None,
             "comm": comm[one.groups[task.call.group]] if task.call else None,
             "started_ns": task.started_ns, "ended_ns": task.ended_ns}
            for task in one.named.tasks
        )  # fmt: skip
        of_all = {"job": job, "rank": rank, "whole": True, "source": "recorded"}
        incident.append_rows("stage_tasks", rows, **of_all)


def _append_work(rank: int, windows: Sequence[Reading], incident: Incident, job: str) -> None:
    """Work of a rank; steps that were counted in each window are counted on."""
    last = -1
    for one in windows:
        if one.work:
            behind = last + 1 if one.work[0].step <= last else 0
            last = one.work[-1].step + behind
            rows = (
                {"iteration": work.step + behind, "started_ns": work.begin_ns, "kind": work.kind,
                 "name": work.name, "count": work.times, "spent_ns": work.spent_ns}
                for work in one.work
            )  # fmt: skip
            incident.append_rows("profiled_work", rows, job=job, rank=rank)
