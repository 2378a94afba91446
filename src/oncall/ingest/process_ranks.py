"""Global ranks for recordings that only know ranks within a communicator.

A communicator that spans the job tells global ranks; the others are mapped onto it by process.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from oncall.evidence.incident import Incident

NUMBERED_BY_HOST = (
    "no communicator of the whole job is in it, so ranks are numbered by host name and GPU; "
    "host and GPU are as recorded"
)


@dataclass(frozen=True)
class Process:
    """A process as the recording names it; with several GPUs, one for each of its GPUs."""

    host: str | None
    pid: int | None
    gpu: int | None = None


@dataclass
class Members:
    """What is known of a communicator: its size, and the processes behind its ranks.

    `alone` tells that no other communicator of the job has this size, seen or not.
    """

    size: int | None
    processes: dict[int, Process] = field(default_factory=dict)
    alone: bool = False
    name: str | None = None


@dataclass(frozen=True)
class Numbering:
    """Global ranks of (communicator, its rank) and of processes.

    `world` is the communicator that spans the job, if there is one.
    """

    ranks: Mapping[tuple[int, int], int]
    processes: Mapping[Process, int]
    world: int | None
    note: str | None


def number(
    comms: Mapping[int, Members], others: Iterable[Process] = (), world_size: int = 0
) -> Numbering:
    """Give every identified member a global rank; members nobody can identify get none.

    `others` are processes known apart from any communicator; `world_size` is what the job is told
    to have at least, 0 if nothing tells.
    """
    known = {p for members in comms.values() for p in members.processes.values()} | set(others)
    world = _world(comms, known, world_size)
    if world is None:
        ordered = sorted(known - _ambiguous(comms), key=_place)
        by_process = {process: rank for rank, process in enumerate(ordered)}
    else:
        by_process = {process: rank for rank, process in comms[world].processes.items()}
        for process in _ambiguous(comms):
            by_process.pop(process, None)
    ranks = {
        (comm, comm_rank): by_process[process]
        for comm, members in comms.items()
        for comm_rank, process in members.processes.items()
        if process in by_process
    }
    if world is not None:
        ranks |= {(world, rank): rank for rank in range(comms[world].size or 0)}
        ranks |= {(world, rank): rank for rank in comms[world].processes}
    note = NUMBERED_BY_HOST if world is None and by_process else None
    return Numbering(ranks, by_process, world, note)


def write_members(
    incident: Incident,
    job: str,
    comms: Mapping[int, Members],
    numbering: Numbering,
    world_size: int = 0,
) -> None:
    """Fill jobs, ranks and comms; a communicator of the whole job names its silent ranks, too."""
    told = comms[numbering.world].size if numbering.world is not None else world_size
    if told:
        incident.append("jobs", {"job": job, "world_size": [told]})
    processes = sorted(numbering.processes.items(), key=lambda item: item[1])
    if processes:
        incident.append(
            "ranks",
            {
                "job": job,
                "rank": [rank for _, rank in processes],
                "node": [process.host for process, _ in processes],
                "gpu": [process.gpu for process, _ in processes],
                "pid": [process.pid for process, _ in processes],
            },
        )
    placed = sorted((comm, place, rank) for (comm, place), rank in numbering.ranks.items())
    if placed:
        incident.append(
            "comms",
            {
                "job": job,
                "comm": [comm for comm, _, _ in placed],
                "rank": [rank for _, _, rank in placed],
                "comm_rank": [place for _, place, _ in placed],
                "size": [comms[comm].size for comm, _, _ in placed],
                "name": [comms[comm].name for comm, _, _ in placed],
            },
        )


def _world(comms: Mapping[int, Members], known: set[Process], told: int) -> int | None:
    """The communicator whose ranks are the job's: the largest, if it holds every known process."""
    if len(comms) == 1 and not told:
        return next(iter(comms))
    largest = max(told, *(members.size or 0 for members in comms.values()), 0)
    for comm, members in comms.items():
        if not largest or members.size != largest:
            continue
        named = set(members.processes.values())
        unnamed = len(members.processes) < largest
        if known <= named or (unnamed and members.alone):
            return comm
    return None


def _ambiguous(comms: Mapping[int, Members]) -> set[Process]:
    """Processes with several ranks in one communicator: they cannot be told apart elsewhere."""
    return {
        process
        for members in comms.values()
        for process, count in Counter(members.processes.values()).items()
        if count > 1
    }


def _place(process: Process) -> tuple[list[tuple[int, int, str]], int, int]:
    """Sort key: host with its numbers as numbers, then GPU, then process id."""
    host = [
        (0, int(part), "") if part.isdecimal() else (1, 0, part)
        for part in re.split(r"(\d{1,18})", process.host or "")
        if part
    ]
    gpu = process.gpu if process.gpu is not None else -1
    return host, gpu, process.pid if process.pid is not None else -1
