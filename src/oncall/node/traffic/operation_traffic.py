"""Source `traffic`: operations found in what this node's queue pairs sent, as it comes (Pulse 5.2).

Epochs stay in memory (recent_traffic.py); what the other sources report of operations,
communicators and queue pairs is seen as it passes. Every few seconds Algorithm 1 is run over both;
what each rank sent to each peer in each operation becomes a row of `op_traffic` once its traffic
has settled, and what is not over is reported as it is. Raw epochs are stored around what is late or
stuck only.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Sequence

from oncall.core.units import NS_PER_S
from oncall.node.common.declaration import Surroundings, source
from oncall.node.common.own_thread import SeeingThread
from oncall.node.common.source import Collected, Instant, Source
from oncall.node.store.batch import Batch
from oncall.node.traffic.recent_traffic import (
    KEEP_NS,
    RecentTraffic,
    TrafficOptions,
    recent_traffic,
)
from oncall.node.traffic.segmenting import Segmenting

READ = ("ops", "comms", "ranks", "qps")
_LOOK_NS = NS_PER_S // 4
_MOST_WAITING = 100_000  # rows of other sources that wait for the next round
_MOST_IDLE = 25_000  # ... while nothing is measured: some seconds before the first epochs
_STEP_NS = NS_PER_S  # of the wall clock, between two looks


class TrafficSource:
    """Finds operations in the traffic that `recent` keeps; `see` is called by the agent's thread,
    all else by the source's own."""

    name = "traffic"

    def __init__(
        self,
        recent: RecentTraffic,
        every_ns: int,
        segmenting: Segmenting | None = None,
    ) -> None:
        self._recent = recent
        self._round_every_ns = every_ns
        self._round_at_ns = 0
        self._segmenting = segmenting or Segmenting()
        self._lock = threading.Lock()
        self._seen: deque[tuple[int, Batch]] = deque()  # since when, on the monotonic clock
        self._waiting = 0
        self._dropped = 0
        self._open: Sequence[Batch] = ()
        self._raw: list[Batch] = []
        self._crowded = False
        self._offset_ns: int | None = None  # Unix time less CLOCK_MONOTONIC

    @property
    def every_ns(self) -> int:
        """Raw epochs are wanted in pieces, as long as there are any."""
        return _LOOK_NS if self._recent.bytes else max(_LOOK_NS, self._round_every_ns)

    # --------------------------------------------------------- the agent's thread

    @property
    def is_watching(self) -> bool:
        """Whether there is traffic to find operations in."""
        return self._recent.bytes > 0

    def see(self, batches: Sequence[Batch]) -> None:
        """Rows of other sources, on their way into the store. Those of the last minute wait until
        somebody measures traffic; then all of them wait for the next round."""
        if not self._recent.is_expected:
            return
        mine = [batch for batch in batches if batch.table in READ]
        now_ns = time.monotonic_ns()
        with self._lock:
            self._seen += [(now_ns, batch) for batch in mine]
            self._waiting += sum(batch.rows for batch in mine)
            most = _MOST_WAITING if self._recent.bytes else _MOST_IDLE
            while self._waiting > most:
                gone = self._forget_oldest()
                if self._recent.bytes:  # nothing is lost where nobody looks
                    self._dropped += gone
            while not self._recent.bytes and self._seen and self._seen[0][0] < now_ns - KEEP_NS:
                self._forget_oldest()

    def _forget_oldest(self) -> int:
        _, gone = self._seen.popleft()
        self._waiting -= gone.rows
        return gone.rows

    # ------------------------------------------------------------- its own thread

    def collect(self, now: Instant) -> Collected:
        """Rows of operations whose traffic is over, and raw epochs that are wanted."""
        self._see_clock(now)
        self._raw += self._recent.wanted(now.realtime_ns)
        batches, self._raw = self._raw[:1], self._raw[1:]
        if now.monotonic_ns >= self._round_at_ns:
            self._round_at_ns = now.monotonic_ns + self._round_every_ns
            batches += self._round(now)
        return Collected(batches, self._dropped, notes=self._notes())

    def current_state(self, now: Instant) -> Sequence[Batch]:  # noqa: ARG002
        """What each operation that is not over has sent so far."""
        return self._open

    def close(self) -> None:
        self._segmenting.close()

    def _notes(self) -> tuple[str, ...]:
        if not self._recent.bytes:
            return (
                ("no source measures what queue pairs send",)
                if self._recent.is_expected
                else ("no RDMA device: what operations send is not searched for",)
            )
        many = "too much traffic to search at once: the traffic of some operations is missing"
        return (many,) if self._crowded else ()

    def _see_clock(self, now: Instant) -> None:
        """Begin anew where the wall clock was stepped: operations and epochs of two times would
        never meet."""
        offset_ns, self._offset_ns = self._offset_ns, now.offset_ns
        if offset_ns is None or abs(now.offset_ns - offset_ns) < _STEP_NS:
            return
        self._recent.clock_was_set(now.offset_ns - offset_ns)
        self._segmenting.begin_anew()
        self._open = ()
        with self._lock:
            self._seen, self._waiting = deque(), 0

    def _round(self, now: Instant) -> list[Batch]:
        if not self._recent.bytes and self._segmenting.is_at_rest:
            return []  # nothing is measured, and nothing is left of what was
        with self._lock:
            seen, self._seen, self._waiting = [batch for _, batch in self._seen], deque(), 0
        found = self._segmenting.advance(seen, self._recent, now.realtime_ns)
        self._open = (found.open,) if found.open.rows else ()
        self._crowded = found.is_crowded
        if found.late_since_ns is not None:
            self._recent.trigger(now.realtime_ns, found.late_since_ns)
        return [found.over] if found.over.rows else []


@source("traffic", every="2 s")
def traffic(surroundings: Surroundings, options: TrafficOptions) -> Source:
    """What each operation sent, found in the epochs of other sources."""
    recent = surroundings.shared(recent_traffic)
    return SeeingThread(TrafficSource(recent, options.every_ns))
