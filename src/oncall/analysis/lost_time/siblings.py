"""Iterations of groups that share out the ranks, as those of one dimension of a mesh do.

Where no group has all ranks, the call that ends an iteration is one of several groups, each with a
part of the ranks. They make the same calls, so a call has the same number in each; stages of a
pipeline make others as well, but come to it equally often. If what lies between overlaps in time it
is one iteration, and ranks of all groups can be compared in it.
"""

from __future__ import annotations

import numpy as np

from oncall.analysis.lost_time.limits import Limits
from oncall.analysis.lost_time.programs import Ints, Programs


def iterations_shared(
    programs: Programs, begin: Ints, end: Ints, limits: Limits
) -> tuple[Ints, Ints]:
    """The iteration of each rank's stretch from the call `begin` to the call `end` (k,), numbered
    from 0, and how many ranks each iteration has (i,)."""
    comm, seq = programs.comm[begin], programs.seq[begin]
    groups = np.unique(comm)
    size = np.array([len(programs.members[one]) for one in groups])
    if _share_out(programs, groups, limits):
        turn = _turns(programs, begin) if programs.batch.any() else seq
        _, number = np.unique(turn, return_inverse=True)
        if _together(programs, begin, end, number, limits):
            return number, np.full(int(number.max()) + 1, size.sum())
    key = comm * (1 << 44) + seq
    _, first, number = np.unique(key, return_index=True, return_inverse=True)
    return number, size[np.searchsorted(groups, comm[first])]


def _share_out(programs: Programs, groups: Ints, limits: Limits) -> bool:
    """Whether the groups have no rank in common and leave few out: those without a partner, as
    where ranks left no dump."""
    ranks = np.concatenate([programs.members[one] for one in groups])
    most = len(ranks) >= limits.nearly_all * len(programs.ranks)
    return len(groups) > 1 and most and len(np.unique(ranks)) == len(ranks)


def _turns(programs: Programs, begin: Ints) -> Ints:
    """The turn of each call (k,) that begins an iteration: its place among its group's, moved to
    where those of the group with most of them were made at about that time."""
    key = programs.comm[begin] * (1 << 44) + programs.seq[begin]
    calls, first, of = np.unique(key, return_index=True, return_inverse=True)
    at_ns = np.full(len(calls), np.iinfo(np.int64).max)
    np.minimum.at(at_ns, of, programs.at_ns[begin])
    groups = np.split(at_ns, np.flatnonzero(np.diff(programs.comm[begin[first]])) + 1)
    most_ns = np.sort(max(groups, key=len))
    between_ns = (most_ns[1:] + most_ns[:-1]) / 2
    place = [
        np.arange(len(each)) + round(float(np.median(nearest - np.arange(len(each)))))
        for each in groups
        for nearest in [np.searchsorted(between_ns, each)]
    ]
    return np.asarray(np.concatenate(place)[of])


def _together(programs: Programs, begin: Ints, end: Ints, number: Ints, limits: Limits) -> bool:
    """Whether calls of one number are made at about one time in all groups: from the last rank's
    begin to the first one's end most of an iteration passes."""
    many = int(number.max()) + 1
    pairs = np.unique(np.stack([number, programs.comm[begin]]), axis=1)
    groups = np.bincount(pairs[0], minlength=many)
    first_ns = programs.at_ns.min()
    begins, ends = (programs.at_ns[at + 1] - first_ns for at in (begin, end))
    latest, earliest = np.zeros(many), np.full(many, np.inf)
    np.maximum.at(latest, number, begins)
    np.minimum.at(earliest, number, ends)
    shared = np.where(groups == groups.max(), earliest - latest, -np.inf)
    length = float(np.median(ends - begins))
    return bool(groups.max() > 1 and np.median(shared) >= limits.same_calls * length)
