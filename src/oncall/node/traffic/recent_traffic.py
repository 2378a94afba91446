"""The newest epochs of all queue pairs of this node, in memory: for what may be asked of them soon.

Sources add what each flow sent, from threads of their own. The source `traffic` finds operations in
it (operation_traffic.py). Raw epochs go to the store only around a moment that is worth it: a
trigger, or a request. A minute is kept, in at most `most_bytes`; beyond that the oldest go first.
An epoch takes 12 bytes, and only epochs with bytes are kept.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oncall.core.units import NS_PER_S
from oncall.evidence.columns import Words
from oncall.node.common.declaration import Polled, Surroundings
from oncall.node.common.options import option
from oncall.node.store.batch import Batch
from oncall.node.traffic.epochs import EPOCH_NS, Epochs

Ints = NDArray[np.int64]
Truths = NDArray[np.bool_]

KEEP_NS = 60 * NS_PER_S
BEFORE_NS, AFTER_NS = 2 * NS_PER_S, NS_PER_S // 2  # of raw epochs, around what a trigger reports
REST_NS = 60 * NS_PER_S  # between two triggers
MOST_RAW = 200_000  # rows for one trigger, the newest
MEASURED_NS = 10 * NS_PER_S
ROWS_AT_ONCE = 5_000  # of raw epochs
_MOST_FLOWS = 1 << 16  # known at once; beyond that those without epochs are forgotten
_MOST_BYTES = 2**32 - 1  # in an epoch: more than any port can send in it
_ROW = np.dtype([("flow", "<u4"), ("since", "<u4"), ("bytes", "<u4")])
_LOSSY = np.uint32(1 << 31)  # in `flow`: events were lost


@dataclass(frozen=True)
class Flow:
    """Whose epochs: what their source knows of it, as the columns of `epochs`."""

    source: str
    node: str
    nic: str | None = None
    qpn: int | None = None
    job: str | None = None
    rank: int | None = None
    comm: int | None = None
    peer: int | None = None
    channel: int | None = None
    comm_peer: int | None = None


_STRINGS = ("source", "node", "nic", "job")


@dataclass(frozen=True)
class _Piece:
    """Epochs that came together, in epochs of one length since `base`."""

    rows: NDArray[Any]  # of _ROW
    base: int
    epoch_ns: int
    last_ns: int  # when its last epoch ends


class RecentTraffic:
    """Bounded memory of epochs, for many threads. `forgotten` counts epochs that had to go before
    their minute was over, all are there from `whole_since_ns` on."""

    def __init__(
        self,
        most_bytes: int,
        keep_ns: int = KEEP_NS,
        whole_since_ns: int = 0,
        *,
        is_expected: bool = True,
    ) -> None:
        """`is_expected`: whether the node has RDMA, so that something may come."""
        self._is_expected = is_expected
        self.forgotten = 0
        self.whole_since_ns = whole_since_ns
        self._most_rows = most_bytes // _ROW.itemsize
        self._keep_ns = keep_ns
        self._pieces: list[_Piece] = []
        self._rows = 0
        self._flows: dict[Flow, int] = {}
        self._next = 0
        self._measured_ns = 0  # when a source nearer to the wire than proxies last reported
        self._trigger_ns: int | None = None
        self._wanted: tuple[int, int] | None = None  # from when to when raw epochs are
        self._lock = threading.Lock()

    def wants_proxies(self, now_ns: int) -> bool:
        """Whether reports of proxies are needed: on a node with RDMA of which neither the NIC nor
        posts report the traffic."""
        return self._is_expected and now_ns - self._measured_ns >= MEASURED_NS

    @property
    def is_expected(self) -> bool:
        """Whether something is there, or may come."""
        return self._is_expected or self._rows > 0

    @property
    def bytes(self) -> int:
        """Memory that epochs take now."""
        return self._rows * _ROW.itemsize

    def add(
        self,
        flows: Sequence[Flow],
        epochs: Epochs,
        now_ns: int,
        epoch_ns: int = EPOCH_NS,
        undercount: Truths | bool = False,
    ) -> None:
        """Keep these (n,) too, and forget what is too old or too much; `epochs.flow` are places
        in `flows`."""
        with self._lock:
            if flows and flows[0].source != "proxy":
                self._measured_ns = max(self._measured_ns, now_ns)
            if len(epochs.flow):
                base = int(epochs.epoch.min())
                rows = np.empty(len(epochs.flow), _ROW)
                number = self._numbers(flows)[epochs.flow].astype(np.uint32)
                rows["flow"] = number | np.where(undercount, _LOSSY, np.uint32(0))
                rows["since"] = np.minimum(epochs.epoch - base, _MOST_BYTES)
                rows["bytes"] = np.minimum(epochs.bytes, _MOST_BYTES)
                last_ns = (int(epochs.epoch.max()) + 1) * epoch_ns
                self._pieces.append(_Piece(rows, base, epoch_ns, last_ns))
                self._rows += len(rows)
            self._forget(now_ns)

    def _numbers(self, flows: Sequence[Flow]) -> Ints:
        """The number of each flow (n,)."""
        if len(self._flows) > _MOST_FLOWS:
            self._forget_flows()
        for flow in flows:
            if flow not in self._flows:
                self._flows[flow] = self._next
                self._next += 1
        return np.array([self._flows[flow] for flow in flows], np.int64)

    def between(
        self,
        first_ns: int,
        last_ns: int,
        most_rows: int | None = None,
        together: Mapping[Flow, Flow] | None = None,
    ) -> Batch:
        """Rows of `epochs` that begin in that time; of too many the newest. Flows that another one
        stands for (`together`) are added up with it."""
        with self._lock:
            pieces, flows = list(self._pieces), {n: flow for flow, n in self._flows.items()}
        stands_for = self._stand_ins(together or {})
        parts: list[tuple[Any, ...]] = []
        rows_so_far = 0
        for piece in reversed(pieces):
            start_ns = (piece.rows["since"].astype(np.int64) + piece.base) * piece.epoch_ns
            inside = (start_ns >= first_ns) & (start_ns <= last_ns)
            if not inside.any():
                continue
            rows = piece.rows[inside]
            number, lossy = (rows["flow"] & ~_LOSSY).astype(np.int64), rows["flow"] >= _LOSSY
            part = (number, start_ns[inside], rows["bytes"].astype(np.int64), lossy)
            if len(stands_for):
                part = _added_up(stands_for[number], *part[1:])
            parts.append((*part, np.full(len(part[0]), piece.epoch_ns, np.int64)))
            rows_so_far += len(part[0])
            if most_rows and rows_so_far >= most_rows:
                break
        if not parts:
            return Batch("epochs", 0, {})
        number, start_ns, bytes_, lossy, epoch_ns = (
            np.concatenate(each)[:most_rows] for each in zip(*parts, strict=True)
        )
        numbers, place = np.unique(number, return_inverse=True)
        of = [flows[each] for each in numbers.tolist()]
        return _batch(of, place, start_ns, epoch_ns, bytes_, lossy)

    def _stand_ins(self, together: Mapping[Flow, Flow]) -> Ints:
        """The number that stands for each flow's number; empty if each stands for itself."""
        with self._lock:
            pairs = [
                (self._flows[flow], self._flows[other])
                for flow, other in together.items()
                if flow in self._flows and other in self._flows
            ]
            numbers = np.arange(self._next)
        if not pairs:
            return numbers[:0]
        own, other = np.array(pairs, np.int64).T
        numbers[own] = other
        return numbers

    def clock_was_set(self, by_ns: int) -> None:
        """Forget the epochs, which are of another time now, and let what was lately be so still."""
        with self._lock:
            self._pieces, self._rows, self._wanted = [], 0, None
            self.whole_since_ns += by_ns
            self._measured_ns += by_ns
            if self._trigger_ns is not None:
                self._trigger_ns += by_ns

    # ------------------------------------------------------------- raw epochs

    def trigger(self, now_ns: int, since_ns: int) -> None:
        """Raw epochs since then are wanted in the store, and a little before and after, if there
        was no trigger lately."""
        with self._lock:
            if self._trigger_ns is None or now_ns - self._trigger_ns > REST_NS:
                self._trigger_ns = now_ns
                self._wanted = (since_ns - BEFORE_NS, now_ns + AFTER_NS)

    def wanted(self, now_ns: int) -> list[Batch]:
        """What a trigger asked for, once it is there, in batches to be handed over one by one;
        reported once."""
        with self._lock:
            if self._wanted is None or now_ns < self._wanted[1]:
                return []
            (first_ns, last_ns), self._wanted = self._wanted, None
        return in_parts(self.between(first_ns, last_ns, MOST_RAW))

    # ------------------------------------------------------------- forgetting

    def _forget(self, now_ns: int) -> None:
        while self._pieces and self._pieces[0].last_ns < now_ns - self._keep_ns:
            self._drop_oldest()
        while self._rows > self._most_rows:
            self.forgotten += len(self._pieces[0].rows)
            self._drop_oldest()

    def _drop_oldest(self) -> None:
        gone = self._pieces.pop(0)
        self._rows -= len(gone.rows)
        self.whole_since_ns = max(self.whole_since_ns, gone.last_ns)

    def _forget_flows(self) -> None:
        alive = [np.unique(piece.rows["flow"] & ~_LOSSY) for piece in self._pieces]
        kept = set(np.concatenate(alive).tolist()) if alive else set()
        self._flows = {flow: number for flow, number in self._flows.items() if number in kept}


def epoch_rows(
    flows: Sequence[Flow],
    epochs: Epochs,
    epoch_ns: int = EPOCH_NS,
    undercount: Truths | bool = False,
) -> Batch:
    """Rows of epochs as they come; `epochs.flow` are places in `flows`."""
    rows = len(epochs.flow)
    lossy = np.broadcast_to(np.asarray(undercount), rows)
    length = np.full(rows, epoch_ns, np.int64)
    return _batch(flows, epochs.flow, epochs.epoch * epoch_ns, length, epochs.bytes, lossy)


def _batch(
    flows: Sequence[Flow], place: Ints, start_ns: Ints, epoch_ns: Ints, bytes_: Ints, lossy: Truths
) -> Batch:
    columns: dict[str, Any] = {
        "start_ns": start_ns,
        "epoch_ns": epoch_ns,
        "bytes": bytes_,
        "undercount": lossy,
    }
    for each in fields(Flow) if flows else ():
        values = [getattr(flow, each.name) for flow in flows]
        if each.name in _STRINGS:
            words = [word for word in dict.fromkeys(values) if word is not None]
            codes = [-1 if word is None else words.index(word) for word in values]
            columns[each.name] = Words(np.array(codes, np.int32)[place], words)
        elif any(value is not None for value in values):
            dtype = np.uint64 if each.name == "comm" else np.int64
            array = np.array([value or 0 for value in values], dtype)
            mask = np.array([value is None for value in values])
            columns[each.name] = np.ma.MaskedArray(array[place], mask=mask[place])
    return Batch("epochs", len(place), columns)


def _added_up(
    flow: Ints, start_ns: Ints, bytes_: Ints, lossy: Truths
) -> tuple[Ints, Ints, Ints, Truths]:
    """One row for each flow and start, their bytes added up."""
    order = np.lexsort((start_ns, flow))
    flow, start_ns = flow[order], start_ns[order]
    at = np.flatnonzero(
        (np.diff(flow, prepend=flow[:1] - 1) != 0) | (np.diff(start_ns, prepend=-1) != 0)
    )
    return (
        flow[at],
        start_ns[at],
        np.add.reduceat(bytes_[order], at),
        np.logical_or.reduceat(lossy[order], at),
    )


def in_parts(batch: Batch, rows: int = ROWS_AT_ONCE) -> list[Batch]:
    """A batch of columns that are arrays or words, in batches of at most `rows`."""

    def part(column: Any, first: int) -> Any:
        if isinstance(column, Words):
            return Words(column.codes[first : first + rows], column.vocabulary)
        return column[first : first + rows]

    return [
        Batch(
            batch.table,
            min(rows, batch.rows - first),
            {name: part(column, first) for name, column in batch.columns.items()},
        )
        for first in range(0, batch.rows, rows)
    ]


@dataclass(frozen=True)
class TrafficOptions(Polled):
    """Options of source `traffic`."""

    every_ns: int = option("duration", "how often operations are searched for in the traffic")
    memory_bytes: int = option(
        "bytes",
        "memory for the last minute's epochs, of all queue pairs; the oldest go first",
        default=48 * 2**20,
    )


def recent_traffic(surroundings: Surroundings) -> RecentTraffic:
    """An empty one, as large as it is configured; see `Surroundings.shared`. Without RDMA nothing
    is expected: what proxies send over sockets is searched for nowhere."""
    memory_bytes = surroundings.options.of(TrafficOptions).memory_bytes
    has_rdma = any((surroundings.root / "sys/class/infiniband").glob("*"))
    return RecentTraffic(memory_bytes, whole_since_ns=time.time_ns(), is_expected=has_rdma)
