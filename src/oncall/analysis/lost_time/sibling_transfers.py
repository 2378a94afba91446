"""Transfers of a group that take longer than those of its siblings, from the first iteration on.

Groups of one dimension of a mesh make the same calls of the same sizes. Once its last member is
there, a collective lasts as long as the transfer: what one group needs beyond its siblings is a
slow link, of the group or of the rank that all slow groups share.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import reduce

import numpy as np

from oncall.analysis.lost_time.judgement import Declined, Entry, Loss, judged
from oncall.analysis.lost_time.latecomers import latecomers
from oncall.analysis.lost_time.lateness import Lateness
from oncall.analysis.lost_time.limits import Limits
from oncall.analysis.lost_time.measured import median, quantile
from oncall.analysis.lost_time.programs import NONE, Ints, Programs, Times
from oncall.analysis.lost_time.transfers import taken


def slow_beside_siblings(
    programs: Programs, lateness: Lateness, limits: Limits
) -> Entry | Declined:
    """The ranks that share all groups whose transfers take longer than their siblings', if others
    wait for these ranks, or all ranks are in a transfer with them meanwhile."""
    iterations = lateness.iterations
    taken_ns = taken(programs, iterations, limits)
    share = _excess(programs, taken_ns, lateness, limits) / iterations.length_ns[:, None]
    slow, late = _slow(share, limits), latecomers(lateness, limits)
    if not len(slow) and isinstance(late, Entry) and late.proven:
        return _late_together(programs, lateness, taken_ns, late, limits)
    if not len(slow):
        return Declined("no group's transfers are slower than those of like groups")
    members = [np.asarray(programs.members[comm]) for comm in slow]
    ranks, together = reduce(np.intersect1d, members), reduce(np.union1d, members)
    if not len(ranks) or 2 * len(together) > lateness.late_ns.shape[1]:
        return Declined("the groups with slower transfers have no rank in common")
    ranks = _of_two(programs, lateness, taken_ns, ranks, limits)
    meanwhile = _with_all(programs, taken_ns, ranks, limits) / iterations.length_ns
    if isinstance(late, Entry) and late.proven and set(late.ranks) != set(ranks.tolist()):
        return Declined("a rank that is late itself slows the transfers of its group")
    waited = np.fmax(_late(lateness, ranks, together), meanwhile)
    shown = np.nan_to_num(np.fmin(np.fmax.reduce(share[:, slow], axis=1), waited))
    loss = Loss(
        "transfer", ranks.tolist(), shown, iterations.length_ns, iterations.begin_ns, "siblings"
    )
    return judged(loss, limits, limits.few)


def _slow(share: Times, limits: Limits) -> Ints:
    """The groups that, by their excess (s, comms), stand out from all others in the same
    iterations, several times."""
    found = np.nan_to_num(share)
    total = np.where(found >= limits.least_gain, found, 0.0).sum(0)
    slow = np.flatnonzero(total >= max(limits.as_late * total.max(initial=0.0), limits.least_gain))
    if not len(slow):
        return slow
    others = np.abs(np.delete(found, slow, axis=1)).max(1, initial=0.0)
    clear = (found[:, slow] >= limits.least_gain) & (
        found[:, slow] >= limits.stands_out * others[:, None]
    )
    return slow if (clear.all(1).sum() >= limits.few) else slow[:0]


def _late_together(
    programs: Programs, lateness: Lateness, taken_ns: Times, late: Entry, limits: Limits
) -> Entry | Declined:
    """Ranks that come late together, if the transfers of their group take as much longer than those
    of its only sibling."""
    for slower, excess in _slower_of_two(programs, lateness, taken_ns):
        alike = set(programs.members[slower]) == set(late.ranks)
        if alike and excess >= limits.as_late * late.share:
            return replace(late, cause="transfer", shown_by="siblings")
    return Declined("no group's transfers are slower than those of like groups")


def _of_two(
    programs: Programs, lateness: Lateness, taken_ns: Times, ranks: Ints, limits: Limits
) -> Ints:
    """Those of the ranks that are in the slower of two sibling groups as well, where there are
    such: two have no median, but agree with what others show."""
    for slower, excess in _slower_of_two(programs, lateness, taken_ns):
        both = np.intersect1d(ranks, programs.members[slower])
        if len(both) and excess >= limits.least_gain:
            ranks = both
    return ranks


def _slower_of_two(
    programs: Programs, lateness: Lateness, taken_ns: Times
) -> Iterator[tuple[int, float]]:
    """Of each two groups without other siblings the slower one, and by which share of iterations it
    is slower (median)."""
    kind = _kinds(programs, lateness)
    for one in np.unique(kind[kind != 0]):
        mine = np.flatnonzero(kind == one)
        if len(mine) == 2:
            slower, other = mine if np.nansum(np.diff(taken_ns[:, mine])) < 0 else mine[::-1]
            excess_ns = taken_ns[:, slower] - taken_ns[:, other]
            yield int(slower), float(median(excess_ns / lateness.iterations.length_ns, 0))


def _late(lateness: Lateness, ranks: Ints, together: Ints) -> Times:
    """By which share of each iteration (s,) the ranks are later than those in no slow group."""
    beside = np.delete(lateness.late_ns, together, axis=1)
    late_ns = np.nanmin(lateness.late_ns[:, ranks], axis=1) - quantile(beside, 0.5, 1)
    return np.asarray(np.nan_to_num(late_ns) / lateness.iterations.length_ns)


def _with_all(programs: Programs, taken_ns: Times, ranks: Ints, limits: Limits) -> Times:
    """How long (s,), ns, the transfers of groups that these ranks and nearly all others are in
    take: a slow link slows these as well, and nobody waits for anybody."""
    fewest = limits.nearly_all * len(programs.ranks)
    large = [
        comm
        for comm, members in enumerate(programs.members)
        if len(members) >= fewest and np.isin(ranks, members).all()
    ]
    return np.asarray(np.nansum(taken_ns[:, large], axis=1))


def _excess(programs: Programs, taken_ns: Times, lateness: Lateness, limits: Limits) -> Times:
    """How much longer the transfers of each group took in each iteration than its siblings' in the
    median (s, comms), ns; NaN of groups with too few siblings."""
    found = np.full(taken_ns.shape, np.nan)
    kind = _kinds(programs, lateness)
    for one in np.unique(kind[kind != 0]):
        mine = np.flatnonzero(kind == one)
        if len(mine) >= limits.few:
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
