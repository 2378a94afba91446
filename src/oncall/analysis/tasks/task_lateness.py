"""How late a rank comes to the calls that its peers on the same node make with it.

How far ranks' clocks are apart, by the ranks' own calls.

After a call that all replicas or stages make together, the members go on at once: their next calls
mark the same moment, each on its own clock. Differences within the error of this are not corrected.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from oncall.analysis.tasks import thresholds
from oncall.analysis.tasks.rank_calls import OUTSIDE, REPLICAS, SEND, TASK, UNKNOWN, RankCalls
from oncall.analysis.tasks.schedules import Array
from oncall.analysis.tasks.task_calls import Inside


@dataclass(frozen=True)
class Late:
    """One rank's calls within tasks: sums up to each of how late it came, how long it waited for
    the last, how often it came last, and of the calls of which that is known (calls + 1,); of each
    how long after the first of its peers (calls,). Of ranks that are alike, a row for each."""

    late_ns: Array
    waited_ns: Array
    last: Array
    known: Array
    behind_ns: Array

    def of(self, inside: Inside) -> tuple[Array, Array]:
        """Lateness and last calls of each task; -1 where no call's peers are all here."""
        late_ns, last, known = (_within(v, inside) for v in (self.late_ns, self.last, self.known))
        return np.where(known > 0, late_ns, UNKNOWN), np.where(known > 0, last, UNKNOWN)

    def waited(self, inside: Inside) -> tuple[Array, Array]:
        """How long the rank waited in the calls of each task for the last of its peers, and by how
        much it made the first of its peers wait in the first call; -1 where not all of its calls'
        peers are here."""
        count = inside.last - inside.first
        known = _within(self.known, inside) == count
        waited = _within(self.waited_ns, inside)
        first = np.minimum(inside.first, max(self.behind_ns.shape[-1] - 1, 0))
        behind = np.zeros_like(waited)
        if self.behind_ns.shape[-1]:
            behind = np.where(count > 0, self.behind_ns[..., first], 0)
        return np.where(known, waited, UNKNOWN), np.where(known, behind, UNKNOWN)


def _within(sums: Array, inside: Inside) -> Array:
    return np.asarray(sums[..., inside.last] - sums[..., inside.first])


def together(ranks: Sequence[Late]) -> Late:
    """The lateness of ranks that are alike, each array with a row for each of them."""
    names = Late.__dataclass_fields__
    return Late(**{name: np.stack([getattr(one, name) for one in ranks]) for name in names})


def lateness(ranks: Sequence[RankCalls], sizes: Mapping[int, int]) -> list[Late]:
    """The lateness of each rank; `sizes`: how many members a communicator has."""
    positions = [np.flatnonzero(calls.use == TASK) for calls in ranks]
    if not ranks:
        return []
    columns = [
        np.concatenate([getattr(c, name)[p] for c, p in zip(ranks, positions, strict=True)])
        for name in ("comm", "seq", "entered_ns")
    ]
    comm, seq, entered = columns
    if not any(calls.knows_ends for calls in ranks):
        entered = entered + _corrections(ranks, positions)
    order = np.lexsort((entered, seq, comm))
    same = (np.diff(comm[order]) == 0) & (np.diff(seq[order]) == 0)
    begin = np.flatnonzero(np.concatenate([[True], ~same])) if len(order) else order
    count = np.diff(np.append(begin, len(order)))
    wanted = np.array(
        [sizes.get(c, 0) if c is not None else 0 for c in ranks[0].comms], dtype=np.int64
    )
    full = (count > 1) & (count == wanted[comm[order][begin]]) & (seq[order][begin] >= 0)
    median = entered[order][begin + (count - 1) // 2]
    newest = entered[order][begin + count - 1]
    late, waited, last, known, behind = np.zeros((5, len(order)), dtype=np.int64)
    known[order] = np.repeat(full, count)
    late[order] = np.maximum(0, entered[order] - np.repeat(median, count))
    waited[order] = np.repeat(newest, count) - entered[order]
    behind[order] = entered[order] - np.repeat(entered[order][begin], count)
    last[order[begin + count - 1]] = full
    ends = np.cumsum([len(p) for p in positions])[:-1]
    summed = (late * known, waited * known, last, known)
    parts = [[_up_to(p) for p in np.split(values, ends)] for values in summed]
    return [Late(*mine) for mine in zip(*parts, np.split(behind * known, ends), strict=True)]


def _corrections(ranks: Sequence[RankCalls], positions: Sequence[Array]) -> Array:
    """By how much to move the calls at the positions (n,) so that members use one clock."""
    known = clock_corrections(ranks)
    if not known:
        return np.zeros(sum(map(len, positions)), dtype=np.int64)
    number = np.repeat(np.arange(len(ranks)), [len(p) for p in positions])
    comm = np.concatenate([c.comm[p] for c, p in zip(ranks, positions, strict=True)])
    moved = np.zeros(len(comm), dtype=np.int64)
    for each in np.unique(comm).tolist():
        mine = np.flatnonzero(comm == each)
        members, place = np.unique(number[mine], return_inverse=True)
        moved[mine] = corrections_of(members, known)[place]
    return moved


def _up_to(values: Array) -> Array:
    """The sums of all values before each, and of all (n + 1,)."""
    return np.concatenate([[0], np.cumsum(values)])


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
        apart = _apart(seq[mine], rank[mine], left[mine], stayed[mine])
        if any(abs(ns) > thresholds.CLOCK_ERROR_NS for ns in apart.values()):
            found.append(apart)
    return found


def _apart(seq: Array, rank: Array, left: Array, stayed: Array) -> dict[int, int]:
    """The median difference of each rank to the middle member, over prompt rounds of all."""
    members = np.unique(rank)
    rounds, counts = np.unique(seq, return_counts=True)
    whole = np.isin(seq, rounds[counts == len(members)])
    if len(members) < 2 or not whole.any():
        return {}
    shape = (-1, len(members))
    prompt = stayed[whole].reshape(shape).min(axis=1) <= thresholds.PROMPT_NS
    moments = left[whole].reshape(shape)[prompt]
    if len(moments) < thresholds.FEWEST_ROUNDS:
        return {}
    middle = np.sort(moments, axis=1)[:, (len(members) - 1) // 2]
    apart = np.median(moments - middle[:, np.newaxis], axis=0)
    return dict(zip(members.tolist(), np.rint(apart).astype(np.int64).tolist(), strict=True))


def corrections_of(members: Array, known: Sequence[dict[int, int]]) -> Array:
    """By how much to move the times of these ranks (n,) to have them on one clock: 0 where no
    communicator has them all, or where they are not apart by more than clocks are."""
    for apart in known:
        if all(member in apart for member in members.tolist()):
            offsets = np.array([apart[member] for member in members.tolist()], dtype=np.int64)
            if np.ptp(offsets) > thresholds.CLOCK_ERROR_NS:
                return -offsets
            return np.zeros(len(members), dtype=np.int64)
    return np.zeros(len(members), dtype=np.int64)
