"""Stacks of processes, whoever took them: py-spy, faulthandler, gdb, pystack."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from oncall.evidence.incident import Incident


MAIN = "MainThread"
MOST_THREADS = 4_096  # of a process
_MOST_FRAMES = 200  # of a thread; what lies further out is the launcher's
_MOST_NAME = 120  # characters of a function: a C++ template may have thousands
_MOST_READ = 1_000  # characters of a function or a file
_TEMPLATE = re.compile(r"<[^<>]*>")
_STARTED = re.compile(r"_bootstrap(?:_inner)? at (?:\S*/)?threading\.py")  # by another thread
_SITE = re.compile(r"^.*/(?:site|dist)-packages/|^.*/lib/python3\.\d+/")


@dataclass(frozen=True)
class Thread:
    """A thread and its frames, `function at file:line`, newest first."""

    frames: tuple[str, ...]
    name: str | None = None
    id: str | None = None
    state: str | None = None

    @property
    def is_main(self) -> bool:
        """Whether it runs the program itself, by its name or its outermost frames. A thread that
        imports a module has that module's frames, too."""
        if self.name == MAIN:
            return True
        started = any(_STARTED.search(frame) for frame in self.frames)
        return not started and any(frame.startswith("<module> at ") for frame in self.frames)


@dataclass(frozen=True)
class Place:
    """What is known of a process from what surrounds its stacks: a heading, a file's name, its
    command. `local_rank`: among the processes of its host."""

    rank: int | None = None
    node: str | None = None
    pid: int | None = None
    local_rank: int | None = None

    def within(self, outer: Place) -> Place:
        """This place, and what `outer` adds to it."""
        return Place(
            outer.rank if self.rank is None else self.rank,
            self.node or outer.node,
            outer.pid if self.pid is None else self.pid,
            outer.local_rank if self.local_rank is None else self.local_rank,
        )


@dataclass
class Process:
    """A process and its threads, in the order in which they were written."""

    place: Place
    threads: list[Thread] = field(default_factory=list)

    @property
    def main(self) -> Thread | None:
        """Its main thread: by name, else the one that began with the program's own module, else
        the only one."""
        mains = [thread for thread in self.threads if thread.frames and thread.is_main]
        named = [thread for thread in mains if thread.name == MAIN]
        if named or mains:
            return (named or mains)[-1]
        return self.threads[0] if len(self.threads) == 1 and self.threads[0].frames else None

    def at(self, outer: Place) -> Process:
        """The same process, with what the place around it adds."""
        return replace(self, place=self.place.within(outer))


def frame(function: str, file: str, line: int | None = None) -> str:
    """A frame in the words of the tables of stacks."""
    name, file = function[:_MOST_READ].strip(), file[-_MOST_READ:]
    if len(name) > _MOST_NAME:
        while (shorter := _TEMPLATE.sub("", name)) != name:
            name = shorter
        name = name[:_MOST_NAME]
    place = _SITE.sub("", file) if "/site-packages/" in file or "/lib/python3" in file else file
    if "/" in place and ".so" in place:
        place = place.rpartition("/")[2]
    return f"{name} at {place}:{line}" if line else f"{name} at {place}"


def bounded(frames: Iterable[str]) -> tuple[str, ...]:
    """The newest frames of a thread, without addresses that have no name."""
    return tuple(islice((one for one in frames if not one.startswith("0x")), _MOST_FRAMES))


_COLUMNS = ("rank", "node", "pid", "thread", "state", "is_main", "frames")


def stack_rows(processes: Sequence[Process]) -> dict[str, list[Any]]:
    """A row of `thread_stacks` for each thread, by column."""
    rows = [
        (
            process.place.rank,
            process.place.node,
            process.place.pid,
            f"{number}" if thread.id is None else thread.id,
            thread.state,
            thread is main,
            list(thread.frames),
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
    placed = (
        {"rank": rank, "node": one.place.node, "pid": one.place.pid}
        for rank, one in ranks.items()
        if one.place.node or one.place.pid
    )
    incident.append_rows("ranks", placed, job=job)
