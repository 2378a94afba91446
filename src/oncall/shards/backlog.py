"""Rows that wait to be committed; while nothing can be, the newest of them, within bounds."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from oncall.shards.batch import Batch


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

    def clear(self) -> None:
        """All of them are committed."""
        self._batches.clear()
        self._bytes = 0
