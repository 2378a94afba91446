"""Work requests as bytes an epoch: when what was posted went out, as near as a host can know.

A queue pair works through its requests in order (InfiniBand specification, 10.8.6), so what a
request carries goes out after the completion of the one before it and before its own; with none
before it, after it was posted. Its bytes are spread evenly over that time. Completions come later
than the last byte, by a round trip and by how often they are polled: an epoch can be wrong by
that, sums are exact.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]

EPOCH_NS = 32_000  # Pulse 4: fine enough for operations, coarse enough to keep
# After a stall longer than these, what is lost is sent again: it goes out at the end.
_MOST_EPOCHS = 4096


@dataclass(frozen=True)
class Sent:
    """Spans in which a flow sent something: arrays (n,), of one flow in order of completion."""

    flow: Ints
    begun_ns: Ints
    ended_ns: Ints
    bytes: Ints


@dataclass(frozen=True)
class Epochs:
    """Bytes a flow sent in an epoch: arrays (n,), by flow, then by epoch, each once. Epoch k is
    from k to k + 1 times the epoch length."""

    flow: Ints
    epoch: Ints
    bytes: Ints


NOTHING = Epochs(*(np.zeros(0, np.int64) for _ in range(3)))


def spans(flow: Ints, posted_ns: Ints, completed_ns: Ints, bytes_: Ints, before_ns: Ints) -> Sent:
    """When each request was sent. All (n,), of one flow in order of completion; before_ns: the
    completion that the flow's first request here came after, 0 for none.

    Requests whose completions were polled at once share the time up to there.
    """
    order = np.argsort(flow, kind="stable")
    flow, posted_ns, completed_ns = flow[order], posted_ns[order], completed_ns[order]
    if not len(flow):
        return Sent(flow, posted_ns, completed_ns, bytes_)
    is_first = np.diff(flow, prepend=flow[0] - 1) != 0
    opens = is_first | (np.diff(completed_ns, prepend=completed_ns[0]) > 0)
    at = np.flatnonzero(opens)
    ended_ns = completed_ns[at]
    previous_ns = np.where(is_first[at], before_ns[order][at], np.roll(ended_ns, 1))
    begun_ns = np.minimum(np.maximum(posted_ns[at], previous_ns), ended_ns)
    return Sent(flow[at], begun_ns, ended_ns, np.add.reduceat(bytes_[order], at))


def spread(sent: Sent, epoch_ns: int = EPOCH_NS) -> Epochs:
    """The bytes of each epoch; their sum is that of `sent`, exactly. Empty epochs are left out."""
    last = np.maximum(sent.ended_ns - 1, sent.begun_ns) // epoch_ns
    first = np.maximum(sent.begun_ns // epoch_ns, last - _MOST_EPOCHS + 1)
    begun_ns = np.maximum(sent.begun_ns, first * epoch_ns)
    counts = last - first + 1
    if not len(counts):
        return NOTHING
    ends = np.cumsum(counts)
    starts = ends - counts
    # Bytes sent until an epoch's end: a line from begin to end.
    nth = np.arange(ends[-1]) - np.repeat(starts, counts)
    slope = sent.bytes / np.maximum(sent.ended_ns - begun_ns, 1)
    until_first_end = slope * ((first + 1) * epoch_ns - begun_ns)
    so_far = nth * np.repeat(epoch_ns * slope, counts) + np.repeat(until_first_end, counts)
    so_far = so_far.astype(np.int64)
    so_far[ends - 1] = sent.bytes
    own = np.diff(so_far, prepend=0)
    own[starts] = so_far[starts]
    return added_up(np.repeat(sent.flow, counts), np.repeat(first, counts) + nth, own)


def added_up(flow: Ints, epoch: Ints, bytes_: Ints) -> Epochs:
    """One row for each epoch of a flow; those without bytes are left out."""
    there = bytes_ > 0
    if not there.all():
        flow, epoch, bytes_ = flow[there], epoch[there], bytes_[there]
    if not len(flow):
        return NOTHING
    if not _is_ordered(flow, epoch):
        order = np.lexsort((epoch, flow))
        flow, epoch, bytes_ = flow[order], epoch[order], bytes_[order]
    opens = np.ones(len(flow), dtype=bool)
    np.not_equal(flow[1:], flow[:-1], out=opens[1:])
    opens[1:] |= epoch[1:] != epoch[:-1]
    at = np.flatnonzero(opens)
    return Epochs(flow[at], epoch[at], np.add.reduceat(bytes_, at))


def _is_ordered(flow: Ints, epoch: Ints) -> bool:
    """By flow, then by epoch: as spans of one reading are, for they follow one another."""
    later = (flow[1:] > flow[:-1]) | ((flow[1:] == flow[:-1]) & (epoch[1:] >= epoch[:-1]))
    return bool(later.all())
