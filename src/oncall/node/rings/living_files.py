"""The files of one kind that living processes on this node write, open to look at their boards:
nothing is consumed, so whoever drains them misses nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Generic, TypeVar

from oncall.core.errors import BadInput
from oncall.core.units import NS_PER_S
from oncall.node.common.source import Instant
from oncall.node.rings.ring import RingReader
from oncall.node.rings.shared_file import SharedFileReader

_MOST_OPEN = 640  # anybody may leave files here
_LOOK_EVERY_NS = NS_PER_S  # for files that are new, or of processes that are gone

R = TypeVar("R", bound=SharedFileReader[Any])


class LivingFiles(Generic[R]):
    """Files in `folder` that end in `suffix`. What cannot be read is passed over: the source that
    drains it says why."""

    def __init__(self, folder: Path, suffix: str, kind: type[R]) -> None:
        self._folder = folder
        self._suffix = suffix
        self._kind = kind
        self._open: dict[Path, R] = {}
        self._look_at_ns = 0

    def __iter__(self) -> Iterator[R]:
        return iter(list(self._open.values()))

    def __len__(self) -> int:
        return len(self._open)

    def look(self, now_ns: int) -> bool:
        """Open new files and close those that are over, once a second. Whether it was time."""
        if now_ns < self._look_at_ns:
            return False
        self._look_at_ns = now_ns + _LOOK_EVERY_NS
        paths = set(islice(self._folder.glob(f"*{self._suffix}"), _MOST_OPEN))
        for path, file in list(self._open.items()):
            if path not in paths or not _lives(file):
                self.let_go(file)
        for path in sorted(paths - self._open.keys()):
            with suppress(BadInput, OSError):
                file = self._kind.open(path, consume=False)
                self._open[path] = file
                if not _lives(file):
                    self.let_go(file)
        return True

    def let_go(self, file: R) -> None:
        """Look at it no more, until it is found anew."""
        self._open.pop(file.path, None)
        file.close()

    def close(self) -> None:
        for file in self:
            self.let_go(file)


def _lives(file: SharedFileReader[Any]) -> bool:
    try:
        return file.alive and not file.closed
    except (BadInput, OSError):
        return False


@dataclass(frozen=True)
class LivingRank:
    """A training process: its rank in its job, and its number as this process sees it. `gpu` is
    its index on the node, NULL as long as the process has not recorded it."""

    job: str
    rank: int
    pid: int
    gpu: int | None


class LivingRanks:
    """The ranks whose rings lie in `folder`, held open. Rings that cannot be read are passed over:
    source `rings` says why."""

    def __init__(self, folder: Path) -> None:
        self._rings = LivingFiles(folder, ".ring", RingReader)

    def now(self, now: Instant) -> Iterator[LivingRank]:
        """Those whose process lives and is to be seen from here."""
        self._rings.look(now.monotonic_ns)
        for ring in self._rings:
            with suppress(BadInput, OSError):
                header, pid = ring.header, ring.pid_here
                if pid and header.rank is not None:
                    yield LivingRank(header.job, header.rank, pid, header.gpu)

    def close(self) -> None:
        self._rings.close()
