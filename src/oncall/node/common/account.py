"""The collector's reports on itself in `collectors`: rows, losses, errors, CPU time, memory."""

from __future__ import annotations

import os
import resource
from dataclasses import dataclass
from pathlib import Path

from oncall.node.store.batch import Batch, one_row

_MOST_SHOWN = 4  # problems at once; a folder of garbage must not fill the shards


@dataclass
class Account:
    """One source's account: counts since the collector began, what is wrong now, and what this
    node does not have. The newest row is complete."""

    node: str
    source: str
    rows: int = 0
    dropped: int = 0
    cpu_ns: int = 0
    problems: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    # losses, problems and notes in the newest row
    _recorded: tuple[int, tuple[str, ...], tuple[str, ...]] = (0, (), ())

    @property
    def is_urgent(self) -> bool:
        """Losses, problems or notes differ from the newest recorded row."""
        return self._recorded != (self.dropped, self.problems, self.notes)

    def record(self) -> None:
        """Its current row goes into the store."""
        self._recorded = (self.dropped, self.problems, self.notes)

    def row(self, at_ns: int, rss_bytes: int | None = None) -> Batch:
        """The current account."""
        return one_row(
            "collectors",
            node=self.node,
            source=self.source,
            at_ns=at_ns,
            rows=self.rows,
            dropped=self.dropped,
            error=_together(self.problems),
            note=_together(self.notes),
            cpu_ns=self.cpu_ns,
            rss_bytes=rss_bytes,
        )


def _together(sentences: tuple[str, ...]) -> str | None:
    if not sentences:
        return None
    more = len(sentences) - _MOST_SHOWN
    rest = (f"and {more} more",) if more > 0 else ()
    return "; ".join((*sentences[:_MOST_SHOWN], *rest))


def rss_bytes() -> int:
    """Memory that this process holds now."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def cpu_ns() -> int:
    """CPU time that this process has used, all threads."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return int((used.ru_utime + used.ru_stime) * 1e9)
