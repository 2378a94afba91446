"""Rows that wait to be committed; while nothing can be, the newest of them, within bounds.

They wait as they were drained: the rows of one drain with the bookmarks that cover them and all
before them. A transaction takes whole drains, so that whatever is committed is covered exactly.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from oncall.node.store.batch import Batch
from oncall.node.store.bookmarks import Bookmark

# Drains smaller than this part of a full backlog are joined: bookmarks take memory, too.
_PARTS = 64


@dataclass(eq=False)
class Drain:
    """Rows that are committed together, and the bookmarks of sources that hold from then on."""

    batches: list[Batch] = field(default_factory=list)
    bookmarks: dict[str, Mapping[str, Bookmark]] = field(default_factory=dict)  # by source

    @property
    def bytes(self) -> int:
        """What its rows hold in memory, about."""
        return sum(batch.bytes for batch in self.batches)

    @property
    def rows(self) -> int:
        return sum(batch.rows for batch in self.batches)


class Backlog:
    """A queue of drains that forgets its oldest rows beyond `most_bytes`, and counts them."""

    def __init__(self, most_bytes: int) -> None:
        self.most_bytes = most_bytes
        self._drains: deque[Drain] = deque()
        self._bytes = 0
        self.dropped = 0  # rows forgotten, ever

    def __len__(self) -> int:
        """Rows that wait."""
        return sum(drain.rows for drain in self._drains)

    @property
    def bytes(self) -> int:
        """What they hold in memory, about."""
        return self._bytes

    @property
    def batches(self) -> tuple[Batch, ...]:
        return tuple(batch for drain in self._drains for batch in drain.batches)

    def add(
        self,
        batches: Iterable[Batch],
        bookmarks: Mapping[str, Mapping[str, Bookmark]] | None = None,
    ) -> None:
        """Queue the rows of one drain with its bookmarks, by source; the oldest make room for
        them where there is none."""
        drain = Drain(list(batches), dict(bookmarks or {}))
        newest = self._drains[-1] if self._drains else None
        if newest and newest.bytes + drain.bytes <= self.most_bytes // _PARTS:
            newest.batches += drain.batches
            newest.bookmarks |= drain.bookmarks
        else:
            self._drains.append(drain)
        self._bytes += drain.bytes
        while self._bytes > self.most_bytes:
            self._forget_oldest()

    def add_first(self, batches: Sequence[Batch]) -> None:
        """Queue rows that are committed with the oldest drain: a count of what was forgotten goes
        with the bookmarks that cover it."""
        if not self._drains:
            self._drains.append(Drain())
        self._drains[0].batches[:0] = batches
        self._bytes += sum(batch.bytes for batch in batches)

    def first(self, most_bytes: int) -> list[Drain]:
        """The oldest drains, up to `most_bytes` in all but at least one."""
        found: list[Drain] = []
        size = 0
        for drain in self._drains:
            size += drain.bytes
            if found and size > most_bytes:
                break
            found.append(drain)
        return found

    def written(self, drains: Sequence[Drain]) -> None:
        """These, the `first` ones, are committed."""
        for _ in drains:
            self._bytes -= self._drains.popleft().bytes

    def remove(self, batches: Sequence[Batch]) -> None:
        """These very batches are committed after all, wherever they are in the queue."""
        gone = {id(batch) for batch in batches}
        for drain in self._drains:
            drain.batches = [batch for batch in drain.batches if id(batch) not in gone]
        self._bytes = sum(drain.bytes for drain in self._drains)

    def take(self) -> list[Batch]:
        """All rows, which are in the queue no more."""
        taken = list(self.batches)
        self._drains.clear()
        self._bytes = 0
        return taken

    def _forget_oldest(self) -> None:
        """Forget the rows of the oldest drain. Its bookmarks stay: they cover what is counted as
        forgotten now, and is not lost a second time."""
        oldest = self._drains.popleft()
        self._bytes -= oldest.bytes
        self.dropped += oldest.rows
        if not self._drains:
            self._drains.append(Drain())
        following = self._drains[0]
        following.bookmarks = {**oldest.bookmarks, **following.bookmarks}
