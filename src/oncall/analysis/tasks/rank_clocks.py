"""How far ranks' clocks are apart, by the ranks' own calls.

After a call that all replicas or stages make together, the members go on at once: their next calls
mark the same moment, each on its own clock. Differences within the error of this are not corrected.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from oncall.analysis.calls.rank_calls import OUTSIDE, REPLICAS, SEND, RankCalls
from oncall.analysis.calls.schedules import Array
from oncall.analysis.calls.thresholds import Thresholds


def clock_corrections(ranks: Sequence[RankCalls]) -> list[dict[int, int]]:
    """For each communicator of calls that all make together: how far the clock of each of its ranks
    (index into `ranks`) is ahead of the middle one, ns. Only clocks that differ beyond the error.
    """
    parts = []
    for number, calls in enumerate(ranks):
        at = np.flatnonzero(np.isin(calls.use, (REPLICAS, OUTSIDE)) & (calls.seq >= 0))
        at = at[at + 1 < len(calls)]
        # One that sends next has computed a whole task before.
        at = at[~calls.lost[at + 1] & (calls.use[at + 1] != SEND)]
        one = np.full(len(at), number)
        left = calls.entered_ns[at + 1]
        parts.append((calls.comm[at], calls.seq[at], one, left, left - calls.entered_ns[at]))
    if not parts:
        return []
    comm, seq, rank, left, stayed = (np.concatenate(values) for values in zip(*parts, strict=True))
    order = np.lexsort((rank, seq, comm))
    comm, seq, rank, left, stayed = (v[order] for v in (comm, seq, rank, left, stayed))
    found = []
    for each in np.unique(comm).tolist():
        mine = comm == each
        apart = _apart(seq[mine], rank[mine], left[mine], stayed[mine], ranks[0].thresholds)
        if any(abs(ns) > ranks[0].thresholds.clock_error_ns for ns in apart.values()):
            found.append(apart)
    return found


def _apart(
    seq: Array, rank: Array, left: Array, stayed: Array, thresholds: Thresholds
) -> dict[int, int]:
    """The median difference of each rank to the middle member, over prompt rounds of all."""
    members = np.unique(rank)
    rounds, counts = np.unique(seq, return_counts=True)
    whole = np.isin(seq, rounds[counts == len(members)])
    if len(members) < 2 or not whole.any():
        return {}
    shape = (-1, len(members))
    prompt = stayed[whole].reshape(shape).min(axis=1) <= thresholds.prompt_ns
    moments = left[whole].reshape(shape)[prompt]
    if len(moments) < thresholds.fewest_rounds:
        return {}
    middle = np.sort(moments, axis=1)[:, (len(members) - 1) // 2]
    apart = np.median(moments - middle[:, np.newaxis], axis=0)
    return dict(zip(members.tolist(), np.rint(apart).astype(np.int64).tolist(), strict=True))


def corrections_of(members: Array, known: Sequence[dict[int, int]], error_ns: int) -> Array:
    """By how much to move the times of these ranks (n,) to have them on one clock: 0 where no
    communicator has them all, or where they are not apart by more than `error_ns`."""
    for apart in known:
        if all(member in apart for member in members.tolist()):
            offsets = np.array([apart[member] for member in members.tolist()], dtype=np.int64)
            if np.ptp(offsets) > error_ns:
                return -offsets
            return np.zeros(len(members), dtype=np.int64)
    return np.zeros(len(members), dtype=np.int64)
