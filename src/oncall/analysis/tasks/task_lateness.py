"""How late a rank comes to the calls that its peers on the same node make with it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from oncall.analysis.tasks.rank_calls import TASK, UNKNOWN, RankCalls
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


def _up_to(values: Array) -> Array:
    """The sums of all values before each, and of all (n + 1,)."""
    return np.concatenate([[0], np.cumsum(values)])
