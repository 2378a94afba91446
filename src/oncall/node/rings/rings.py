"""Source `rings`: every training process on this node that records into a ring."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from oncall.core.errors import BadInput
from oncall.node.common.declaration import NoOptions, Surroundings, source
from oncall.node.common.source import Collected, Instant, Source
from oncall.node.rings.process import Process
from oncall.node.rings.ring import RingReader
from oncall.node.rings.ring_room import who_is_not_recorded, why_no_ring
from oncall.node.rings.rows import Operations, finished_rows, together
from oncall.node.rings.shared_files import SharedFiles
from oncall.node.rings.unrecorded import in_words, remove_outdated, unrecorded
from oncall.node.store.batch import Batch
from oncall.node.store.bookmarks import Bookmark, under
from oncall.node.traffic.recent_traffic import RecentTraffic
from oncall.node.traffic.shared_traffic import recent_traffic

_MOST_RECORDS = 1 << 15  # of one ring at a time, so that one busy process starves no other
_MOST_ROUNDS = 4
_MOST_TOGETHER = 8_192  # operations of several rings in one batch, which is committed as a whole
# A ring this full is drained at once: the rest takes the burst of one turn of the agent.
_URGENT_PART = 8


@dataclass
class _Drained:
    """What one turn brings, of all processes: rows, and operations that become rows together."""

    batches: list[Batch] = field(default_factory=list)
    over: list[Operations] = field(default_factory=list)

    def rows(self) -> list[Batch]:
        pieces: list[list[Operations]] = []
        room = 0
        for part in self.over:
            if len(part.table) > room:
                pieces.append([])
                room = _MOST_TOGETHER
            pieces[-1].append(part)
            room -= len(part.table)
        return self.batches + [finished_rows(together(piece)) for piece in pieces]


class RingSource:
    """Opens rings as they appear, drains them fairly, lets go of those of processes long gone."""

    name = "rings"

    def __init__(
        self,
        folder: Path,
        node: str,
        grace_ns: int,
        bookmarks: Mapping[str, Bookmark],
        recent: RecentTraffic | None = None,
    ) -> None:
        """`recent`: where what proxies sent is remembered, if anywhere."""
        self._folder = folder
        self._bookmarks = bookmarks
        self._recent = recent
        self._node = node
        self._processes = SharedFiles(folder, ".ring", grace_ns, self._open)
        self._folder_problem: str | None = None
        self._folder_note: str | None = None
        self._newest = Collected()  # without rows
        self._strangers: tuple[str, ...] = ()
        self._unrecorded: tuple[str, ...] = ()

    def collect(self, now: Instant) -> Collected:
        """Drain every ring once, and those that were not emptied a few times more."""
        self._look(now)
        drained = _Drained()
        busy = list(self._processes)
        for _ in range(_MOST_ROUNDS):
            busy = [one for one in busy if self._drain(*one, now, drained)]
            if not busy:
                break
        self._newest = self._collected(())
        return replace(self._newest, batches=drained.rows())

    def _collected(self, batches: Sequence[Batch]) -> Collected:
        bookmarks = {
            f"{path.name}/{name}": value
            for path, process in self._processes
            for name, value in process.bookmarks.items()
        }
        notes = (self._folder_note,) if self._folder_note else ()
        return Collected(batches, self._processes.lost, self._problems(), bookmarks, notes)

    def _fills(self, path: Path, process: Process) -> bool:
        """Whether a ring is so full that it must not wait."""
        try:
            return process.reader.waiting >= process.reader.slots // _URGENT_PART
        except (BadInput, OSError) as error:
            self._processes.refuse(path, error)
            return False

    def collect_urgent(self, now: Instant) -> Collected:
        """Drain the rings that fill up; the others keep their records until the next `collect`."""
        self._look(now)
        drained = _Drained()
        full = [one for one in self._processes if self._fills(*one)]
        for path, process in full:
            self._drain(path, process, now, drained)
        if full:
            self._newest = self._collected(())
        return replace(self._newest, batches=drained.rows(), problems=self._problems())

    def standing(self, now: Instant) -> Sequence[Batch]:
        """Jobs, ranks, communicators, counters and everything in flight."""
        batches: list[Batch] = []
        for path, process in self._processes:
            try:
                batches += process.standing(now)
            except (BadInput, OSError) as error:
                self._processes.refuse(path, error)
        return batches

    def present(self, now: Instant) -> Sequence[Batch]:
        """Jobs, ranks, communicators and operations in flight, for sources that watch."""
        batches: list[Batch] = []
        for path, process in self._processes:
            try:
                batches += process.present(now)
            except (BadInput, OSError) as error:
                self._processes.refuse(path, error)
        return batches

    def close(self) -> None:
        self._processes.close()

    # ----------------------------------------------------------------- draining

    def _drain(self, path: Path, process: Process, now: Instant, drained: _Drained) -> bool:
        """Drain one ring; whether there is more than fits in one go."""
        try:
            drained.batches += process.collect(now, _MOST_RECORDS, drained.over)
            return process.reader.waiting >= _MOST_RECORDS // 2
        except (BadInput, OSError) as error:
            self._processes.refuse(path, error)
            return False

    # ---------------------------------------------------------------- discovery

    def _look(self, now: Instant) -> None:
        """See what is new and what is gone."""
        if self._processes.look(now):
            self._folder_problem = why_no_ring(self._folder) or self._processes.folder_problem
            self._folder_note = who_is_not_recorded(self._folder)
            living = [process.reader for _, process in self._processes if not process.gone_since]
            self._strangers = tuple(strangers(living))
            notes = unrecorded(self._folder)
            remove_outdated(notes)
            self._unrecorded = tuple(in_words(notes))

    def _open(self, path: Path) -> Process:
        marks = under(f"{path.name}/", self._bookmarks)
        return Process(RingReader.open(path), self._node, marks, self._recent)

    def _problems(self) -> tuple[str, ...]:
        folder = (self._folder_problem,) if self._folder_problem else ()
        return (*folder, *self._unrecorded, *self._processes.refused, *self._strangers)


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
                        f"{ring.path}: of user {ring.owner}, claims to be rank {rank} of job "
                        f"{job}, as another user's ring does: one of them is forged"
                    )


@source("rings")
def rings(surroundings: Surroundings, options: NoOptions) -> Source:  # noqa: ARG001
    """What the hooks in training processes record."""
    return RingSource(
        surroundings.rings,
        surroundings.node,
        surroundings.ring_grace_ns,
        surroundings.bookmarks,
        surroundings.shared(recent_traffic),
    )
