"""Earlier gathers, within bounds: the time cursor can go back even to nodes that are gone.

Each gather's answers are in a folder of their own. The newest is always kept. Of the older ones,
one per minute is enough, since each spans several minutes; the oldest are deleted when there are
too many or they are too large.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from oncall.core.units import NS_PER_S
from oncall.fleet.merge import Answers

MOST_BYTES = 2**30
MOST_KEPT = 240
APART_NS = 60 * NS_PER_S


@dataclass(frozen=True)
class Gathered:
    """Answers about a job from `since_ns` (None: its beginning) until `at_ns`, Unix ns, in a
    folder of their own. `whole`: every operation of that span is there, none was thinned out."""

    job: str
    since_ns: int | None
    at_ns: int
    answers: Answers
    folder: Path
    whole: bool

    @cached_property
    def bytes(self) -> int:
        """What the folder takes on disk."""
        return sum(path.stat().st_size for path in self.folder.rglob("*") if path.is_file())

    def covers(self, at_ns: int) -> bool:
        """Whether it holds as much of an instant as a new gather would bring."""
        return self.whole and (self.since_ns or 0) <= at_ns <= self.at_ns


class History:
    """Gathers of one job, oldest first."""

    def __init__(self, most_bytes: int = MOST_BYTES, most_kept: int = MOST_KEPT) -> None:
        self._most_bytes = most_bytes
        self._most_kept = most_kept
        self._kept: list[Gathered] = []

    def add(self, gathered: Gathered) -> None:
        """Keep the newest gather, and delete those that are not worth their space any more."""
        kept = self._kept
        # What was the newest stays only if it is far enough from the one before it.
        if len(kept) > 1 and kept[-1].at_ns - kept[-2].at_ns < APART_NS:
            _remove(kept.pop())
        kept.append(gathered)
        while len(kept) > 1 and (len(kept) > self._most_kept or self.bytes > self._most_bytes):
            _remove(kept.pop(0))

    @property
    def bytes(self) -> int:
        """What is kept takes on disk."""
        return sum(one.bytes for one in self._kept)

    @property
    def newest(self) -> Gathered | None:
        return self._kept[-1] if self._kept else None

    def __len__(self) -> int:
        return len(self._kept)

    def covering(self, at_ns: int) -> Gathered | None:
        """The earliest that reaches until then: it knows most of that time."""
        return next((one for one in self._kept if one.at_ns >= at_ns), None)

    def clear(self) -> None:
        """Delete all gathers."""
        while self._kept:
            _remove(self._kept.pop())


def _remove(gathered: Gathered) -> None:
    shutil.rmtree(gathered.folder, ignore_errors=True)
