"""One training process as its verbs file records it: queue pairs, windows of requests, epochs."""

from __future__ import annotations

import ipaddress
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from oncall.core.units import NS_PER_S
from oncall.node.common.source import Instant
from oncall.node.store.batch import Batch
from oncall.node.traffic.epochs import Epochs, spans, spread
from oncall.node.traffic.recent_traffic import Flow, RecentTraffic, epoch_rows, in_parts
from oncall.node.verbs.full_queues import FullQueues, LinkRate, queues_of
from oncall.node.verbs.verbs_file import QUEUE_PAIR, QueuePairState, VerbsReader
from oncall.node.verbs.windows import Runs, Windows, representative, windows

Ints = NDArray[np.int64]
Rows: TypeAlias = NDArray[np.void]

_STATES: dict[int, str] = {
    QueuePairState.READY: "rts",
    QueuePairState.ERROR: "err",
    QueuePairState.DESTROYED: "reset",
}
_RELIABLE = 2  # IBV_QPT_RC: others have no peer, or no completion that shows it
_MOST_BYTES = 1 << 40  # of one run: more is garbage
_BATCHES_AT_ONCE = 2  # of raw epochs, handed over by a reading
_MOST_BATCHES = 40  # that wait to be


@dataclass(frozen=True)
class Limits:
    """When a queue pair is worth a closer look, and how much is kept for it."""

    window: int  # requests
    timeout_ns: int
    all_epochs: bool = False  # store every epoch, and not only those around what is stuck


@dataclass(frozen=True)
class Stuck:
    """A stalled queue pair, as `wr_windows` records it."""

    flow: int
    nic: str
    qpn: int
    peer_gid: str | None
    since_ns: int  # Unix time: when the oldest request was posted
    now_ns: int
    outstanding: int


class VerbsProcess:
    """A verbs file being drained, and what is known of its process so far."""

    end_recorded = True  # its records and boards hold all there is

    def __init__(
        self,
        reader: VerbsReader,
        node: str,
        limits: Limits,
        recent: RecentTraffic,
        link_rate: LinkRate = lambda nic, port: None,  # noqa: ARG005
    ) -> None:
        self.reader = reader
        self.gone_since: Instant | None = None  # when it was first seen dead or closed
        self._recent = recent
        self._limits = limits
        self._node = node
        self._garbage = 0
        self._boards: Rows = np.zeros(0, QUEUE_PAIR)
        self._by_flow: dict[int, tuple[str, int]] = {}  # NIC and number, of every one seen
        self._seen = np.zeros(0, np.uint64)  # the flows in it
        self._reported_states = np.zeros(
            (0, 2), np.uint64
        )  # flow and state of each board, as last reported
        self._every_pair: Batch | None = None  # rows of all of them; None: to be made anew
        self._look_at_ns = 0  # when boards are read again
        self._completed_ns: dict[int, int] = {}  # flow -> its last completion (monotonic)
        self._second: list[Windows] = []
        self._tell_at_ns = 0
        self._full = FullQueues(limits.window, limits.timeout_ns, link_rate)
        self._low: list[NDArray[Any]] = []  # numbers of queue pairs that had few outstanding
        self._boards_read = False  # since `_full` looked at them
        self._high_boards: Rows = self._boards
        self._stuck: set[int] = set()
        self._raw: list[Batch] = []  # epochs, where all are to be stored
        self._unstored = 0  # rows of it that there was no time for

    @property
    def lost(self) -> int:
        """Requests and queue pairs that are known to be lost, ever."""
        reader = self.reader
        lost = reader.dropped + reader.lost_queue_pairs + reader.torn
        return lost + self._garbage + self._unstored

    def collect(self, now: Instant, most: int) -> tuple[list[Batch], list[Stuck]]:
        """Rows of what ended since the last call, and queue pairs that came to be stuck."""
        records = self.reader.drain(most)
        is_known = np.isin(records["number"], self._seen).all()
        if not is_known or now.monotonic_ns >= self._look_at_ns:
            self._look_at_ns = now.monotonic_ns + self._limits.timeout_ns // 2
            self._see_boards()
        records = self._sound(records)
        batches = [self._pairs_batch(self._news())]
        if len(records):
            self._take(records, now)
        batches += self._windows_batches(now)
        stuck = self._newly_stuck(records, now)
        if stuck:
            self._recent.trigger(now.realtime_ns, min(each.since_ns for each in stuck))
        batches += self._raw_batches()
        return [batch for batch in batches if batch.rows], stuck

    def current_state(self, now: Instant) -> list[Batch]:
        """Every queue pair, and those that are stalled."""
        if self._every_pair is None:  # thousands of them, which seldom change
            self._every_pair = self._pairs_batch(self._boards)
        stalled = self._stalled(self._boards, now) if self.gone_since is None else []
        batches = [self._every_pair, self.stuck_batch([(each, None) for each in stalled])]
        return [batch for batch in batches if batch.rows]

    # ------------------------------------------------------------- queue pairs

    def _see_boards(self) -> None:
        self._boards = self.reader.queue_pairs().rows
        self._boards_read = True
        new = self._boards[~np.isin(self._boards["number"], self._seen)]
        for board in new:
            self._by_flow[int(board["number"])] = (_text(board["nic"]), int(board["qpn"]))
        self._seen = np.append(self._seen, new["number"])

    def _news(self) -> Rows:
        """Boards whose state has not been reported."""
        states = np.stack([self._boards["number"], self._boards["state"].astype(np.uint64)], axis=1)
        if np.array_equal(states, self._reported_states):
            return self._boards[:0]
        reported = set(map(tuple, self._reported_states.tolist()))
        self._reported_states = states
        self._every_pair = None
        return self._boards[[tuple(each) not in reported for each in states.tolist()]]

    def _pairs_batch(self, boards: Rows) -> Batch:
        header = self.reader.header
        reliable = boards["type"] == _RELIABLE
        return Batch(
            "qps",
            len(boards),
            {
                "job": header.job or None,
                "node": self._node,
                "nic": [_text(board["nic"]) for board in boards],
                "qpn": [int(board["qpn"]) for board in boards],
                "rank": header.rank,
                "peer_gid": [gid_of(board) for board in boards],
                "peer_qpn": [
                    int(board["peer_qpn"]) if known else None
                    for board, known in zip(boards, reliable, strict=True)
                ],
                "created_ns": [int(board["ready_ns"]) + self._offset_ns for board in boards],
                "pid": self.reader.pid_here or header.pid,
                "state": [_STATES.get(int(board["state"])) for board in boards],
            },
        )

    @property
    def _offset_ns(self) -> int:
        """Unix time less CLOCK_MONOTONIC, of instants that a row must always state alike."""
        return self.reader.header.realtime_offset_ns

    # --------------------------------------------------------------- requests

    def _sound(self, records: Rows) -> Rows:
        """The rows without impossible values."""
        posted, completed = records["posted_ns"], records["completed_ns"]
        # Of now, and not of when the reading began: a busy node may have kept us since.
        sound = (posted > 0) & (posted <= completed) & (completed <= time.monotonic_ns())
        sound &= (records["bytes"] < _MOST_BYTES) & (records["requests"] > 0)
        sound &= np.isin(records["number"], self._seen)
        self._garbage += len(records) - int(sound.sum())
        return records[sound]

    def _take(self, records: Rows, now: Instant) -> None:
        order = np.argsort(records["number"], kind="stable")
        records = records[order]
        flow = records["number"].astype(np.int64)
        posted, completed = records["posted_ns"], records["completed_ns"]
        sent = np.where(records["status"] == 0, records["bytes"], 0).astype(np.int64)
        before = np.array([self._completed_ns.get(each, 0) for each in flow.tolist()], np.int64)
        offset_ns = now.offset_ns
        gone = spans(flow, posted + offset_ns, completed + offset_ns, sent, before + offset_ns)
        epochs = spread(gone)
        self._remember(epochs, now)
        is_first = np.diff(flow, prepend=-1) != 0
        previous = np.where(is_first, before, np.roll(completed, 1))
        found = windows(
            Runs(
                flow=flow,
                begun_ns=np.minimum(np.maximum(posted, previous), completed) + offset_ns,
                completed_ns=completed + offset_ns,
                requests=records["requests"].astype(np.int64),
                bytes=sent,
                outstanding=records["outstanding"].astype(np.int64),
            ),
            self._limits.window,
        )
        self._second.append(found)
        last = np.flatnonzero(np.diff(flow, append=-1) != 0)
        self._completed_ns |= dict(zip(flow[last].tolist(), completed[last].tolist(), strict=True))

    def _windows_batches(self, now: Instant) -> list[Batch]:
        """Once a second, the window to keep of each queue pair."""
        if not self._second or now.monotonic_ns < self._tell_at_ns:
            return []
        self._tell_at_ns = now.monotonic_ns + NS_PER_S
        found = Windows(
            **{
                name: np.concatenate([getattr(each, name) for each in self._second])
                for name in Windows.__annotations__
            }
        )
        self._second = []
        kept = representative(found)
        names = ("start_ns", "end_ns", "posted", "completed", "outstanding", "bytes")
        columns: dict[str, Any] = {name: getattr(found, name)[kept] for name in names}
        return [Batch("wr_windows", len(kept), self._of(found.flow[kept]) | columns)]

    def _of(self, flow: Ints) -> dict[str, Any]:
        """Who sends, for rows of these flows."""
        header = self.reader.header
        pairs = [self._by_flow[each] for each in flow.tolist()]
        return {
            "job": header.job or None,
            "rank": header.rank,
            "node": self._node,
            "nic": [nic for nic, _ in pairs],
            "qpn": [qpn for _, qpn in pairs],
        }

    # --------------------------------------------------- what does not come on

    def _newly_stuck(self, records: Rows, now: Instant) -> list[Stuck]:
        if self.gone_since is not None:
            return []
        stalled = self._stalled(self._boards, now)
        high = self._high(records, now)
        newly = [each for each in (*stalled, *high) if each.flow not in self._stuck]
        self._stuck = {each.flow for each in (*stalled, *high)}
        return list({each.flow: each for each in newly}.values())

    def _stalled(self, boards: Rows, now: Instant) -> list[Stuck]:
        """Queue pairs whose oldest request has been outstanding for longer than the timeout."""
        oldest_ns = boards["oldest_posted_ns"]
        old = (oldest_ns > 0) & (now.monotonic_ns - oldest_ns > self._limits.timeout_ns)
        return self._as_stuck(boards[old], now)

    def _high(self, records: Rows, now: Instant) -> list[Stuck]:
        """Whose outstanding requests did not fall below a window for as long as the timeout,
        while the NIC could have completed more; as of when the boards were read last."""
        self._low.append(records["number"][records["outstanding"] < self._limits.window])
        if self._boards_read:
            queues = queues_of(self._boards, np.concatenate(self._low))
            self._high_boards = self._boards[self._full.look(queues, now.monotonic_ns)]
            self._low, self._boards_read = [], False
        return self._as_stuck(self._high_boards, now)

    def _as_stuck(self, boards: Iterable[Any], now: Instant) -> list[Stuck]:
        return [
            Stuck(
                flow=int(board["number"]),
                nic=_text(board["nic"]),
                qpn=int(board["qpn"]),
                peer_gid=gid_of(board),
                since_ns=int(board["oldest_posted_ns"]) + now.offset_ns,
                now_ns=now.realtime_ns,
                outstanding=outstanding(board),
            )
            for board in boards
            if board["state"] == QueuePairState.READY
            and board["oldest_posted_ns"] > 0
            and is_seen_through(board)
        ]

    def stuck_batch(self, stuck: Sequence[tuple[Stuck, str | None]]) -> Batch:
        """Rows of queue pairs that make no progress, with the result of an empty probe for each."""
        of = self._of(np.array([each.flow for each, _ in stuck], np.int64))
        columns = {
            "start_ns": [each.since_ns for each, _ in stuck],
            "end_ns": [each.now_ns for each, _ in stuck],
            "outstanding": [each.outstanding for each, _ in stuck],
            "oldest_ns": [each.now_ns - each.since_ns for each, _ in stuck],
            "probe": [probe for _, probe in stuck],
        }
        return Batch("wr_windows", len(stuck), of | columns)

    # ----------------------------------------------------------------- epochs

    def _remember(self, epochs: Epochs, now: Instant) -> None:
        header = self.reader.header
        numbers, place = np.unique(epochs.flow, return_inverse=True)
        flows = [
            Flow("wr", self._node, *self._by_flow[number], header.job or None, header.rank)
            for number in numbers.tolist()
        ]
        epochs = replace(epochs, flow=place)
        lossy = self.reader.dropped + self._unstored > 0
        self._recent.add(flows, epochs, now.realtime_ns, undercount=lossy)
        if self._limits.all_epochs:
            self._raw += in_parts(epoch_rows(flows, epochs, undercount=lossy))

    def _raw_batches(self) -> list[Batch]:
        """Epochs on their way into the store."""
        taken, self._raw = self._raw[:_BATCHES_AT_ONCE], self._raw[_BATCHES_AT_ONCE:]
        while len(self._raw) > _MOST_BATCHES:  # the newest are what is asked for
            self._unstored += self._raw.pop(0).rows
        return taken


def outstanding(board: Any) -> int:
    """Requests posted and not known to be over. They change while they are read, so the value is
    clipped at 0."""
    return max(0, int(board["posted"]) - int(board["completed"]))


def is_seen_through(board: Any) -> bool:
    """Whether its completions are seen: more can never be outstanding than fit in its queue."""
    return not board["most_outstanding"] or outstanding(board) <= int(board["most_outstanding"])


def gid_of(board: Any) -> str | None:
    """The peer's GID as the kernel spells it; None if it was not recorded (InfiniBand, UD)."""
    gid = bytes(board["peer_gid"])
    return str(ipaddress.IPv6Address(gid).exploded) if any(gid) else None


def _text(name: bytes) -> str:
    return bytes(name).split(b"\0", 1)[0].decode("utf-8", "replace")
