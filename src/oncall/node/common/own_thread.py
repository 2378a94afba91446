"""Runs a source in a thread of its own, at its own rate.

A driver that hangs for seconds, or a slow sysfs file, then delays neither the rings nor the other
sources: rows so far are delivered, and the delay is reported.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Sequence
from typing import Protocol

from oncall.core.units import NS_PER_S
from oncall.node.common.source import Collected, Instant, Source, Watcher, read_clock, say_bug
from oncall.node.store.batch import Batch

_MOST_ROWS = 20_000  # held for an agent that is busy: of 8 NICs more than a minute
_LEAST_NS = NS_PER_S // 100  # between readings: whatever is configured, no busy loop
_LATE_NS = 5 * NS_PER_S
_PATIENCE_S = 1.0  # for the reading under way when the collector leaves


class PolledSource(Source, Protocol):
    """A source with a rate of its own, which may change from reading to reading; called from its
    own thread only."""

    @property
    def every_ns(self) -> int: ...


class SeeingSource(PolledSource, Watcher, Protocol):
    """One that is a watcher, too."""


class OwnThread:
    """Asks `source` every `source.every_ns`, but at most 100 times a second, from the first
    `collect` on; `collect` itself never waits. At most 20,000 rows are held; beyond that the
    oldest are dropped and counted."""

    def __init__(self, source: PolledSource) -> None:
        self.name = source.name
        self._source = source
        self._thread = threading.Thread(target=self._run, name=source.name, daemon=True)
        self._stopping = threading.Event()
        self._has_read = threading.Event()
        self._lock = threading.Lock()  # held for what follows, and never while the source is asked
        self._batches: deque[Batch] = deque()
        self._rows = 0
        self._dropped = 0
        self._cpu_ns = 0
        self._newest = Collected()
        self._current_state: Sequence[Batch] = ()
        self._asked: Instant | None = None  # when the reading under way began

    # ------------------------------------------------------------ the agent's thread

    def collect(self, now: Instant) -> Collected:
        """What has come since the last call."""
        if self._thread.ident is None:
            self._thread.start()
        with self._lock:
            batches, self._batches, self._rows = self._batches, deque(), 0
            cpu_ns, self._cpu_ns = self._cpu_ns, 0
            newest = self._newest
            return Collected(
                tuple(batches),
                newest.dropped + self._dropped,
                (*newest.problems, *self._late(now)),
                newest.bookmarks,
                newest.notes,
                cpu_ns,
            )

    def current_state(self, now: Instant) -> Sequence[Batch]:  # noqa: ARG002
        """As it stood at the last reading."""
        with self._lock:
            return self._current_state

    def wait_for_a_reading(self, timeout_s: float) -> bool:
        """Wait until the source was read once; whether it was."""
        return self._has_read.wait(timeout_s)

    def close(self) -> None:
        """Stop reading. A reading that hangs ends with the process."""
        self._stopping.set()
        if self._thread.ident is None:
            self._source.close()
        else:
            self._thread.join(_PATIENCE_S)

    def _late(self, now: Instant) -> tuple[str, ...]:
        asked = self._asked
        if asked is None or now.monotonic_ns - asked.monotonic_ns < _LATE_NS:
            return ()
        since = time.strftime("%H:%M:%S", time.gmtime(asked.realtime_ns / NS_PER_S))
        return (f"does not answer: a reading begun at {since} UTC has not ended",)

    # ---------------------------------------------------------------- its own thread

    def _run(self) -> None:
        due_ns = time.monotonic_ns()
        while not self._stopping.is_set():
            began_ns = time.monotonic_ns()
            self._read()
            ended_ns = time.monotonic_ns()
            every_ns = max(self._source.every_ns, _LEAST_NS)
            due_ns = next_due_ns(due_ns, began_ns, ended_ns, every_ns)
            self._stopping.wait((due_ns - ended_ns) / NS_PER_S)
        self._source.close()

    def _read(self) -> None:
        now = read_clock()
        self._asked = now
        began_ns = time.thread_time_ns()
        current: Sequence[Batch] = ()
        try:
            collected = self._source.collect(now)
            current = self._source.current_state(now)
        except Exception as error:  # a bug in one source must not cost us the others
            before = self._newest
            collected = Collected(
                (), before.dropped, (say_bug(error),), before.bookmarks, before.notes
            )
        self._hand_over(collected, current, time.thread_time_ns() - began_ns)
        self._asked = None
        self._has_read.set()

    def _hand_over(self, collected: Collected, current: Sequence[Batch], cpu_ns: int) -> None:
        with self._lock:
            self._newest = Collected(
                (), collected.dropped, collected.problems, collected.bookmarks, collected.notes
            )
            self._current_state = current
            self._cpu_ns += cpu_ns + collected.cpu_ns
            self._batches.extend(collected.batches)
            self._rows += sum(batch.rows for batch in collected.batches)
            while self._rows > _MOST_ROWS:
                oldest = self._batches.popleft()
                self._rows -= oldest.rows
                self._dropped += oldest.rows


class SeeingThread(OwnThread):
    """The same of a source that is also shown the rows of the others, by the agent's thread."""

    def __init__(self, source: SeeingSource) -> None:
        super().__init__(source)
        self._seeing = source
        self.see = source.see

    @property
    def is_watching(self) -> bool:
        return self._seeing.is_watching


def next_due_ns(due_ns: int, began_ns: int, ended_ns: int, every_ns: int) -> int:
    """When the next reading is due after one that was due at `due_ns`. It is a rate, not a pause;
    missed readings are not made up for. A slow driver gets as long a rest as it was kept busy, up
    to `every_ns`."""
    pause_ns = min(ended_ns - began_ns, every_ns)
    return max(due_ns + every_ns, ended_ns + pause_ns)
