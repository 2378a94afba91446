"""Global ranks for recordings that only know ranks within a communicator.

A communicator that spans the job gives the global ranks; the others are mapped to it by process.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from oncall.evidence.coverage import NUMBERED_BY_HOST
from oncall.evidence.incident import Incident


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
    """Global ranks of (communicator, its rank) and of processes, and each rank's process.

    `world` is the communicator that spans the job, if there is one.
    """

    ranks: Mapping[tuple[int, int], int]
    processes: Mapping[Process, int]
    homes: Mapping[int, Process]
    world: int | None
    note: str | None


def number(
    comms: Mapping[int, Members], others: Iterable[Process] = (), world_size: int = 0
) -> Numbering:
    """Give every identified member a global rank; members nobody can identify get none.

    `others` are processes known without a communicator: they have the rank of the member that
    they are, or none. `world_size` is the smallest size that the
    job can have, 0 if unknown.
    """
    known = Counter(dict.fromkeys(others, 1))
    for members in comms.values():
        for process, ranks_here in Counter(members.processes.values()).items():
            known[process] = max(known[process], ranks_here)
    world = _world(comms, known, world_size)
    if world is None:
        identified = {p for members in comms.values() for p in members.processes.values()}
        ordered = sorted((p for p in identified if known[p] == 1), key=by_host)
        homes = dict(enumerate(ordered))
    else:
        homes = comms[world].processes
    # Which rank of a process with several is in another communicator is unknown.
    by_process = {process: rank for rank, process in homes.items() if known[process] == 1}
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
    return Numbering(ranks, by_process, homes, world, note)


def write_members(
    incident: Incident,
    job: str,
    comms: Mapping[int, Members],
    numbering: Numbering,
    world_size: int = 0,
) -> None:
    """Fill jobs, ranks and comms. A communicator of the whole job adds ranks without recordings."""
    spanning = comms[numbering.world].size if numbering.world is not None else world_size
    if spanning:
        incident.append("jobs", {"job": job, "world_size": [spanning]})
    homes = (
        {"rank": rank, "node": process.host, "gpu": process.gpu, "pid": process.pid}
        for rank, process in sorted(numbering.homes.items())
    )
    incident.append_rows("ranks", homes, job=job)
    placed = (
        {"comm": comm, "rank": rank, "comm_rank": place, "size": of.size, "name": of.name}
        for (comm, place), rank in sorted(numbering.ranks.items())
        for of in [comms[comm]]
    )
    incident.append_rows("comms", placed, job=job)


def _world(comms: Mapping[int, Members], known: Counter[Process], least_size: int) -> int | None:
    """The communicator whose ranks are the job's: the largest, if it holds every known process."""
    if len(comms) == 1 and not least_size:
        return next(iter(comms))
    largest = max(least_size, *(members.size or 0 for members in comms.values()), 0)
    for comm, members in comms.items():
        if not largest or members.size != largest:
            continue
        named = Counter(members.processes.values())
        unnamed = len(members.processes) < largest
        if known <= named or (unnamed and members.alone):
            return comm
    return None


def by_host(process: Process) -> tuple[list[tuple[int, int, str]], int, int]:
    """Sort key: host with its numbers as numbers, then GPU, then process id."""
    host = [
        (0, int(part), "") if part.isdecimal() else (1, 0, part)
        for part in re.split(r"(\d{1,18})", process.host or "")
        if part
    ]
    gpu = process.gpu if process.gpu is not None else -1
    return host, gpu, process.pid if process.pid is not None else -1
