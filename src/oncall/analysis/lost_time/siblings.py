"""Iterations of groups that share out the ranks, as those of one dimension of a mesh do.

Where no group has all ranks, the call that ends an iteration is one of several groups, each with a
part of the ranks. They make the same calls, so a call has the same number in each; if what lies
between overlaps in time it is one iteration, and ranks of all groups can be compared in it.
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
    if _share_out(programs, groups) and _together(programs, begin, end, limits):
        _, number = np.unique(seq, return_inverse=True)
        return number, np.full(int(number.max()) + 1, size.sum())
    key = comm * (1 << 44) + seq
    _, first, number = np.unique(key, return_index=True, return_inverse=True)
    return number, size[np.searchsorted(groups, comm[first])]


def _share_out(programs: Programs, groups: Ints) -> bool:
    """Whether the groups have no rank in common and leave none out."""
    ranks = np.concatenate([programs.members[one] for one in groups])
    return len(groups) > 1 and len(np.unique(ranks)) == len(ranks) == len(programs.ranks)


def _together(programs: Programs, begin: Ints, end: Ints, limits: Limits) -> bool:
    """Whether calls of one number are made at about one time in all groups: from the last rank's
    begin to the first one's end most of an iteration passes."""
    _, number = np.unique(programs.seq[begin], return_inverse=True)
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
