"""Source `rings`: every training process on this node that records into a ring."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from oncall.collect.process import Process
from oncall.collect.ring import RingReader
from oncall.collect.ring_room import why_no_ring
from oncall.collect.source import Collected, Instant
from oncall.errors import BadInput
from oncall.shards.batch import Batch
from oncall.shards.bookmarks import Bookmark, under
from oncall.units import NS_PER_S

_LOOK_EVERY_NS = NS_PER_S  # for new rings, and for processes that are gone
_MOST_RECORDS = 1 << 15  # of one ring at a time, so that one busy process starves no other
_MOST_ROUNDS = 4


class RingSource:
    """Opens rings as they appear, drains them fairly, lets go of those of processes long gone."""

    name = "rings"

    def __init__(
        self, folder: Path, node: str, grace_ns: int, bookmarks: Mapping[str, Bookmark]
    ) -> None:
        self._folder = folder
        self._bookmarks = bookmarks
        self._node = node
        self._grace_ns = grace_ns
        self._processes: dict[Path, Process] = {}
        self._refused: dict[Path, tuple[int, str]] = {}  # path -> (inode, why)
        self._lost = 0  # records, of processes that are no longer here
        self._look_at_ns = 0
        self._folder_problem: str | None = None
        self._strangers: tuple[str, ...] = ()

    def collect(self, now: Instant) -> Collected:
        """Drain every ring once, and those that were not emptied a few times more."""
        if now.monotonic_ns >= self._look_at_ns:
            self._look_at_ns = now.monotonic_ns + _LOOK_EVERY_NS
            self._look(now)
        batches: list[Batch] = []
        busy = list(self._processes)
        for _ in range(_MOST_ROUNDS):
            busy = [path for path in busy if self._drain(path, now, batches)]
            if not busy:
                break
        lost = self._lost + sum(process.lost for process in self._processes.values())
        bookmarks = {
            f"{path.name}/{name}": value
            for path, process in self._processes.items()
            for name, value in process.bookmarks.items()
        }
        return Collected(batches, lost, self._problems(), bookmarks)

    def standing(self, now: Instant) -> Sequence[Batch]:
        """Jobs, ranks, communicators, counters and everything in flight."""
        batches: list[Batch] = []
        for path, process in list(self._processes.items()):
            try:
                batches += process.standing(now)
            except (BadInput, OSError) as error:
                self._refuse(path, error)
        return batches

    def close(self) -> None:
        for process in self._processes.values():
            process.reader.close()
        self._processes.clear()

    # ----------------------------------------------------------------- draining

    def _drain(self, path: Path, now: Instant, batches: list[Batch]) -> bool:
        """Drain one ring; whether there is more than fits in one go."""
        process = self._processes[path]
        try:
            batches += process.collect(now, _MOST_RECORDS)
            return process.reader.head - process.reader.tail >= _MOST_RECORDS // 2
        except (BadInput, OSError) as error:
            self._refuse(path, error)
            return False

    # ---------------------------------------------------------------- discovery

    def _look(self, now: Instant) -> None:
        """Open what is new, and let go of processes that are gone for long."""
        self._folder_problem = why_no_ring(self._folder)
        try:
            paths = sorted(path for path in self._folder.iterdir() if path.suffix == ".ring")
        except OSError as error:
            unseen = f"{self._folder}: {error.strerror}; new rings go unseen"
            self._folder_problem = self._folder_problem or unseen
            paths = []
        self._refused = {path: why for path, why in self._refused.items() if path in paths}
        for path in paths:
            if path not in self._processes and self._is_new(path):
                self._open(path)
        for path, process in list(self._processes.items()):
            self._check_life(path, process, now)
        living = [process.reader for process in self._processes.values() if not process.gone_since]
        self._strangers = tuple(strangers(living))

    def _is_new(self, path: Path) -> bool:
        """Whether this very file has not been refused before."""
        return path not in self._refused or self._refused[path][0] != _inode(path)

    def _open(self, path: Path) -> None:
        try:
            marks = under(f"{path.name}/", self._bookmarks)
            self._processes[path] = Process(RingReader.open(path), self._node, marks)
        except (BadInput, OSError) as error:
            self._refuse(path, error)

    def _refuse(self, path: Path, error: Exception) -> None:
        """Leave a file alone from now on, and say why as long as it is there."""
        process = self._processes.pop(path, None)
        if process:
            self._lost += process.lost
            process.reader.close()
        self._refused[path] = (_inode(path), str(error))

    def _problems(self) -> tuple[str, ...]:
        folder = (self._folder_problem,) if self._folder_problem else ()
        return (*folder, *(why for _, why in self._refused.values()), *self._strangers)

    def _check_life(self, path: Path, process: Process, now: Instant) -> None:
        """Note when a process is first seen gone; once that is told, and after the grace, its
        ring goes too."""
        if process.gone_since is None:
            if process.closed or not process.reader.alive:
                process.gone_since = now
            return
        gone_ns = now.monotonic_ns - process.gone_since.monotonic_ns
        is_empty = process.reader.head == process.reader.tail
        if gone_ns >= self._grace_ns and is_empty and process.end_told:
            self._lost += process.lost
            process.reader.close()
            del self._processes[path]
            with suppress(OSError):
                path.unlink()


def strangers(living: Sequence[RingReader]) -> Iterator[str]:
    """Rings of one job and rank that several users own: those not of the user that most rings of
    the job belong to; all of them where no user has most. Anybody may write a ring: which one
    tells the truth is not known, so both are read."""
    owners: dict[str, Counter[int]] = defaultdict(Counter)
    claims: dict[tuple[str, int], list[RingReader]] = defaultdict(list)
    for ring in living:
        with suppress(BadInput):
            header = ring.header
            owners[header.job][ring.owner] += 1
            if header.rank is not None:
                claims[header.job, header.rank].append(ring)
    for (job, rank), rings in claims.items():
        if len({ring.owner for ring in rings}) > 1:
            most = max(owners[job].values())
            usual = [owner for owner, count in owners[job].items() if count == most]
            for ring in rings:
                if usual != [ring.owner]:
                    yield (
                        f"{ring.path}: of user {ring.owner}, says it is rank {rank} of job {job}, "
                        "as a ring of another user does: one of them is forged"
                    )


def _inode(path: Path) -> int:
    try:
        return path.stat().st_ino
    except OSError:
        return 0
