"""What reading may take of this machine: every limit of the importers, with its unit and reason.

Recordings come by mail and from nodes that others control. Importers get at bytes through `files`,
`documents`, `tables` and `archives` alone, which hold these limits, so that a new importer has
them too. A part over a limit becomes a recording with its problem: a stream keeps what it gave
before the limit, as a torn file does, and a document that is parsed whole is left out whole.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

from oncall.core.errors import BadInput, Unreadable
from oncall.core.room import held_bytes, most_rows, share_bytes


@dataclass(frozen=True)
class Bounds:
    """What one part (a file), one archive and one incident may hold, and take to read."""

    # Memory for one part. A dump of 100,000 operations takes 0.3 GiB; beyond this, a hang of the
    # console's machine is likelier than an answer. Less where less is in hand.
    part_memory_bytes: int = 2 * 2**30
    # A document that is parsed whole: one rank's dump of a million operations is smaller.
    document_bytes: int = 512 * 2**20
    # What a compressed part or an archive unpacks to. Profiler traces of an hour stay below.
    expanded_bytes: int = 16 * 2**30
    # Beyond the first 256 MiB, unpacked bytes a packed one: dumps and traces reach 40, bombs 1,000.
    expansion: int = 200
    freely_expanded_bytes: int = 256 * 2**20
    # One value within a stream, such as the list of a job's process groups in a profiler's trace.
    value_bytes: int = 64 * 2**20
    # A line of a table; NCCL Inspector's longest lines have 1 MiB.
    line_bytes: int = 16 * 2**20
    # Of a line of text, what is read: the longest that says something, a fingerprint, has 2 KiB.
    # Searching it for patterns takes time by its length, for each of them.
    text_line_bytes: int = 8 * 2**10
    # Rows of one part; those of an incident are bounded in `core.room`.
    part_rows: int = 5_000_000
    # Files and folders looked at; a job of 16,384 ranks leaves 10 files a rank.
    files: int = 200_000
    # CPU time to recognise a part, and again to read it: importers read 10 to 60 MB/s, logs of
    # which every line says something 1; what is made to be slow, less than this. Never more than
    # `part_cpu_s`; all parts of a job, `all_cpu_s`.
    least_bytes_per_cpu_s: int = 2**19
    grace_s: float = 5.0
    part_cpu_s: float = 180.0
    all_cpu_s: float = 600.0


DEFAULT = Bounds()
_LOOK_EVERY_BYTES = 8 * 2**20  # of a stream, between two looks at the memory that it takes


def memory_bytes(bounds: Bounds = DEFAULT) -> int:
    """What one part may take of the memory in hand."""
    return min(bounds.part_memory_bytes, share_bytes())


def check_rows(rows: int) -> None:
    """Raises BadInput if an incident of so many rows is more than fits here."""
    most = most_rows()
    if rows > most:
        raise BadInput(
            "the recordings",
            f"hold {rows:,} rows and more; {most:,} are read here at most: give fewer files, or "
            "those of fewer ranks",
        )


def size(count: int) -> str:
    """A number of bytes for a sentence: `512 MiB`."""
    for unit, bytes_ in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if count >= bytes_:
            return f"{count / bytes_:.3g} {unit}"
    return f"{count} bytes"


_all_until_s: ContextVar[float] = ContextVar("all_until_s", default=float("inf"))


@contextmanager
def of_one_job(bounds: Bounds = DEFAULT) -> Iterator[None]:
    """What is read in this block, by this thread, is of one job and shares its CPU time."""
    token = _all_until_s.set(time.thread_time() + bounds.all_cpu_s)
    try:
        yield
    finally:
        _all_until_s.reset(token)


class Meter:
    """Counts what a stream gives, as it is read, and the CPU time of what is done with it. Raises
    Unreadable beyond the bounds."""

    def __init__(self, packed_bytes: int | None = None, bounds: Bounds = DEFAULT) -> None:
        """`packed_bytes`: the size of the file, if what is counted is unpacked from it."""
        self._bounds = bounds
        self._most_bytes = bounds.expanded_bytes
        if packed_bytes is not None:
            explained = max(bounds.freely_expanded_bytes, packed_bytes * bounds.expansion)
            self._most_bytes = min(explained, bounds.expanded_bytes)
        self._began_s = time.thread_time()
        self._began_bytes = held_bytes()
        self._next_look = _LOOK_EVERY_BYTES
        self.bytes = 0

    def take(self, count: int) -> None:
        """Count bytes that were read."""
        self.bytes += count
        if self.bytes > self._most_bytes:
            raise Unreadable(
                f"unpacks to more than {size(self._most_bytes)}, more than a recording does; cut "
                "it into windows, or unpack it if it is sound"
            )
        self.check_time()
        if self.bytes > self._next_look:
            self._next_look = self.bytes + _LOOK_EVERY_BYTES
            self._check_memory()

    def _check_memory(self) -> None:
        """What the reader keeps is bounded by what is in hand; as much again joins its rows."""
        kept = held_bytes() - self._began_bytes
        most = memory_bytes(self._bounds) // 2
        if kept > most:
            raise Unreadable(
                f"what is kept of its first {size(self.bytes)} takes {size(kept)} of memory, more "
                f"than the {size(most)} that one file may take here; record a shorter window"
            )

    def check_time(self) -> None:
        """CPU time, not the clock's: a machine under load is no reason to give up."""
        now_s = time.thread_time()
        spent_s = now_s - self._began_s
        explained_s = self._bounds.grace_s + self.bytes / self._bounds.least_bytes_per_cpu_s
        if spent_s > min(explained_s, self._bounds.part_cpu_s):
            raise Unreadable(
                f"took {spent_s:.0f} s of CPU for {size(self.bytes)}, more than one file may take: "
                "its content is made or damaged so that reading is slow, or there is too much of it"
            )
        if now_s > _all_until_s.get():
            raise Unreadable(
                f"not read on: all files together took {self._bounds.all_cpu_s:.0f} s of CPU; give "
                "fewer files"
            )


def metered(lines: Iterable[str], bounds: Bounds = DEFAULT) -> Iterator[str]:
    """The lines of a text that was read whole, as long as what is done with them takes no longer
    than a file may. Raises Unreadable."""
    meter = Meter(bounds=bounds)
    for line in lines:
        meter.take(len(line))
        yield line


def check_document(count: int, factor: float, bounds: Bounds = DEFAULT) -> None:
    """Raises Unreadable for a document of `count` bytes that takes `factor` bytes of memory for
    each of its own, if it is too large, or larger than the memory in hand allows."""
    if count > bounds.document_bytes:
        raise Unreadable(f"larger than {size(bounds.document_bytes)}; record a shorter window")
    if count * factor > (bounds.part_memory_bytes >> 4) and count * factor > memory_bytes(bounds):
        raise Unreadable(
            f"reading its {size(count)} may take {size(int(count * factor))} of memory, more than "
            f"the {size(memory_bytes(bounds))} that one file may take here"
        )
