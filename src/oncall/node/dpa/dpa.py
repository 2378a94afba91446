"""Source `dpa`: what every queue pair sent in each 32 us, measured on the NIC itself (Pulse 4).

A poller (dpa/poller.c) runs for each NIC that is configured; without one, there is nothing to see,
and that is said. Epochs stay in memory (recent_traffic.py), where operations are found in them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oncall.core.errors import BadInput
from oncall.core.units import NS_PER_S
from oncall.evidence.columns import Words
from oncall.node.common.declaration import Polled, Surroundings, source
from oncall.node.common.options import option
from oncall.node.common.source import Collected, Instant, Source
from oncall.node.dpa.dpa_pages import CLIPPED, UNDERCOUNT, Batches, Page
from oncall.node.dpa.dpa_poller import PAUSES_S, Poller
from oncall.node.rdma.rdma_netlink import NoRdma, QueuePair, queue_pairs
from oncall.node.store.batch import Batch
from oncall.node.traffic.epochs import Epochs
from oncall.node.traffic.recent_traffic import Flow, RecentTraffic, epoch_rows, recent_traffic

# Which RDMA device a PCI function of a NIC is: queue pair numbers are unique only within one.

AskQueuePairs = Callable[[], Sequence[QueuePair]]


class NicFunctions:
    """Functions are reported by number (vhca). As long as one alone is seen, it is the device that
    was asked; else the one on which the kernel lists most of its queue pairs."""

    def __init__(self, nic: str, ask: AskQueuePairs) -> None:
        self._nic = nic
        self._ask = ask
        self._seen: set[int] = set()
        self._known: dict[int, str] = {}

    @property
    def problems(self) -> tuple[str, ...]:
        unknown = sorted(self._seen - self._known.keys()) if len(self._seen) > 1 else ()
        if not unknown:
            return ()
        listed = ", ".join(map(str, unknown))
        return (f"{self._nic}: the RDMA device of its function {listed} is unknown",)

    def names(self, vhca: NDArray[Any], qpn: NDArray[Any]) -> Words:
        """The device of each flow (n,); NULL where it is not known."""
        present, position = np.unique(vhca, return_inverse=True)
        self._seen.update(present.tolist())
        if len(self._seen) == 1:
            return Words(np.zeros(len(vhca), dtype=np.int32), [self._nic])
        if self._seen - self._known.keys():
            self._learn(vhca, qpn)
        devices = sorted(set(self._known.values()))
        codes = [devices.index(self._known[f]) if f in self._known else -1 for f in present]
        return Words(np.array(codes, dtype=np.int32)[position], devices)

    def _learn(self, vhca: NDArray[Any], qpn: NDArray[Any]) -> None:
        try:
            pairs = self._ask()
        except (NoRdma, BadInput, OSError):
            return
        by_device: dict[str, set[int]] = {}
        for pair in pairs:
            by_device.setdefault(pair.device, set()).add(pair.number)
        for function in self._seen - self._known.keys():
            numbers = set(qpn[vhca == function].tolist())
            listed = sorted((len(numbers & held), device) for device, held in by_device.items())
            best, second = ([(0, ""), (0, ""), *listed])[:-3:-1]
            if best[0] > second[0]:
                self._known[function] = best[1]


# A NIC's own clock against Unix time, by what it says of itself in each answer.
#
# The NIC tells a time that has surely come, some microseconds to a second old; the answer came
# before `after_ns`. So `after_ns - now_ns` is never less than the true offset, and the least of
# several answers is nearest to it.

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


_MOST_BATCHES = 8192  # of a poll and NIC: at most 262,144 rows


@dataclass(frozen=True)
class DpaOptions(Polled):
    """Options of source `dpa`."""

    every_ns: int = option("duration", "how often to read from NICs what their queue pairs sent")
    poller: str = option(
        "name", "the program that reads them, built from dpa/; empty: none", default=""
    )
    nics: tuple[str, ...] = option(
        "nodes",
        'the RDMA devices to start it for, "mlx5_[0-7]" or a list; none: no epochs',
        default=(),
    )
    all_epochs: bool = option("truth", "whether every epoch of them is stored", default=False)


class DpaSource(Source):
    """Epochs of the NICs `nics`, each with a poller of its own."""

    name = "dpa"

    def __init__(
        self,
        program: Path | None,
        nics: Sequence[str],
        node: str,
        recent: RecentTraffic,
        every_ns: int = NS_PER_S,
        all_epochs: bool = False,
        pauses_s: Sequence[float] = PAUSES_S,
    ) -> None:
        """`program`: the poller, None where there is none; `all_epochs`: whether each is stored;
        `pauses_s`: before it is started again after so many failures."""
        self._recent = recent
        self._all_epochs = all_epochs
        every_ms = every_ns // 1_000_000
        self._nics = [
            _Nic(Poller(program, nic, every_ms, pauses_s), node) for nic in nics if program
        ]
        self._why_not: tuple[str, ...] = ()
        if not self._nics:
            what = "`nics` in [dpa] is not set" if program else "`poller` in [dpa] is not set"
            self._why_not = (f"no NIC measures its queue pairs: {what}",)

    def collect(self, now: Instant) -> Collected:
        collected = [
            batch for nic in self._nics for batch in nic.collect(self._recent, now.realtime_ns)
        ]
        batches = collected if self._all_epochs else []
        problems = tuple(problem for nic in self._nics for problem in nic.problems)
        notes = tuple(note for nic in self._nics for note in nic.notes)
        dropped = sum(nic.dropped for nic in self._nics)
        return Collected(batches, dropped, problems, notes=(*self._why_not, *notes))

    def close(self) -> None:
        for nic in self._nics:
            nic.poller.close()


class _Nic:
    """One NIC: its poller, its clock, and what has come of a poll that is not over."""

    def __init__(self, poller: Poller, node: str) -> None:
        self.poller = poller
        self._node = node
        self._clock = NicClock()
        self._functions = NicFunctions(poller.nic, queue_pairs)
        self._unfinished: list[Batches] = []
        self._boot = 0
        self._lost_before = self._lost = 0  # in its earlier lives, and in this one
        self._left_out = 0  # batches that were too many to store
        self._problem = ""
        self.notes: tuple[str, ...] = ()

    @property
    def dropped(self) -> int:
        """Events, counts and batches known to be lost, ever."""
        return self._lost_before + self._lost + self._left_out

    @property
    def problems(self) -> tuple[str, ...]:
        own = (f"{self.poller.nic}: {self._problem}",) if self._problem else ()
        return (*own, *self._functions.problems)

    def collect(self, recent: RecentTraffic, now_ns: int) -> list[Batch]:
        """Have the epochs of the polls that are over remembered; returns their rows."""
        taken = self.poller.take()
        self._problem = taken.problem
        rows = []
        for page, after_ns in taken.pages:
            self._account(page)
            if page.now_ns:
                self._clock.answered(page.now_ns, after_ns)
            self._unfinished.append(page.batches)
            if not page.more:
                batches, self._unfinished = np.concatenate(self._unfinished), []
                kept = first_of(batches, _MOST_BATCHES)
                self._left_out += len(batches) - len(kept)
                if len(kept):
                    rows.append(self._remember(kept, page, recent, now_ns))
        return rows

    def _account(self, page: Page) -> None:
        if page.boot != self._boot:
            self._boot = page.boot
            self._lost_before += self._lost
            self._clock = NicClock()
            self._unfinished = []
        self._lost = page.lost
        estimated = "the bytes of some long bursts are estimated from their packet counts"
        self.notes = (f"{self.poller.nic}: {estimated}",) if page.estimated else ()

    def _remember(self, batches: Batches, page: Page, recent: RecentTraffic, now_ns: int) -> Batch:
        epochs = merge(batches)
        # On the grid that all sources share: at most half an epoch from where it was.
        shift = round(self._clock.offset_ns / page.epoch_ns)
        pairs, place = np.unique(epochs[["vhca", "qpn"]], return_inverse=True)
        names = self._functions.names(pairs["vhca"], pairs["qpn"])
        flows = [
            Flow("dpa", self._node, names.vocabulary[code] if code >= 0 else None, qpn)
            for code, qpn in zip(names.codes.tolist(), pairs["qpn"].tolist(), strict=True)
        ]
        sent = Epochs(
            flow=place,
            epoch=epochs["epoch"].astype(np.int64) + shift,
            bytes=epochs["units"].astype(np.int64) * page.unit_bytes,
        )
        lossy = (epochs["flags"] & (UNDERCOUNT | CLIPPED)) != 0
        recent.add(flows, sent, now_ns, page.epoch_ns, lossy)
        return epoch_rows(flows, sent, page.epoch_ns, lossy)


_EPOCH = np.dtype(
    [("vhca", "<u2"), ("qpn", "<u4"), ("epoch", "<u8"), ("units", "<u4"), ("flags", "<u2")]
)


def first_of(batches: Batches, most: int) -> Batches:
    """All epochs, or if there are more than `most`, the earliest ones, marked as undercount: then
    every queue pair lacks the same span."""
    if len(batches) <= most:
        return batches
    epochs = batches["first_epoch"]
    kept: Batches = batches[epochs < np.partition(epochs, most)[most]]
    kept["flags"] |= UNDERCOUNT
    return kept


def merge(batches: Batches) -> NDArray[np.void]:
    """The epochs with bytes in BATCH (n,), as (vhca, qpn, epoch, units, flags) (m,), ordered by
    these: what several of the NIC's threads counted of one flow is added up."""
    at, position = np.nonzero(batches["units"])
    epochs = np.empty(len(at), _EPOCH)
    for name in ("vhca", "qpn", "flags"):
        epochs[name] = batches[name][at]
    epochs["epoch"] = batches["first_epoch"][at] + position.astype(np.uint64)
    epochs["units"] = batches["units"][at, position]
    epochs = epochs[np.lexsort((epochs["epoch"], epochs["qpn"], epochs["vhca"]))]
    keys = epochs[["vhca", "qpn", "epoch"]]
    starts = np.flatnonzero(np.append(True, keys[1:] != keys[:-1])) if len(epochs) else at
    merged = epochs[starts]
    if len(merged) < len(epochs):
        merged["units"] = np.add.reduceat(epochs["units"], starts)
        merged["flags"] = np.bitwise_or.reduceat(epochs["flags"], starts)
    return merged


@source("dpa", every="1 s")
def dpa(surroundings: Surroundings, options: DpaOptions) -> Source:
    """What queue pairs sent, measured on BlueField-3 NICs."""
    return DpaSource(
        Path(options.poller) if options.poller else None,
        options.nics,
        surroundings.node,
        surroundings.shared(recent_traffic),
        options.every_ns,
        options.all_epochs,
    )
