"""Processes and their stacks as rows of evidence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from oncall.evidence.incident import Incident
from oncall.importers.printable import printable
from oncall.importers.stacks.dump import Process

_COLUMNS = ("rank", "node", "pid", "thread", "state", "is_main", "frames")


def stack_rows(processes: Sequence[Process]) -> dict[str, list[Any]]:
    """A row of `thread_stacks` for each thread, by column."""
    rows = [
        (
            process.place.rank,
            process.place.node and printable(process.place.node),
            process.place.pid,
            printable(f"{number}" if thread.id is None else thread.id),
            thread.state,
            thread is main,
            [printable(frame) for frame in thread.frames],
        )
        for process in processes
        for main in [process.main]
        for number, thread in enumerate(process.threads)
    ]
    columns = zip(*rows, strict=True) if rows else ([] for _ in _COLUMNS)
    return dict(zip(_COLUMNS, map(list, columns), strict=True))


def write_stacks(incident: Incident, job: str, processes: Sequence[Process], **same: Any) -> None:
    """Add a row for each thread; `same` are columns that hold for all of them."""
    rows = stack_rows(processes)
    if rows["frames"]:
        incident.append("thread_stacks", {"job": job, **same, **rows})


def write_ranks(incident: Incident, job: str, processes: Sequence[Process]) -> None:
    """Add where the ranks run, as far as their stacks say it."""
    ranks: Mapping[int, Process] = {
        process.place.rank: process for process in processes if process.place.rank is not None
    }
    placed = {rank: one.place for rank, one in ranks.items() if one.place.node or one.place.pid}
    if placed:
        incident.append(
            "ranks",
            {
                "job": job,
                "rank": list(placed),
                "node": [place.node for place in placed.values()],
                "pid": [place.pid for place in placed.values()],
            },
        )
