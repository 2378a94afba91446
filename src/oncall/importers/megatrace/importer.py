"""Megatrace (VenusTrace's recorder): the NCCL calls of each rank, one log a rank.

The log records when a rank called, never when the operation ended. The recorder is a ring buffer:
missing numbers were overwritten, and do not mean that the call was not made.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from oncall.core.errors import Unreadable
from oncall.evidence.incident import Incident, Words
from oncall.importers import files
from oncall.importers.megatrace.comms import (
    Communicators,
    Lanes,
    assign,
    group_calls,
    holes,
    join,
)
from oncall.importers.megatrace.log import Calls, looks_like_log, parse
from oncall.importers.recordings import append_recording

KIND = "megatrace"

_FACTOR = 16.0  # bytes of memory for each of a log, at worst: lines of 50 bytes as ten columns


@dataclass
class _File:
    """One log: its calls, or why there are none."""

    path: Path
    calls: Calls | None = None
    problem: str | None = None

    @property
    def ranks(self) -> list[int]:
        return np.unique(self.calls.rank).tolist() if self.calls is not None else []


def recognises(path: Path, head: bytes) -> bool:  # noqa: ARG001 - content alone decides
    """Whether `head` holds a line of a Megatrace log."""
    return looks_like_log(head)


def read(paths: Sequence[Path], incident: Incident, job: str) -> None:
    """Add the calls of all logs in `paths` as evidence of `job`.

    Fills jobs, ranks, comms, ops and recordings. Memberships come from groupHash, else from the
    calls themselves; where those do not tell, `ops.comm` is NULL and the recording says so.
    """
    files = [_load(path) for path in paths]
    _leave_out_repeats(files)
    logs = [file.calls for file in files if file.calls is not None]
    if not logs:
        for file in files:
            _write_recording(incident, job, file)
        return
    lanes = join(logs)
    found = assign(lanes)
    gpus = {rank: bus for log in logs for rank, bus in log.pci_buses.items()}
    _write_members(incident, job, lanes, found, _hosts(files), gpus)
    _write_ops(incident, job, lanes, found)
    counted: set[int] = set()
    for file in files:
        # Holes belong to a rank; of several logs of one rank the first tells them.
        lost = [n for rank in set(file.ranks) - counted if (n := holes(lanes, rank)) is not None]
        counted |= set(file.ranks)
        unknown = _unknown(lanes, found, file.ranks)
        file.problem = "; ".join(filter(None, (file.problem, unknown))) or None
        _write_recording(incident, job, file, sum(lost) if lost else None, _notes(lanes, found))


# ------------------------------------------------------------------- reading


def _load(path: Path) -> _File:
    try:
        calls = parse(files.whole(path, _FACTOR))
    except Unreadable as error:
        return _File(path, problem=str(error))
    if calls is None:
        return _File(path, problem="no whole line of a Megatrace log in it")
    torn = f"{calls.torn} of {len(calls) + calls.torn} lines are torn" if calls.torn else None
    return _File(path, calls, torn)


def _leave_out_repeats(files: Sequence[_File]) -> None:
    """A rank recorded twice over the same time would count twice; the first log is kept."""
    seen: dict[int, list[tuple[int, int, Path]]] = {}
    for file in files:
        if file.calls is None:
            continue
        spans: list[tuple[int, int, int]] = []
        for rank in file.ranks:
            at_ns = file.calls.at_ns[file.calls.rank == rank]
            spans.append((rank, int(at_ns.min()), int(at_ns.max())))
        for rank, first, last in spans:
            for begin, end, other in seen.get(rank, ()):
                if first <= end and begin <= last:
                    file.problem = f"left out: {other.name} records rank {rank} at the same time"
                    file.calls = None
        for rank, first, last in spans if file.calls is not None else ():
            seen.setdefault(rank, []).append((first, last, file.path))


# ------------------------------------------------------------------- writing


def _hosts(files: Sequence[_File]) -> dict[int, str]:
    """The host of each rank, as lines name it, or where logs lie in a folder for each host: folders
    with several ranks each, and none of them in two. Empty where neither is so."""
    named = {r: host for file in files if file.calls for r, host in file.calls.hosts.items()}
    if named:
        return named
    ranks_of: dict[str, set[int]] = {}
    for file in files:
        ranks_of.setdefault(file.path.parent.name, set()).update(file.ranks)
    counted = sum(map(len, ranks_of.values()))
    hosts = {rank: name for name, ranks in ranks_of.items() for rank in ranks}
    in_folders = len(ranks_of) > 1 and len(hosts) == counted and counted > len(ranks_of)
    return hosts if in_folders else {}


def _write_members(
    incident: Incident,
    job: str,
    lanes: Lanes,
    found: Communicators,
    hosts: dict[int, str],
    pci_buses: dict[int, str],
) -> None:
    """jobs, ranks, comms. Without the log of every rank the size of a communicator is unknown."""
    ranks = np.unique(lanes.rank)
    world_size = int(ranks[-1]) + 1
    complete = len(ranks) == world_size
    incident.append("jobs", {"job": job, "world_size": [world_size]})
    nodes = [hosts.get(rank) for rank in ranks.tolist()]
    gpus = [pci_buses.get(rank) for rank in ranks.tolist()]
    incident.append("ranks", {"job": job, "rank": ranks, "node": nodes, "pci_bus": gpus})
    rows = [
        (comm, rank, place, len(members) if complete else None)
        for comm, members in found.ranks.items()
        for place, rank in enumerate(members)
    ]
    if rows:
        comm, rank, place, size = zip(*rows, strict=True)
        incident.append(
            "comms",
            {"job": job, "comm": comm, "rank": rank, "comm_rank": place, "size": size},
        )


def _write_ops(incident: Incident, job: str, lanes: Lanes, found: Communicators) -> None:
    """Neither an end nor an instant of observation: this recorder knows of calls alone."""
    incident.append(
        "ops",
        {
            "job": job,
            "comm": found.comm,
            "seq": found.seq,
            "rank": lanes.rank,
            "kind": Words(lanes.p2p.astype(np.int32), ("coll", "p2p")),
            "op": Words(lanes.op_code.astype(np.int32), lanes.ops),
            "count": lanes.count,
            "stream": lanes.stream,
            "group_id": group_calls(lanes),
            "enqueued_ns": lanes.at_ns,
        },
    )


def _unknown(lanes: Lanes, found: Communicators, ranks: Sequence[int]) -> str | None:
    """The sentence for collectives whose communicator is unknown."""
    streams = of = 0
    for mine in map(lanes.of, ranks):
        known = ~np.ma.getmaskarray(found.comm[mine])
        collective, lane = ~lanes.p2p[mine], lanes.lane[mine]
        of += len(np.unique(lane[collective]))
        streams += len(np.unique(lane[collective & ~known]))
    if not streams:
        return None
    return (
        f"memberships unknown for {streams} of {of} streams of collectives: the log has no "
        "groupHash, and the calls do not make them plain"
    )


def _notes(lanes: Lanes, found: Communicators) -> list[str]:
    notes = []
    if found.inferred:
        notes.append("memberships inferred from what each rank called, and when")
    if not lanes.counting or lanes.of_streams:
        notes.append("operations numbered by counting lines; a lost line would shift them")
    if (lanes.p2p & ~lanes.hashed).any():
        notes.append("the peers of Send and Recv are not in the log")
    return notes


def _write_recording(
    incident: Incident,
    job: str,
    file: _File,
    lost: int | None = None,
    notes: Sequence[str] = (),
) -> None:
    ranks = file.ranks
    append_recording(
        incident,
        job,
        KIND,
        file.path,
        len(file.calls) if file.calls is not None else 0,
        file.problem,
        notes,
        rank=ranks[0] if len(ranks) == 1 else None,
        version=file.calls.version if file.calls is not None else None,
        holes=lost,
    )
