"""What each rank sent in one operation at any resolution, and who sent how much to whom.

Epochs are spread evenly over their own length, so that bytes are kept whatever the bins: curves of
two resolutions hold the same area. An empty epoch is a rate of zero: the gaps in which a rank waits
are what tells it from one that lags (Pulse 7.2.1). Of experts' all-to-all the map is the routing of
tokens: an uneven column is a busy expert and no fault (Pulse 7.2.4).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from oncall.core.nodeset import fold_ranks
from oncall.core.units import NS_PER_S

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

# The least of these that holds the highest rate is a scale's top: it seldom moves.
_ROUND = (1, 1.5, 2, 3, 4, 5, 6, 8, 10)
# Beside the operation, this part of its length is shown: its start and end are to be seen.
_MARGIN = 0.02


@dataclass(frozen=True)
class Operation:
    """One operation of a communicator. `turn` is its number; of Sends the how many-th call of a
    rank on the communicator."""

    comm: int
    kind: str  # coll or p2p
    turn: int
    op: str
    label: str  # what the communicator is called

    @property
    def title(self) -> str:
        what = f"{self.op} {self.turn}" if self.kind == "coll" else f"{self.op}s, call {self.turn},"
        return f"{what} of {self.label} ({self.comm:#x})"


@dataclass(frozen=True)
class Sender:
    """One member: what it sent, and its epochs (n,), by start; instants on the console's clock.

    `started_ns` is None where nothing was sent, `ended_ns` where it is not over. `recorded`: there
    are epochs of this rank at all, so that an empty one means that nothing was sent.
    """

    rank: int
    node: str
    started_ns: int | None
    ended_ns: int | None
    active_ns: int
    bytes: int
    undercount: bool
    recorded: bool
    epoch_start_ns: Ints
    epoch_bytes: Ints

    @property
    def rate_bytes_per_s(self) -> float:
        """Volume over actual communication time (Pulse 6.2); NaN where nothing was sent."""
        return self.bytes * NS_PER_S / self.active_ns if self.active_ns else math.nan


@dataclass(frozen=True)
class OperationTraffic:
    """An operation with all that send in it, by rank; `blamed` are the ranks at fault."""

    operation: Operation
    senders: tuple[Sender, ...]
    epoch_ns: int
    first_ns: int
    last_ns: int
    blamed: frozenset[int] = frozenset()

    @property
    def over(self) -> bool:
        return all(one.ended_ns is not None for one in self.senders)


@dataclass(frozen=True)
class RateCurves:
    """Rates in bytes a second (ranks, bins), NaN where none were recorded; bin `i` begins at
    `first_ns + i * resolution_ns`. One scale for all, from zero to `top_bytes_per_s`."""

    traffic: OperationTraffic
    first_ns: int
    resolution_ns: int
    rate: Floats
    top_bytes_per_s: float

    def bin_of(self, at_ns: int) -> int:
        """The bin that holds an instant; it may lie outside."""
        return (at_ns - self.first_ns) // self.resolution_ns


def rate_curves(
    traffic: OperationTraffic, most_bins: int, resolution_ns: int | None = None
) -> RateCurves:
    """The curves in at most `most_bins` bins: of `resolution_ns`, else of the least whole number of
    epochs that shows the operation with its margins."""
    length_ns = max(traffic.last_ns - traffic.first_ns, traffic.epoch_ns)
    if resolution_ns is None:
        epochs = math.ceil(length_ns * (1 + 2 * _MARGIN) / (most_bins - 2) / traffic.epoch_ns)
        resolution_ns = epochs * traffic.epoch_ns
    margin_ns = max(round(_MARGIN * length_ns), resolution_ns)
    first_ns = traffic.first_ns - margin_ns
    bins = min(math.ceil((length_ns + 2 * margin_ns) / resolution_ns), most_bins)
    edges = first_ns + np.arange(bins + 1, dtype=np.int64) * resolution_ns
    rate = np.full((len(traffic.senders), bins), np.nan)
    for row, one in enumerate(traffic.senders):
        if one.recorded:
            rate[row] = binned(one.epoch_start_ns, one.epoch_bytes, traffic.epoch_ns, edges)
    rate *= NS_PER_S / resolution_ns
    known = rate[np.isfinite(rate)]
    return RateCurves(traffic, first_ns, resolution_ns, rate, round_up(known.max(initial=0.0)))


def binned(start_ns: Ints, sent_bytes: Ints, epoch_ns: int, edges_ns: Ints) -> Floats:
    """Bytes between consecutive edges (m + 1,) -> (m,), of epochs (n,) ordered by start."""
    origin = int(edges_ns[0])
    start, edges = start_ns - origin, (edges_ns - origin).astype(np.float64)
    whole = np.concatenate([[0.0], np.cumsum(sent_bytes, dtype=np.float64)])
    moment = np.concatenate([[0.0], np.cumsum(sent_bytes * start.astype(np.float64))])
    begun = np.searchsorted(start, edges)
    over = np.searchsorted(start, edges - epoch_ns, side="right")
    # Of epochs that an edge cuts, the part before it.
    cut = (whole[begun] - whole[over]) * edges - (moment[begun] - moment[over])
    sent: Floats = np.diff(whole[over] + cut / epoch_ns)
    return np.maximum(sent, 0.0)


def round_up(value: float) -> float:
    """The least of a few round numbers that holds `value`; 1 for nothing."""
    if not value > 0 or not math.isfinite(value):
        return 1.0
    power = 10.0 ** math.floor(math.log10(value))
    return next(step * power for step in _ROUND if step * power >= value * (1 - 1e-6))


def compact(traffic: OperationTraffic, most: int) -> OperationTraffic:
    """At most `most` senders: the blamed, then those before and after them; by rank still."""
    if len(traffic.senders) <= most:
        return traffic
    ranks = [one.rank for one in traffic.senders]
    blamed = [place for place, rank in enumerate(ranks) if rank in traffic.blamed] or [0]
    near = sorted(range(len(ranks)), key=lambda at: min(abs(at - one) for one in blamed))[:most]
    return replace(traffic, senders=tuple(traffic.senders[place] for place in sorted(near)))


@dataclass(frozen=True)
class TrafficMap:
    """Bytes (ranks, ranks) from row to column; `groups` are the ranks of each row and column.

    `unplaced_bytes` were sent to peers that are not known.
    """

    title: str
    groups: tuple[tuple[int, ...], ...]
    bytes: Ints
    unplaced_bytes: int = 0
    blamed: frozenset[int] = frozenset()

    @property
    def labels(self) -> tuple[str, ...]:
        return tuple(fold_ranks(group) for group in self.groups)

    def is_blamed(self, row: int) -> bool:
        return not self.blamed.isdisjoint(self.groups[row])

    def received(self) -> Ints:
        """(ranks,) what each was sent."""
        total: Ints = self.bytes.sum(axis=0)
        return total


def folded(shown: TrafficMap, most: int) -> TrafficMap:
    """The map with at most `most` rows: neighbouring ranks are put together, as many in each, a
    power of two as of GPUs in a node."""
    if len(shown.groups) <= most:
        return shown
    each = 2 ** math.ceil(math.log2(len(shown.groups) / max(most, 1)))
    begins = np.arange(0, len(shown.groups), each)
    cells = np.add.reduceat(np.add.reduceat(shown.bytes, begins, axis=0), begins, axis=1)
    groups = tuple(
        tuple(rank for group in shown.groups[begin : begin + each] for rank in group)
        for begin in begins.tolist()
    )
    return TrafficMap(shown.title, groups, cells, shown.unplaced_bytes, shown.blamed)
