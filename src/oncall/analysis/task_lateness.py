"""How late a rank comes to the calls that its peers on the same node make with it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from oncall.analysis.rank_calls import TASK, UNKNOWN, RankCalls
from oncall.analysis.schedules import Array
from oncall.analysis.task_positions import Inside


@dataclass(frozen=True)
class Late:
    """One rank's calls within tasks: sums up to each of how late it came, how long it waited for
    the last, how often it came last, and of the calls of which that is known (calls + 1,)."""

    late_ns: Array
    waited_ns: Array
    last: Array
    known: Array

    def of(self, inside: Inside) -> tuple[Array, Array]:
        """Lateness and last calls of each task; -1 where no call's peers are all here."""
        known = self.known[inside.last] > self.known[inside.first]
        return (
            np.where(known, self.late_ns[inside.last] - self.late_ns[inside.first], UNKNOWN),
            np.where(known, self.last[inside.last] - self.last[inside.first], UNKNOWN),
        )

    def waited(self, inside: Inside) -> Array:
        """How long the rank waited in the calls of each task for the last of its peers; -1 where
        not all of its calls' peers are here."""
        known = self.known[inside.last] - self.known[inside.first] == inside.last - inside.first
        waited = self.waited_ns[inside.last] - self.waited_ns[inside.first]
        return np.asarray(np.where(known, waited, UNKNOWN))


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
    late, waited, last, known = np.zeros((4, len(order)), dtype=np.int64)
    known[order] = np.repeat(full, count)
    late[order] = np.maximum(0, entered[order] - np.repeat(median, count))
    waited[order] = np.repeat(newest, count) - entered[order]
    last[order[begin + count - 1]] = full
    ends = np.cumsum([len(p) for p in positions])[:-1]
    parts = [np.split(values, ends) for values in (late * known, waited * known, last, known)]
    return [
        Late(*(np.concatenate([[0], np.cumsum(values)]) for values in mine))
        for mine in zip(*parts, strict=True)
    ]
