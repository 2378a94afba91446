"""Stacks in a job's log: what faulthandler or a watchdog prints there, or somebody pasted."""

from __future__ import annotations

from collections.abc import Sequence

from oncall.importers.logs.line import Found, Line, Recogniser
from oncall.importers.stacks.text import parse

_MOST_LINES = 60
_MOST_ABOVE = 4


def read(line: Line) -> Sequence[Found]:
    """The stack of the thread whose first line this is; only main threads count. py-spy names the
    process a few lines above."""
    heading = [one for one in line.above(_MOST_ABOVE) if one.startswith("Process ")][:1]
    processes = parse("\n".join([*heading, line.text, *line.below(_MOST_LINES)])).processes
    thread = processes[0].threads[0] if processes else None
    if thread is None or not thread.is_main:
        return []
    place = processes[0].place
    columns = {
        "thread": thread.id,
        "state": thread.state,
        "is_main": True,
        "rank": line.rank if place.rank is None else place.rank,
        "pid": line.pid if place.pid is None else place.pid,
        "frames": list(thread.frames),
    }
    return [Found("thread_stacks", columns)]


STACKS = Recogniser("stacks", ('"MainThread"', "most recent call first", "Current thread"), read)
