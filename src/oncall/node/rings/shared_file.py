"""Reads a file that a training process writes and holds a lock on, while it writes it: the parts
that a ring (hooks/oncall_ring.h) and a verbs file (hooks/oncall_verbs.h) have in common.

The file is read with `pread` and its `tail` moved with `pwrite`, never through a mapping: whoever
owns the file may cut it short at any moment, which is an error then and not a SIGBUS. The kernel
writes eight aligned bytes in one store on x86-64 and aarch64; should a producer see half of it, the
stamps show the reader which records were overwritten.

Every copy is made in an order that needs no lock: a record's stamp is seen before the record is
copied, a board's version is seen unchanged before and after. System calls lie between these
reads, so no processor reorders them.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import struct
import sys
import time
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import ClassVar, Generic, Self

import numpy as np
from numpy.typing import NDArray

from oncall.core.errors import BadInput
from oncall.node.rings.file_header import H, Layout

_ATTEMPTS = 8  # to read a board between two writings
_PATIENCE_NS = 5_000_000_000  # for a record that a living process has begun and not finished
_LOCK = struct.Struct("hhqqi4x")  # struct flock of 64-bit Linux
_STARTED_FIELD = 19  # of /proc/PID/stat, counted after the command: start in ticks since boot


@dataclass(frozen=True)
class Boards:
    """Copies of boards in use. `torn` marks those that no consistent copy could be made of: their
    process died, or was stopped, while it wrote them; the row holds what was there."""

    slots: NDArray[np.intp]
    rows: NDArray[np.void]
    torn: NDArray[np.bool_]


# That one file can ever have held or lost: a hundred million a second for a month. What says more
# is forged or damaged; sums over all files here still fit a BIGINT.
MOST_RECORDS = 1 << 48


class SharedFileReader(Generic[H]):
    """One such file, open; the only consumer of its records if `consume`, else a mere onlooker.

    Everything raises BadInput if the file is gone, cut short or damaged.
    """

    layout: ClassVar[Layout]
    header_kind: type[H]

    def __init__(self, path: Path, fd: int) -> None:
        """Of a file that is open at `fd`. Raises BadInput if it is none of this kind."""
        self.path = path
        self.torn = 0  # records skipped because they were never finished
        self._fd = fd
        self._parsed: tuple[int, bytes, H] | None = None  # its size, what was parsed, the result
        self._unfinished: tuple[int, int] | None = None  # position, since when (monotonic ns)
        self._header = self.header
        self.slots, self._start = self.layout.places(self._header)[-1]  # of records

    @classmethod
    def open(cls, path: Path, *, consume: bool = True) -> Self:
        """The file at `path`. Raises BadInput if it is none of this kind, or may not be opened."""
        fd = _open(path, consume)
        try:
            return cls(path, fd)
        except BaseException:
            os.close(fd)
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file; closing it again is harmless."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    # ------------------------------------------------------------ the header

    @property
    def header(self) -> H:
        """What the file says of its process, read anew: some of it becomes known later."""
        size = os.fstat(self._fd).st_size
        head = os.pread(self._fd, self.layout.header.itemsize, 0)
        # Counters come last: what lies before them is parsed only where it has changed.
        fixed = head[: self._field("closed")[0]]
        is_whole = len(head) == self.layout.header.itemsize
        if is_whole and self._parsed and self._parsed[:2] == (size, fixed):
            return self._parsed[2]
        header = self.layout.read(str(self.path), head, size, self.header_kind)
        self._parsed = size, fixed, header
        return header

    @property
    def head(self) -> int:
        """Records reserved so far."""
        return self._positions()[1]

    @property
    def tail(self) -> int:
        """Records read so far."""
        return self._positions()[0]

    @property
    def waiting(self) -> int:
        """Records that are there to be read."""
        tail, head = self._positions()
        return head - tail

    @property
    def dropped(self) -> int:
        """Records lost because there was no room."""
        return self._counter("dropped")

    @property
    def closed(self) -> bool:
        """Whether the process ended in order."""
        return self._counter("closed") != 0

    # ------------------------------------------------------------ the process

    @property
    def alive(self) -> bool:
        """Whether the recording process lives.

        It holds a lock on its file, which the kernel lifts when it dies, also where it lives in
        another PID namespace. Should it have lost the lock by closing what it did not open, its
        number and start time in /proc decide.
        """
        return self.pid_here is not None

    @property
    def pid_here(self) -> int | None:
        """The living process's number as this process sees it; 0 if it sees none, None if dead."""
        held = _LOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
        kind, _, _, _, holder = _LOCK.unpack(fcntl.fcntl(self._fd, fcntl.F_GETLK, held))
        if kind != fcntl.F_UNLCK:
            return max(0, int(holder))
        pid = self._header.pid
        return pid if _start_ticks(pid) == self._header.process_start_ticks else None

    @property
    def owner(self) -> int:
        """The user that the file belongs to."""
        return os.fstat(self._fd).st_uid

    @property
    def inode(self) -> int:
        """Which file it is, whatever its name leads to now."""
        return os.fstat(self._fd).st_ino

    @property
    def stopped(self) -> bool:
        """Whether a signal or a debugger has stopped the process: it lives and does nothing."""
        pid = self.pid_here
        return bool(pid) and _status(pid)[:1] in (["T"], ["t"])

    # ------------------------------------------------------------ the boards

    def _boards(
        self, kind: np.dtype[np.void], start: int, slots: range, versions: list[str]
    ) -> Boards:
        first = start + slots.start * kind.itemsize
        kept = np.zeros(len(slots), kind)
        torn = np.ones(len(slots), bool)
        for _ in range(_ATTEMPTS):
            before, rows, after = (self._read(kind, first, len(slots)) for _ in range(3))
            whole = torn.copy()
            for name in versions:
                early, late = _version(before, name), _version(after, name)
                whole &= (early == late) & (early % 2 == 0)
            kept[whole] = rows[whole]
            torn &= ~whole
            if not torn.any():
                break
        else:
            kept[torn] = rows[torn]
        return Boards(np.array(slots, np.intp), kept, torn)

    # ------------------------------------------------------------ the records

    def drain(self, most: int = 1 << 16) -> NDArray[np.void]:
        """The next whole records in order of reservation, at most `most`. Rows: `layout.record`.

        They are gone from the ring then. Stops before a record that is being written; one that its
        process left unfinished, by dying or for seconds, is skipped and counted in `torn`.
        """
        tail, head = self._positions()
        if not 0 <= head - tail <= self.slots:
            raise BadInput(str(self.path), f"damaged: {head} records written, {tail} read")
        count = min(head - tail, most)
        whole = self._whole(tail, count)
        finished = count if whole.all() else int(whole.argmin())
        records = self._records(tail, finished)
        if finished < count and not self.alive:
            whole = self._whole(tail, count)  # nothing changes any more
            records = self._records(tail, count)[whole]
            self.torn += count - len(records)
            finished = count
        elif finished < count and self._given_up(tail + finished):
            self.torn += 1
            finished += 1
        if finished:
            self._set("tail", tail + finished)
        return records

    def _positions(self) -> tuple[int, int]:
        """Records read and records reserved so far. Raises BadInput where no job can have written
        so many."""
        tail, head = self._counters("tail", "head")
        if max(tail, head) > MOST_RECORDS:
            raise BadInput(str(self.path), f"damaged: {head} records written, {tail} read")
        return tail, head

    def _whole(self, position: int, count: int) -> NDArray[np.bool_]:
        stamps = self._records(position, count)["stamp"]
        expected = np.arange(position + 1, position + 1 + count, dtype=np.uint64)
        whole: NDArray[np.bool_] = stamps == expected
        return whole

    def _given_up(self, position: int) -> bool:
        """Whether a living process has left its record at `position` unfinished for long."""
        now_ns = time.monotonic_ns()
        if self._unfinished is None or self._unfinished[0] != position:
            self._unfinished = (position, now_ns)
        return now_ns - self._unfinished[1] > _PATIENCE_NS

    def _records(self, position: int, count: int) -> NDArray[np.void]:
        """`count` slots from `position` on, around the end of the ring."""
        slots, start, kind = self.slots, self._start, self.layout.record
        first = position % slots
        before_end = min(count, slots - first)
        found = self._read(kind, start + first * kind.itemsize, before_end)
        if before_end == count:
            return found
        return np.concatenate([found, self._read(kind, start, count - before_end)])

    # ------------------------------------------------------------ the file

    def _read(self, kind: np.dtype[np.void], start: int, count: int) -> NDArray[np.void]:
        rows: NDArray[np.void] = np.empty(count, kind)
        if count and os.preadv(self._fd, [rows.view(np.uint8).data], start) < rows.nbytes:
            raise BadInput(str(self.path), "cut short while it was read")
        return rows

    def _counter(self, name: str) -> int:
        return self._counters(name)[0]

    def _counters(self, *names: str) -> list[int]:
        """Fields of the header as they are now, all read at once."""
        head = os.pread(self._fd, self.layout.header.itemsize, 0)
        if len(head) < self.layout.header.itemsize:
            raise BadInput(str(self.path), "cut short while it was read")
        places = map(self._field, names)
        return [int.from_bytes(head[at:end], sys.byteorder) for at, end in places]

    @classmethod
    @cache
    def _field(cls, name: str) -> tuple[int, int]:
        """Where a field of the header begins and ends, in bytes."""
        fields = cls.layout.header.fields
        assert fields is not None
        kind, at, *_ = fields[name]
        return at, at + kind.itemsize

    def _set(self, name: str, value: int) -> None:
        """Write one field of the header."""
        at, end = self._field(name)
        if os.fstat(self._fd).st_size < self.layout.header.itemsize:
            raise BadInput(str(self.path), "cut short while it was read")
        os.pwrite(self._fd, value.to_bytes(end - at, sys.byteorder), at)


def _open(path: Path, consume: bool) -> int:
    flags = os.O_RDWR if consume else os.O_RDONLY
    try:
        # A name that is a FIFO must not block the collector, nor a link lead it elsewhere.
        fd = os.open(path, flags | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except PermissionError:
        raise BadInput(
            str(path),
            f"user {os.geteuid()} may not {'read and write' if consume else 'read'} it: run as "
            "the job's user or as root, or give the job ONCALL_RING_GROUP",
        ) from None
    except OSError as error:
        link = error.errno == errno.ELOOP
        raise BadInput(str(path), "a link" if link else os.strerror(error.errno or 0)) from None
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise BadInput(str(path), "not a file")
    return fd


def _start_ticks(pid: int) -> int | None:
    """When a process started, in ticks since boot; None if there is none of that number, or it has
    ended and nobody has reaped it."""
    status = _status(pid)
    try:
        return None if status[0] in ("Z", "X") else int(status[_STARTED_FIELD])
    except (IndexError, ValueError):
        return None


def _status(pid: int | None) -> list[str]:
    """The fields of /proc/PID/stat from the process's state on; none if there is no such one."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return []
    return text.rpartition(")")[2].split()


def _version(rows: NDArray[np.void], name: str) -> NDArray[np.uint32]:
    for part in name.split("."):
        rows = rows[part]
    return rows.astype(np.uint32, copy=False)


def only(boards: Boards, wanted: NDArray[np.bool_]) -> Boards:
    return Boards(*(part.compress(wanted) for part in (boards.slots, boards.rows, boards.torn)))
