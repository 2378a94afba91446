"""The files of one kind that processes on this node write: opened as they appear, each judged by
itself, closed when its process is long gone."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

from oncall.core.errors import BadInput
from oncall.core.units import NS_PER_S
from oncall.node.common.source import Instant
from oncall.node.rings.shared_file import MOST_RECORDS, SharedFileReader
from oncall.node.store.batch import Batch

_LOOK_EVERY_NS = NS_PER_S  # for new files, and for processes that are gone
# Anybody may leave files here, and each that is open takes a descriptor.
_MOST_NAMES = 10_000
_MOST_OF_A_USER = 256
_MOST_OPEN = 640
_MOST_REASONS = 16
_ANY = -1  # no inode: the file is tried again at the next look


class Recorded(Protocol):
    """A process as its file shows it."""

    gone_since: Instant | None  # when it was first seen gone

    @property
    def reader(self) -> SharedFileReader[Any]: ...
    @property
    def lost(self) -> int:
        """Records that are known to be lost."""

    @property
    def end_recorded(self) -> bool:
        """Whether all there is to report of its end was reported."""


P = TypeVar("P", bound=Recorded)


class SharedFiles(Generic[P]):
    """The files in `folder` that end in `suffix`, each as what `opened` makes of it."""

    def __init__(
        self, folder: Path, suffix: str, grace_ns: int, opened: Callable[[Path], P]
    ) -> None:
        self.folder_problem: str | None = None
        self._folder = folder
        self._suffix = suffix
        self._grace_ns = grace_ns
        self._opened = opened
        self._processes: dict[Path, P] = {}
        self._refused: dict[Path, tuple[int, str]] = {}  # path -> (inode, why)
        self._lost = 0  # records, of processes that are no longer here
        self._look_at_ns = 0

    def __iter__(self) -> Iterator[tuple[Path, P]]:
        """Those that are open; one that is refused meanwhile is passed over."""
        for path, process in list(self._processes.items()):
            if path in self._processes:
                yield path, process

    def __len__(self) -> int:
        return len(self._processes)

    @property
    def lost(self) -> int:
        """Records lost, ever."""
        return self._lost + sum(map(_lost_by, self._processes.values()))

    @property
    def problems(self) -> tuple[str, ...]:
        """Why files that are still there were refused, or not believed; of very many the first."""
        reasons = list(dict.fromkeys(why for _, why in self._refused.values()))
        reasons += [
            f"{path}: damaged: {process.lost} records lost"
            for path, process in self._processes.items()
            if process.lost > MOST_RECORDS
        ]
        more = len(reasons) - _MOST_REASONS
        rest = (f"{self._folder}: and {more} files more",) if more > 0 else ()
        return (*reasons[:_MOST_REASONS], *rest)

    def look(self, now: Instant) -> bool:
        """Open new files, and close those of processes long gone; once a second.
        Whether it was time."""
        if now.monotonic_ns < self._look_at_ns:
            return False
        self._look_at_ns = now.monotonic_ns + _LOOK_EVERY_NS
        self.folder_problem = None
        try:
            paths = self._names()
        except OSError as error:
            self.folder_problem = f"{self._folder}: {error.strerror}; new files are not found"
            paths = []
        self._refused = {path: why for path, why in self._refused.items() if path in paths}
        owners = Counter(process.reader.owner for process in self._processes.values())
        for path in paths:
            if path not in self._processes and self._is_new(path):
                try:
                    if no_room := self._no_room(path, owners):
                        self._refused[path] = (_ANY, no_room)  # until others are gone
                        continue
                    self._processes[path] = self._opened(path)
                except (BadInput, OSError) as error:
                    self.refuse(path, error)
        for path, process in self:
            try:
                self._check_life(path, process, now)
            except (BadInput, OSError) as error:
                self.refuse(path, error)
        return True

    def _names(self) -> list[Path]:
        with os.scandir(self._folder) as entries:
            ours = (entry.name for entry in entries if entry.name.endswith(self._suffix))
            names = sorted(islice(ours, _MOST_NAMES + 1))
        if len(names) > _MOST_NAMES:
            self.folder_problem = f"{self._folder}: over {_MOST_NAMES:,} files; some are not read"
        return [self._folder / name for name in names]

    def _no_room(self, path: Path, owners: Counter[int]) -> str | None:
        """Why one more of its owner's files is not opened now, or None."""
        owner = path.lstat().st_uid
        owners[owner] += 1
        if owners[owner] > _MOST_OF_A_USER:
            return (
                f"{self._folder}: user {owner} has over {_MOST_OF_A_USER} files here; "
                "some are not read"
            )
        if owners.total() > _MOST_OPEN:
            return f"{self._folder}: over {_MOST_OPEN} files; some are not read"
        return None

    def said(self, ask: Callable[[P], Sequence[Batch]]) -> list[Batch]:
        """What each process says; a file that cannot be read is refused."""
        batches: list[Batch] = []
        for path, process in self:
            try:
                batches += ask(process)
            except (BadInput, OSError) as error:
                self.refuse(path, error)
        return batches

    def refuse(self, path: Path, error: Exception) -> None:
        """Leave a file alone from now on, and say why as long as it is there."""
        self._let_go(path)
        self._refused[path] = (_inode(path), str(error))

    def close(self) -> None:
        """Close all files."""
        for process in self._processes.values():
            process.reader.close()
        self._processes.clear()

    def _is_new(self, path: Path) -> bool:
        """Whether this very file has not been refused before."""
        return path not in self._refused or self._refused[path][0] != _inode(path)

    def _check_life(self, path: Path, process: P, now: Instant) -> None:
        """Note when a process is first seen gone; once that is reported, and after the grace, its
        file goes too."""
        reader = process.reader
        if process.gone_since is None:
            if reader.closed or not reader.alive:
                process.gone_since = now
            return
        gone_ns = now.monotonic_ns - process.gone_since.monotonic_ns
        if gone_ns >= self._grace_ns and reader.head == reader.tail and process.end_recorded:
            is_its_own = _inode(path) == reader.inode  # and not what another put in its place
            self._let_go(path)
            if is_its_own:
                with suppress(OSError):
                    path.unlink()

    def _let_go(self, path: Path) -> None:
        process = self._processes.pop(path, None)
        if process:
            with suppress(BadInput, OSError):
                self._lost += _lost_by(process)
            process.reader.close()


def _lost_by(process: Recorded) -> int:
    return min(process.lost, MOST_RECORDS)


def _inode(path: Path) -> int:
    try:
        return path.stat().st_ino
    except OSError:
        return 0
