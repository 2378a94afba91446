"""From the traces of a job's ranks to its evidence."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from oncall.errors import BadInput
from oncall.evidence.incident import Incident
from oncall.ingest.flight_recorder.groups import Group, communicator
from oncall.ingest.kineto.groups import groups_of, known_groups
from oncall.ingest.kineto.operations import Joined, join
from oncall.ingest.kineto.tasks import Task, Told, tasks_of
from oncall.ingest.kineto.trace import Trace, read_trace
from oncall.ingest.printable import printable

KIND = "kineto"

_UNDESCRIBED = (
    "none of its collectives is described (record_param_comms without arguments, or none): PyTorch "
    "describes those of NCCL since 2.3"
)


@dataclass(frozen=True)
class _Rank:
    """One readable trace: whose, its groups by name, its operations and tasks."""

    trace: Trace
    rank: int
    groups: dict[str, Group]
    joined: Joined
    told: Told


def import_traces(paths: Sequence[Path], incident: Incident, job: str) -> None:
    """See `kineto.read`."""
    traces = [read_trace(path) for path in sorted(paths)]
    _leave_out_repeats(traces)
    ranks = [
        _Rank(trace, trace.rank, groups_of(trace), join(trace), tasks_of(trace))
        for trace in traces
        if trace.rank is not None and trace.span_ns is not None
    ]
    _refuse_mixture(ranks)
    known = _communicators(ranks)
    if ranks:
        _append_job(ranks, known, incident, job)
    for one in ranks:
        _append_operations(one, known, incident, job)
        _append_tasks(one, known, incident, job)
    _append_recordings(traces, ranks, incident, job)


# ------------------------------------------------------------------- one job


def _leave_out_repeats(traces: Sequence[Trace]) -> None:
    """A rank traced twice over the same time would count twice; the first trace is kept."""
    kept: dict[int, list[tuple[int, int, str]]] = defaultdict(list)
    for trace in traces:
        span = trace.span_ns
        if span is None:
            continue
        if trace.rank is None:
            trace.problem = "neither it nor its file's name tells its rank"
            continue
        begin, end = span
        twin = next((name for b, e, name in kept[trace.rank] if begin <= e and b <= end), None)
        if twin is None:
            kept[trace.rank].append((begin, end, trace.path.name))
        else:
            trace.problem = f"left out: {twin} is of rank {trace.rank} at the same time"
            trace.calls, trace.annotations = [], []


def _refuse_mixture(ranks: Sequence[_Rank]) -> None:
    told: dict[int, Path] = {}
    for one in ranks:
        if one.trace.world_size is not None:
            told.setdefault(one.trace.world_size, one.trace.path)
    if len(told) > 1:
        said = "; ".join(f"{path.name}: {size} ranks" for size, path in told.items())
        folder = str(next(iter(told.values())).parent)
        raise BadInput(
            folder, f"the traces disagree about the job's size ({said}); two jobs mixed?"
        )


def _communicators(ranks: Sequence[_Rank]) -> dict[Group, Group]:
    by_rank: dict[int, list[dict[str, Group]]] = defaultdict(list)
    sizes: dict[Group, int] = {}
    for one in ranks:
        by_rank[one.rank].append(one.groups)
        for call in one.trace.calls:
            if call.group_size:
                sizes[one.groups[call.group]] = call.group_size
    return known_groups(by_rank, sizes)


# -------------------------------------------------------------------- tables


def _append_job(
    ranks: Sequence[_Rank], known: Mapping[Group, Group], incident: Incident, job: str
) -> None:
    members = {member for group in known.values() for member in group.members}
    told = [one.trace.world_size for one in ranks if one.trace.world_size is not None]
    world_size = told[0] if told else max([*members, *(one.rank for one in ranks)]) + 1
    incident.append("jobs", {"job": [job], "world_size": [world_size]})
    first = {one.rank: one.trace for one in reversed(ranks)}
    incident.append(
        "ranks",
        {
            "job": job,
            "rank": list(first),
            "node": [trace.host for trace in first.values()],
            "gpu": [trace.gpu for trace in first.values()],
            "pid": [trace.pid for trace in first.values()],
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
                "name": [printable(one.name) for one in group],
                "role": [printable(one.desc) or None for one in group],
            },
        )


def _append_operations(
    one: _Rank, known: Mapping[Group, Group], incident: Incident, job: str
) -> None:
    operations = one.joined.operations
    if not operations:
        return
    comm = {name: communicator(known[group]) for name, group in one.groups.items()}
    incident.append(
        "ops",
        {
            "job": job,
            "comm": np.array([comm[it.call.group] for it in operations], dtype=np.uint64),
            "seq": [it.seq for it in operations],
            "rank": one.rank,
            "kind": ["p2p" if it.call.p2p else "coll" for it in operations],
            "op": [it.op for it in operations],
            "dtype": [it.call.dtype and printable(it.call.dtype) for it in operations],
            "count": [it.count for it in operations],
            "bytes": [it.bytes for it in operations],
            "peer": [it.call.peer for it in operations],
            "stream": [it.stream for it in operations],
            "group_id": [it.group_id for it in operations],
            "enqueued_ns": [it.call.at_ns for it in operations],
            "started_ns": [it.started_ns for it in operations],
            "ended_ns": [it.ended_ns for it in operations],
        },
    )


def _append_tasks(one: _Rank, known: Mapping[Group, Group], incident: Incident, job: str) -> None:
    tasks = one.told.tasks
    if not tasks:
        return

    def comm(task: Task) -> int | None:
        return communicator(known[one.groups[task.call.group]]) if task.call else None

    incident.append(
        "stage_tasks",
        {
            "job": job,
            "rank": one.rank,
            "iteration": [task.iteration for task in tasks],
            "task": [task.task for task in tasks],
            "stage": [task.stage for task in tasks],
            "chunk": [task.chunk for task in tasks],
            "micro_batch": [task.micro_batch for task in tasks],
            "peer": [task.call.peer if task.call else None for task in tasks],
            "comm": [comm(task) for task in tasks],
            "started_ns": [task.started_ns for task in tasks],
            "ended_ns": [task.ended_ns for task in tasks],
            "whole": True,
            "source": "told",
        },
    )


def _append_recordings(
    traces: Sequence[Trace], ranks: Sequence[_Rank], incident: Incident, job: str
) -> None:
    read = {id(one.trace): one for one in ranks}
    notes, rows = [], []
    for trace in traces:
        one = read.get(id(trace))
        rows.append(len(one.joined.operations) + len(one.told.tasks) if one else 0)
        notes.append("; ".join(_notes(trace, one)) or None)
        if not trace.calls and trace.problem is None:
            trace.problem = _UNDESCRIBED
    incident.append(
        "recordings",
        {
            "job": job,
            "path": [printable(str(trace.path)) for trace in traces],
            "kind": KIND,
            "rank": [trace.rank for trace in traces],
            "version": [trace.version for trace in traces],
            "rows": rows,
            "problem": [trace.problem and printable(trace.problem) for trace in traces],
            "note": [note and printable(note) for note in notes],
        },
    )


def _notes(trace: Trace, one: _Rank | None) -> list[str]:
    """What was inferred in reading a trace, and what it leaves open."""
    notes = list(trace.notes)
    if one is None:
        return notes
    joined = one.joined
    if trace.undescribed:
        notes.append(f"{trace.undescribed:,} events without what describes them were left out")
    if joined.counted:
        notes.append(
            "its collectives carry no numbers: they are counted from the trace's beginning"
        )
    if joined.by_launch:
        notes.append(f"{joined.by_launch:,} kernels were joined by when they were launched")
    if joined.lost:
        notes.append(f"{joined.lost:,} NCCL kernels are of no call in it (CUDA graphs?)")
    if trace.calls and not trace.kernels:
        notes.append("no NCCL kernel is in it: when the device ran the operations is not known")
    return notes + one.told.notes
