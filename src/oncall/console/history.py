"""What was gathered and probed earlier, within bounds: the time cursor can go back even to nodes
that are gone, and the next snapshots know what probes measured.

Each gather's answers are in a folder of their own. The newest is always kept. Of the older ones,
one per minute is enough, since each spans several minutes; the oldest are deleted when there are
too many or they are too large.
"""

from __future__ import annotations

import random
import shutil
import threading
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from oncall.core.errors import UsageError
from oncall.core.units import NS_PER_S
from oncall.evidence.incident import Incident
from oncall.fleet.merge import Answers, add_rows, measured_rows
from oncall.fleet.outcome import Outcome
from oncall.fleet.probe import Probed, why_not_probed
from oncall.render.text import probe as report
from oncall.views.probe import summarise

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


_MOST_SUSPECTS = 8
_PEERS = 8  # of the suspects: the baseline comes from nodes without suspicion
_MOST_KEPT = 32


def probed_hosts(
    nodes: Sequence[str], outcomes: Mapping[str, Outcome], chance: random.Random
) -> tuple[str, ...]:
    """The hosts of some suspected nodes, and others by chance; those that run the job first.

    `outcomes` by host. Raises UsageError where no node of these names was asked before.
    """
    by_node = {outcome.node: host for host, outcome in outcomes.items()}
    suspects = [by_node[node] for node in nodes if node in by_node][:_MOST_SUSPECTS]
    if not suspects:
        raise UsageError(f"cannot probe {', '.join(nodes)}: not among the queried hosts")
    others = [
        (outcome.kind != "ok", chance.random(), host)
        for host, outcome in outcomes.items()
        if host not in suspects
        and outcome.kind in ("ok", "no-data")
        and why_not_probed(outcome) is None
    ]
    return (*suspects, *(host for *_, host in sorted(others)[:_PEERS]))


class ProbesKept:
    """What was measured of late. Probed in one thread, added to snapshots in another."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: deque[Mapping[str, Mapping[str, list[Any]]]] = deque(maxlen=_MOST_KEPT)

    def keep(self, probed: Probed) -> str:
        """Keep it, and tell it as `oncall probe` does. Its incident is closed."""
        with probed.incident as measured:
            rows, summary = measured_rows(measured), summarise(measured.con)
        with self._lock:
            self._kept.append(rows)
        return report.to_text(probed, summary)

    def add_to(self, incident: Incident, since_ns: int | None) -> None:
        """Put into an incident what was measured since then, Unix ns (None: all)."""
        with self._lock:
            kept = tuple(self._kept)
        for rows in kept:
            at_ns = rows["pings"]["at_ns"] if "pings" in rows else ()
            if since_ns is None or max(at_ns, default=0) > since_ns:
                add_rows(incident, rows)

    def clear(self) -> None:
        with self._lock:
            self._kept.clear()
