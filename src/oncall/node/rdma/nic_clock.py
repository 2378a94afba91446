"""A NIC's own clock against Unix time, by what it says of itself in each answer.

The NIC tells a time that has surely come, some microseconds to a second old; the answer came
before `after_ns`. So `after_ns - now_ns` is never less than the true offset, and the least of
several answers is nearest to it.
"""

from __future__ import annotations

from collections import deque

_ANSWERS = 8  # as many seconds; two oscillators part by some 10 us a second at worst
_KEEP_NS = 16_000  # half an epoch: below it the grid of epochs stays where it is


class NicClock:
    """Offset of Unix time from a NIC's time, ns: always a little late, by the age of the newest
    event when the NIC was asked."""

    def __init__(self) -> None:
        self._seen: deque[int] = deque(maxlen=_ANSWERS)
        self._offset_ns: int | None = None

    def answered(self, now_ns: int, after_ns: int) -> None:
        """The NIC said `now_ns` in an answer that was here at `after_ns`."""
        self._seen.append(after_ns - now_ns)
        nearest = min(self._seen)
        if self._offset_ns is None or abs(nearest - self._offset_ns) > _KEEP_NS:
            self._offset_ns = nearest

    @property
    def offset_ns(self) -> int:
        """What to add to the NIC's time. Raises ValueError before the first answer."""
        if self._offset_ns is None:
            raise ValueError("the NIC has not reported its time yet")
        return self._offset_ns
