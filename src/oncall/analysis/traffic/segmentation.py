"""Operations found in traffic: which epochs of a flow belong to which of its operations.

Pulse 5.2, Algorithm 1: an operation is over when at least its expected volume was sent and then
nothing for a while. The expected volume is a lower bound (headers, synchronisation and
retransmissions are added), and most operations are separated by pauses, so errors do not add up.
Beyond the paper: operations that follow one another without a pause are cut where the volume of the
first was reached, each operation has its own volume, and all flows are cut at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oncall.evidence import decides

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Truths = NDArray[np.bool_]

NONE = -1


@dataclass(frozen=True)
class Thresholds:
    """Where traffic is cut into operations."""

    gap_ns: int = decides(
        "1 ms",
        "a pause that ends an operation once its volume is there: O(ms), while pauses within are "
        "of microseconds (Pulse 5.2)",
    )
    next_share: float = decides(
        "50 %", "of the next one's volume: an operation that would hold it is cut by volume"
    )
    undercounted: float = decides(
        "90 %", "of the volume, in a lane in which events were lost: the pause then decides"
    )
    data_part: float = decides(
        0.0625, "of what an operation's epochs carry on average: less announces free buffers"
    )


@dataclass(frozen=True)
class Traffic:
    """Epochs with bytes of many flows, ordered by flow, then by start: arrays of one length n.

    Flows are numbered from 0; every flow has the same epoch length, ns.
    """

    flow: Ints
    start_ns: Ints
    bytes: Ints
    epoch_ns: int

    @property
    def flows(self) -> int:
        return int(self.flow[-1]) + 1 if len(self.flow) else 0


@dataclass(frozen=True)
class Segments:
    """The epochs of each operation; arrays (m,).

    The first and the last epoch, NONE if none was left for it; whether its volume was reached;
    whether it was cut by volume alone, because no pause followed. In that case the last epoch is
    shared: `passed_on` are its bytes that belong to the next operation.
    """

    first: Ints
    last: Ints
    complete: Truths
    cut: Truths
    passed_on: Ints


def segment(
    traffic: Traffic,
    operation_flow: Ints,
    expected_bytes: Ints,
    gap_ns: int,
    next_share: float | Floats = Thresholds.next_share,
    enough_bytes: Ints | None = None,
) -> Segments:
    """The epochs of each operation, in the order in which its flow carries them.

    operation_flow (m,): the flow of each operation, in non-decreasing order; expected_bytes (m,):
    more than zero. A pause is at least `gap_ns` between the starts of two epochs. Where an
    operation would hold `next_share`, of all or of each (m,), of the next one's volume too, it is
    cut by volume; infinity leaves Algorithm 1 as it is printed. The last operation that began
    takes what is left.
    enough_bytes (m,): what completes an operation before a pause, where some of it was not counted.
    """
    enough = expected_bytes if enough_bytes is None else enough_bytes
    m = len(operation_flow)
    least_spare = np.asarray(next_share) * np.append(expected_bytes[1:], 1)[:m]
    first = np.full(m, NONE, dtype=np.int64)
    last = np.full(m, NONE, dtype=np.int64)
    complete, cut = np.zeros(m, dtype=bool), np.zeros(m, dtype=bool)
    passed_on = np.zeros(m, dtype=np.int64)
    if not len(traffic.flow) or not m:
        return Segments(first, last, complete, cut, passed_on)

    flows = max(traffic.flows, int(operation_flow[-1]) + 1)
    bounds = np.searchsorted(traffic.flow, np.arange(flows + 1))
    sent = np.concatenate([[0], np.cumsum(traffic.bytes)])  # before epoch i, over all flows
    pauses = _before_pauses(traffic.start_ns, bounds, gap_ns)
    own = np.searchsorted(operation_flow, np.arange(flows + 1))  # where each flow's begin

    begin, end = bounds[:-1].copy(), bounds[1:]
    owed = np.zeros(flows, dtype=np.int64)  # sent already, in the epoch before `begin`
    for number in range(int(np.diff(own).max())):
        operation = own[:-1] + number
        left = np.flatnonzero((operation < own[1:]) & (begin < end))
        if not len(left):
            break
        at, begun, stop = operation[left], begin[left], end[left]
        due = np.maximum(expected_bytes[at] - owed[left], 0)
        reached = _reached(sent, begun, np.maximum(enough[at] - owed[left], 0))
        done = reached < stop
        reached = np.minimum(reached, stop - 1)
        until = np.where(done, pauses[np.searchsorted(pauses, reached)], stop - 1)
        has_next = (at + 1 < own[left + 1]) & done & (until > reached)
        spare = sent[until + 1] - sent[begun] - due
        too_much = has_next & (spare >= least_spare[at])
        until = np.where(too_much, _reached(sent, begun, due), until)
        first[at], last[at], complete[at], cut[at] = begun, until, done, too_much
        owed[left] = np.where(too_much, sent[until + 1] - sent[begun] - due, 0)
        passed_on[at] = owed[left]
        begin[left] = until + 1
    return Segments(first, last, complete, cut, passed_on)


def _reached(sent: Ints, begun: Ints, due: Ints) -> Ints:
    """The epoch in which so much was sent, counted from the beginning of epoch `begun`."""
    found: Ints = np.searchsorted(sent, sent[begun] + due, side="left") - 1
    return np.maximum(found, begun)


def _before_pauses(start_ns: Ints, bounds: Ints, gap_ns: int) -> Ints:
    """The epochs that a pause follows, or the end of their flow, in order."""
    pause = np.empty(len(start_ns), dtype=bool)
    np.greater_equal(np.diff(start_ns), gap_ns, out=pause[:-1])
    pause[bounds[1:][np.diff(bounds) > 0] - 1] = True
    return np.flatnonzero(pause)


@dataclass(frozen=True)
class Measured:
    """What each operation's epochs amount to (m,): Pulse 6.2. Zero without epochs; times in ns.

    `active_ns` is the actual communication time, the epochs that carried data: pauses in which a
    rank only waited for others do not count, nor epochs of nothing but synchronisation."""

    start_ns: Ints
    end_ns: Ints
    active_ns: Ints
    bytes: Ints


def epochs_of(segments: Segments) -> tuple[Ints, Ints]:
    """The operation (k,) of each epoch that belongs to one, and the epoch (k,)."""
    there = np.flatnonzero(segments.first >= 0)
    first, lengths = segments.first[there], (segments.last - segments.first + 1)[there]
    begins = np.cumsum(lengths) - lengths
    epoch = np.arange(int(lengths.sum())) + np.repeat(first - begins, lengths)
    return np.repeat(there, lengths), epoch


def carries_data(
    traffic: Traffic, segments: Segments, part: float = Thresholds.data_part
) -> Truths:
    """Whether each epoch (n,) carries data of its operation: at least a part of what the epochs
    of that operation carry on average. The rest are messages that announce free buffers."""
    operation, epoch = epochs_of(segments)
    m = len(segments.first)
    mean = np.bincount(operation, traffic.bytes[epoch], m) / np.maximum(
        np.bincount(operation, minlength=m), 1
    )
    data = np.zeros(len(traffic.bytes), dtype=bool)
    data[epoch] = traffic.bytes[epoch] >= part * mean[operation]
    return data


def measure(
    traffic: Traffic, segments: Segments, data_part: float = Thresholds.data_part
) -> Measured:
    """Start, end, actual communication time and volume of each operation."""
    there = segments.first >= 0
    first, last = segments.first[there], segments.last[there]
    sent = np.concatenate([[0], np.cumsum(traffic.bytes)])
    data = carries_data(traffic, segments, data_part)
    active = np.concatenate([[0], np.cumsum(data)])
    with_data = np.flatnonzero(data)
    begins = with_data[np.searchsorted(with_data, first)]
    ends = with_data[np.searchsorted(with_data, last, side="right") - 1]
    # What an operation passes on belongs to the one that follows it, in the same flow.
    shared = np.append(0, segments.passed_on[:-1]) - segments.passed_on

    def whole(values: NDArray[Any]) -> Ints:
        all_of_them = np.zeros(len(there), dtype=np.int64)
        all_of_them[there] = values
        return all_of_them

    return Measured(
        start_ns=whole(traffic.start_ns[begins]),
        end_ns=whole(traffic.start_ns[ends] + traffic.epoch_ns),
        active_ns=whole((active[last + 1] - active[first]) * traffic.epoch_ns),
        bytes=whole(sent[last + 1] - sent[first] + shared[there]),
    )
