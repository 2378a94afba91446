"""How communicators are used over time: how many collectives, with which pauses, between which
transfers. Of each member in numpy, then what the middle one of a communicator's members shows."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from oncall.analysis.common.ordering import Ints, order_of, sorted_by

Floats = NDArray[np.float64]
_UNKNOWN = -1


@dataclass(frozen=True)
class Moments:
    """What ranks did when: collectives or transfers (n,); `at_ns` -1 is unknown."""

    rank: Ints
    at_ns: Ints


@dataclass(frozen=True)
class Pace:
    """Of communicators (k,): `collectives` of the member that made most; of the middle one the
    share of its time that is in long pauses, its mean pause, and between how many of all transfers
    of its rank it made one (NaN without transfers)."""

    collectives: Ints
    long_pauses: Floats
    apart_ns: Floats
    interleaved: Floats


def pace_of(
    comm: Ints,
    collectives: Moments,
    times: Ints,
    transfers: Moments,
    comms: int,
    pause_times: float,
) -> Pace:
    """The pace of communicators 0 to `comms`; of collectives `comm` and how many each stands for
    (n,). A pause of more than `pause_times` the median one is long."""
    members = int(collectives.rank.max(initial=0)) + 1
    order = sorted_by(comm * members + collectives.rank, collectives.at_ns)
    comm, rank, at_ns = comm[order], collectives.rank[order], collectives.at_ns[order]
    begins = np.append(True, (np.diff(comm) != 0) | (np.diff(rank) != 0))[: len(comm)]
    first = np.flatnonzero(begins)
    member = np.cumsum(begins) - 1
    of_comm, n = comm[first], len(first)
    calls = np.bincount(member, times[order], n).astype(np.int64)
    most = np.zeros(comms, dtype=np.int64)
    np.maximum.at(most, of_comm, calls)

    paused = ~begins & (np.roll(at_ns, 1) >= 0)
    pause_ns, pauses = np.diff(at_ns, prepend=0)[paused], member[paused]
    long = pause_ns > pause_times * medians(pauses, pause_ns, n)[pauses]
    total = np.bincount(pauses, pause_ns, n)
    in_long = np.bincount(pauses[long], pause_ns[long], n)
    between = _between(member, Moments(rank, at_ns), transfers, n)
    return Pace(
        collectives=most,
        long_pauses=medians(of_comm, in_long / np.maximum(total, 1), comms),
        apart_ns=medians(of_comm, total / np.maximum(np.bincount(pauses, minlength=n), 1), comms),
        interleaved=medians(of_comm, _shares(between, transfers.rank, rank[first]), comms),
    )


def medians(group: Ints, values: Ints | Floats, groups: int) -> Floats:
    """The median of each group's values; NaN where it has none. NaNs count as none."""
    known = ~np.isnan(values)
    group, values = group[known], values[known]
    order = np.argsort(values)
    order = order[order_of(group[order])]
    size = np.bincount(group, minlength=groups)
    start = np.cumsum(size) - size
    found = np.full(groups, np.nan)
    there = size > 0
    low, high = (start + (size - 1) // 2)[there], (start + size // 2)[there]
    found[there] = (values[order[low]].astype(np.float64) + values[order[high]]) / 2
    return found


def _shares(between: Ints, sender: Ints, rank: Ints) -> Floats:
    """Of how many pairs of transfers, one after the other, of each member's rank it is that many
    (members,); NaN for ranks that make none."""
    pairs = np.append(np.bincount(sender), np.zeros(int(rank.max(initial=0)) + 1)) - 1
    pairs = pairs[rank]
    return np.where(pairs > 0, between / np.maximum(pairs, 1), np.nan)


def _between(member: Ints, collectives: Moments, transfers: Moments, members: int) -> Ints:
    """Between how many transfers of its rank and the next one each member made a collective
    (members,); collectives by member and time."""
    order = sorted_by(transfers.rank, transfers.at_ns)
    rank, at_ns = transfers.rank[order], transfers.at_ns[order]
    followed = np.append((np.diff(rank) == 0) & (np.diff(at_ns) > 0), False)[: len(rank)]
    followed &= at_ns >= 0
    next_ns = np.roll(at_ns, -1)[followed]
    latest = _latest(Moments(rank[followed], at_ns[followed]), collectives)
    inside = (latest >= 0) & (collectives.at_ns >= 0)
    inside[inside] = collectives.at_ns[inside] < next_ns[latest[inside]]
    member, latest = member[inside], latest[inside]
    fresh = np.append(True, (np.diff(member) != 0) | (np.diff(latest) != 0))[: len(member)]
    return np.bincount(member[fresh], minlength=members)


def _latest(transfers: Moments, collectives: Moments) -> Ints:
    """The latest transfer of its rank before each collective, or at the same time; else -1."""
    rank = np.concatenate([transfers.rank, collectives.rank])
    order = sorted_by(rank, np.concatenate([transfers.at_ns, collectives.at_ns]))
    sent = order < len(transfers.rank)
    last = np.maximum.accumulate(np.where(sent, np.arange(len(order)), _UNKNOWN))
    found = np.where((last >= 0) & (rank[order[last]] == rank[order]), order[last], _UNKNOWN)
    latest = np.empty(len(collectives.rank), dtype=np.int64)
    latest[order[~sent] - len(transfers.rank)] = found[~sent]
    return latest
