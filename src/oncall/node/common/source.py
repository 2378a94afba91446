"""What a source of evidence is: a name, what happened since it was last asked, the current state.

A new source is a file in a room of oncall.node with a class like this; declaration.py says how the
collector finds it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias, runtime_checkable

from oncall.node.store.batch import Batch
from oncall.node.store.bookmarks import Bookmark

_TRIES = 3


@dataclass(frozen=True)
class Instant:
    """One moment on both clocks, ns."""

    realtime_ns: int
    monotonic_ns: int

    @property
    def offset_ns(self) -> int:
        """What to add to CLOCK_MONOTONIC to get Unix time."""
        return self.realtime_ns - self.monotonic_ns


Clock: TypeAlias = Callable[[], Instant]


@dataclass(frozen=True)
class Collected:
    """Rows of several tables; how many are known to be lost, ever; what is wrong now, each in a
    sentence; what the next collector must know once exactly these rows and all before them are
    committed (`shards.bookmarks`), None if that is as before; what this node does not have, each in
    a sentence: no fault, but no health either; CPU time spent on these rows in other threads than
    the caller's; and whether more is there than is collected at once: then ask again."""

    batches: Sequence[Batch] = ()
    dropped: int = 0
    problems: tuple[str, ...] = ()
    bookmarks: Mapping[str, Bookmark] | None = None
    notes: tuple[str, ...] = ()
    cpu_ns: int = 0
    more: bool = False


class Source(Protocol):
    """One kind of evidence on this node. Called from one thread only."""

    name: str

    def collect(self, now: Instant) -> Collected:
        """What happened since the last call; several times a second. What one call brings is
        committed as a whole: a few MiB of rows at most, the rest by calls that follow at once."""

    def current_state(self, now: Instant) -> Sequence[Batch]:  # noqa: ARG002
        """What is so right now and every shard must record by itself: who is there, and what is
        in flight. Written at each seal and laid over each answer, so it may be reported again."""
        return ()

    def close(self) -> None:
        """Close files; nothing more is asked."""
        return


@runtime_checkable
class Unhurried(Protocol):
    """A source that keeps what happens until it is asked, for longer than the agent's turn."""

    def collect_urgent(self, now: Instant) -> Collected:
        """What could be lost if it waited until the next commit; mostly nothing, at no cost."""


@runtime_checkable
class Watcher(Protocol):
    """A source that also receives the rows of the others."""

    @property
    def is_watching(self) -> bool:
        """Whether it has a use for them at once, and not only when they are committed."""

    def see(self, batches: Sequence[Batch]) -> None:
        """Rows on their way into the store; called from the agent's thread, must not wait."""


@runtime_checkable
class Watched(Protocol):
    """A source whose rows are no use to watchers without who is there."""

    def present(self, now: Instant) -> Sequence[Batch]:
        """Who is there and what is in flight, every few seconds; nothing of it is stored."""


class FailedSource(Source):
    """A source that could not be made, for a reason to be reported as long as the collector
    runs."""

    def __init__(self, name: str, problem: str) -> None:
        self.name = name
        self._reported = Collected(problems=(f"collects nothing: {problem}",))

    def collect(self, now: Instant) -> Collected:  # noqa: ARG002
        return self._reported


def say_bug(error: Exception) -> str:
    """A problem that no source foresaw, in a sentence."""
    return f"a bug: {type(error).__name__}: {error}"


def read_clock() -> Instant:
    """Both clocks at one moment, as near as possible."""
    best: tuple[int, Instant] | None = None
    for _ in range(_TRIES):
        before = time.monotonic_ns()
        realtime = time.time_ns()
        after = time.monotonic_ns()
        if best is None or after - before < best[0]:
            best = (after - before, Instant(realtime, (before + after) // 2))
    assert best is not None
    return best[1]
