"""Source `rings`: every training process on this node that records into a ring."""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from oncall.core.errors import BadInput
from oncall.node.common.declaration import NoOptions, Surroundings, source
from oncall.node.common.source import Collected, Instant, Source
from oncall.node.rings.process import Process
from oncall.node.rings.ring import RingReader
from oncall.node.rings.rows import InFlight, Operations, finished_rows, together
from oncall.node.rings.shared_files import SharedFiles
from oncall.node.rings.unrecorded import (
    in_words,
    remove_outdated,
    unrecorded,
    who_is_not_recorded,
    why_no_ring,
)
from oncall.node.store.batch import Batch
from oncall.node.store.bookmarks import Bookmark, under
from oncall.node.traffic.recent_traffic import RecentTraffic, recent_traffic

# Of one ring at a time, so that one busy process starves no other; and of several rings together,
# as their rows are committed as a whole: 16,384 records make 1 to 3 MiB of rows.
_MOST_RECORDS = 1 << 14
_MOST_GOES = 16  # at one ring in a turn
# A ring this full is drained at once: the rest takes the burst of one turn of the agent.
_URGENT_PART = 4


@dataclass
class _Drained:
    """What was read of several rings: rows, and operations that become rows together."""

    batches: list[Batch] = field(default_factory=list)
    over: list[Operations] = field(default_factory=list)
    records: int = 0

    def rows(self) -> list[Batch]:
        return self.batches + ([finished_rows(together(self.over))] if self.over else [])


@dataclass(frozen=True)
class _Go:
    """A ring whose turn comes, and how often it still may."""

    path: Path
    process: Process
    left: int = _MOST_GOES


class RingSource:
    """Opens rings as they appear, drains them fairly, closes those of processes long gone."""

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
        self._turn: deque[_Go] = deque()  # rings that are still to be drained in this turn
        self._strangers: tuple[str, ...] = ()
        self._unrecorded: tuple[str, ...] = ()

    def collect(self, now: Instant) -> Collected:
        """Drain every ring once, and those that were not emptied some times more; of that as much
        as is committed at once."""
        if not self._turn:
            self._look(now)
            self._turn.extend(_Go(path, process) for path, process in self._processes)
        return self._drain_some(now)

    def collect_urgent(self, now: Instant) -> Collected:
        """Drain the rings that fill up; the others keep their records until the next `collect`."""
        if not self._turn:
            self._look(now)
            full = [one for one in self._processes if self._fills(*one)]
            self._turn.extend(_Go(path, process, left=1) for path, process in full)
        return self._drain_some(now)

    def current_state(self, now: Instant) -> Sequence[Batch]:
        """Jobs, ranks, communicators, counters and everything in flight."""
        in_flight = InFlight()
        batches = self._processes.said(lambda process: process.current_state(now, in_flight))
        return batches + in_flight.rows()

    def present(self, now: Instant) -> Sequence[Batch]:
        """Jobs, ranks, communicators and operations in flight, for sources that watch."""
        return self._processes.said(lambda process: process.present(now))

    def close(self) -> None:
        self._processes.close()

    # ----------------------------------------------------------------- draining

    def _fills(self, path: Path, process: Process) -> bool:
        """Whether a ring is so full that it must not wait."""
        try:
            return process.reader.waiting >= process.reader.slots // _URGENT_PART
        except (BadInput, OSError) as error:
            self._processes.refuse(path, error)
            return False

    def _drain_some(self, now: Instant) -> Collected:
        """Go on with this turn's rings, up to as many records as are committed at once."""
        if not self._turn:  # nothing is read, so nothing else is covered
            return Collected((), self._processes.lost, self._problems(), None, self._notes())
        drained = _Drained()
        while self._turn and drained.records < _MOST_RECORDS:
            go = self._turn.popleft()
            if self._drain(go.path, go.process, now, drained) and go.left > 1:
                self._turn.append(replace(go, left=go.left - 1))
        bookmarks: dict[str, Bookmark] = {}
        for _, process in self._processes:
            bookmarks |= process.bookmarks
        return Collected(
            drained.rows(),
            self._processes.lost,
            self._problems(),
            bookmarks,
            self._notes(),
            more=bool(self._turn),
        )

    def _notes(self) -> tuple[str, ...]:
        return (self._folder_note,) if self._folder_note else ()

    def _drain(self, path: Path, process: Process, now: Instant, drained: _Drained) -> bool:
        """Drain one ring; whether there is more than fits in one go."""
        before = process.position
        try:
            drained.batches += process.collect(now, _MOST_RECORDS, drained.over)
            drained.records += process.position - before
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
        return (*folder, *self._unrecorded, *self._processes.problems, *self._strangers)


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
            main_owners = [owner for owner, count in owners[job].items() if count == most]
            for ring in rings:
                if main_owners != [ring.owner]:
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
