"""Transfers of a group that take longer than those of its siblings, from the first iteration on.

Groups of one dimension of a mesh make the same calls of the same sizes. Once its last member is
there, a collective lasts as long as the transfer: what one group needs beyond its siblings is a
slow link, of the group or of the rank that all slow groups share.
"""

from __future__ import annotations

from functools import reduce

import numpy as np

from oncall.analysis.lost_time.causes import Entry
from oncall.analysis.lost_time.lateness import Lateness
from oncall.analysis.lost_time.limits import Limits
from oncall.analysis.lost_time.measured import quantile
from oncall.analysis.lost_time.onsets import taken
from oncall.analysis.lost_time.programs import NONE, Ints, Programs, Times


def slow_beside_siblings(programs: Programs, lateness: Lateness, limits: Limits) -> Entry | None:
    """The ranks that share all groups whose transfers take longer than their siblings', if the
    members of these groups come later than others by it."""
    iterations = lateness.iterations
    excess_ns = _excess(programs, taken(programs, iterations, limits), lateness, limits)
    share = excess_ns / iterations.length_ns[:, None]
    common = np.nan_to_num(quantile(share, 0.5, 0))
    slow = np.flatnonzero(common >= max(limits.least_gain, limits.as_late * common.max(initial=0)))
    if not len(slow):
        return None
    members = [np.asarray(programs.members[comm]) for comm in slow]
    ranks, together = reduce(np.intersect1d, members), reduce(np.union1d, members)
    if not len(ranks) or 2 * len(together) > lateness.late_ns.shape[1]:
        return None
    shown = np.fmin(np.nanmax(share[:, slow], axis=1), _late(lateness, ranks, together))
    concerned = shown >= limits.least_gain
    if concerned.sum() < limits.repeats or 2 * concerned.sum() < len(shown):
        return None
    values = shown[concerned]
    return Entry(
        cause="transfer",
        ranks=tuple(map(int, ranks)),
        share=float(values.mean()),
        low=float(values.min()),
        segments=int(concerned.sum()),
        gain_ns=float((shown * iterations.length_ns)[concerned].sum()),
        begin_ns=int(iterations.begin_ns[concerned].min()),
    )


def _late(lateness: Lateness, ranks: Ints, together: Ints) -> Times:
    """By which share of each iteration (s,) the ranks are later than those in no slow group."""
    beside = np.delete(lateness.late_ns, together, axis=1)
    late_ns = np.nanmin(lateness.late_ns[:, ranks], axis=1) - quantile(beside, 0.5, 1)
    return np.asarray(np.nan_to_num(late_ns) / lateness.iterations.length_ns)


def _excess(programs: Programs, taken_ns: Times, lateness: Lateness, limits: Limits) -> Times:
    """How much longer the transfers of each group took in each iteration than its siblings' in the
    median (s, comms), ns; NaN of groups with too few siblings."""
    found = np.full(taken_ns.shape, np.nan)
    kind = _kinds(programs, lateness)
    for one in np.unique(kind[kind != 0]):
        mine = np.flatnonzero(kind == one)
        if len(mine) >= limits.few_peers:
            middle = quantile(taken_ns[:, mine], 0.5, 1)
            found[:, mine] = taken_ns[:, mine] - middle[:, None]
    return found


def _kinds(programs: Programs, lateness: Lateness) -> np.ndarray[tuple[int], np.dtype[np.uint64]]:
    """A hash (comms,) of what each group calls, and of how many members; 0: no collectives."""
    mine = ~programs.batch & (lateness.iterations.number != NONE)
    pairs = np.stack([programs.comm[mine].astype(np.uint64), programs.signature[mine]])
    comm, signature = np.unique(pairs, axis=1)
    found = np.zeros(len(programs.members), dtype=np.uint64)
    np.add.at(found, comm.astype(np.int64), signature | np.uint64(1))
    return found
