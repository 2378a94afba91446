"""Rows that wait to be committed; while nothing can be, the newest of them, within bounds."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence

from oncall.node.store.batch import Batch


class Backlog:
    """A queue of batches that forgets its oldest beyond `most_bytes`, and counts them."""

    def __init__(self, most_bytes: int) -> None:
        self.most_bytes = most_bytes
        self._batches: deque[Batch] = deque()
        self._bytes = 0
        self.dropped = 0  # rows forgotten, ever

    def __len__(self) -> int:
        """Rows that wait."""
        return sum(batch.rows for batch in self._batches)

    @property
    def bytes(self) -> int:
        """What they hold in memory, about."""
        return self._bytes

    @property
    def batches(self) -> tuple[Batch, ...]:
        return tuple(self._batches)

    def add(self, batches: Iterable[Batch]) -> None:
        """Queue rows; the oldest make room for them where there is none."""
        for batch in batches:
            self._batches.append(batch)
            self._bytes += batch.bytes
        while self._bytes > self.most_bytes and self._batches:
            oldest = self._batches.popleft()
            self._bytes -= oldest.bytes
            self.dropped += oldest.rows

    def first(self, most_bytes: int) -> list[Batch]:
        """The oldest batches, up to `most_bytes` in all but at least one."""
        found: list[Batch] = []
        size = 0
        for batch in self._batches:
            size += batch.bytes
            if found and size > most_bytes:
                break
            found.append(batch)
        return found

    def written(self, batches: Sequence[Batch]) -> None:
        """These, the `first` ones, are committed."""
        for _ in batches:
            self._bytes -= self._batches.popleft().bytes

    def remove(self, batches: Sequence[Batch]) -> None:
        """These very batches are committed after all, wherever they are in the queue."""
        gone = {id(batch) for batch in batches}
        self._batches = deque(batch for batch in self._batches if id(batch) not in gone)
        self._bytes = sum(batch.bytes for batch in self._batches)

    def take(self) -> list[Batch]:
        """All of them, which are in the queue no more."""
        taken, self._batches, self._bytes = list(self._batches), deque(), 0
        return taken
