"""Iterations as hosts see them: from one collective that hosts wait in to the next of its group.

Iterations need not be alike, and hosts need not wait anywhere else: ranks are compared only within
the same iteration.

Where no group has all ranks, as in a mesh, the call that ends an iteration is one of several
groups, each with a part of the ranks. They make the same calls, so a call has the same number in
each; stages of a pipeline make others as well, but come to it equally often. If what lies between
overlaps in time it is one iteration, and ranks of all groups can be compared in it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from oncall.analysis.common.quantiles import median_of_alike, quantile
from oncall.analysis.lost_time.arrays import (
    NONE,
    Flags,
    Hashes,
    Ints,
    Times,
    most_frequent,
    nth_of,
    numbered,
)
from oncall.analysis.lost_time.cuts import cuts, even_cuts
from oncall.analysis.lost_time.limits import Limits
from oncall.analysis.lost_time.moments import Moments
from oncall.analysis.lost_time.programs import Programs


@dataclass(frozen=True)
class Iterations:
    """The iteration of each node (n,), NONE outside; their begins and lengths (s,), ns; a hash of
    each rank's calls in them (s, r), 0 where not recorded whole. `span` (s,): of iterations in one,
    only the mean length is known; NONE: not even that. `cut` (n,) ends them. `ahead`: by which part
    of an iteration hosts are ahead of their devices at its end. `extra` (n,): calls that most of
    them do not have, as evaluations, logs and checkpoints make: no part of an iteration."""

    number: Ints
    begin_ns: Ints
    length_ns: Times
    program: Hashes
    span: Ints
    cut: Flags
    ahead: float
    stretches: bool  # of equal time: nothing shows where iterations begin
    extra: Flags
    waited_ns: Times | None = None  # by each rank (s, r), where a recorder measured it

    @cached_property
    def nth(self) -> Ints:
        """The place of each node among those of its iteration that most have (n,)."""
        place = np.cumsum(~self.extra)
        begins = np.diff(self.number, prepend=NONE - 1) != 0
        return np.asarray(place - np.maximum.accumulate(np.where(begins, place, 0)))

    @cached_property
    def mostly_called(self) -> Hashes:
        """The program of each rank (r,) in most iterations."""
        return most_frequent(self.program)

    @cached_property
    def kind(self) -> Ints:
        """A number (s,) that iterations share in which each rank calls the same."""
        return np.unique(self.program, axis=0, return_inverse=True)[1].ravel()

    def excess_ns(self, limits: Limits) -> Times:
        """By how much each (s,) is longer than most of its kind, below 0 if shorter; where hardly
        any are of one kind, than most."""
        one_of_many = np.bincount(self.kind)[self.kind] > 1
        kind = self.kind * int(one_of_many.mean() >= limits.mostly)
        return np.asarray(self.length_ns - median_of_alike(kind, self.length_ns)[0])

    def hosts_wait_last(self, limits: Limits) -> bool:
        """Whether hosts call most of an iteration ahead of their devices and wait at its end: they
        stay there for much longer than a call takes. Calls alone then hide a slow rank."""
        calls = (self.number != NONE).sum() / max(1, int((self.program != 0).sum()))
        return bool(self.ahead > max(limits.least_gain, limits.stands_out / max(1.0, calls)))

    def spans(self, but: Flags | bool = False) -> tuple[Times, Ints]:
        """The mean length (k,) of the iterations of each span, and when the first began (k,);
        without spans that have iterations in `but` (s,)."""
        mine = ~np.isin(self.span, np.append(self.span[but & (self.span != NONE)], NONE))
        _, first, of = np.unique(self.span[mine], return_index=True, return_inverse=True)
        length_ns = np.bincount(of, self.length_ns[mine]) / np.bincount(of)
        return length_ns, self.begin_ns[mine][first]


@dataclass(frozen=True)
class _Edges:
    """The cuts (m,) that begin and end a whole iteration of a rank, and the `number` of each
    iteration among all of them; `seen`: those that most of their members recorded."""

    begin: Ints
    end: Ints
    number: Ints
    seen: Ints


def iterations_of(programs: Programs, moments: Moments, limits: Limits) -> Iterations | None:
    """The iterations of a job; None if there are too few, or hosts wait nowhere. Where nothing
    shows them, and durations are recorded, stretches of equal time."""
    cut = cuts(programs, moments, limits)
    stretches = moments.timed and not cut.any()
    if stretches:
        cut = even_cuts(programs, moments, limits)
    edges = _edges(programs, cut, limits)
    if len(edges.seen) < limits.few:
        return None
    begin, end, number = edges.begin, edges.end, edges.number
    numbers, reached_ns = int(number.max()) + 1, moments.reached_ns
    began = np.full(numbers, np.iinfo(np.int64).max)
    np.minimum.at(began, number, reached_ns[begin + 1])
    order = edges.seen[np.argsort(began[edges.seen], kind="stable")]
    length = np.full((numbers, len(programs.ranks)), np.nan)
    length[number, programs.rank[begin]] = reached_ns[end + 1] - reached_ns[begin + 1]
    inside = _inside(len(cut), begin, end, number, order)
    # Stages differ in the order of calls, not in kinds.
    called = kinds_called if stretches and not programs.batch.any() else programs_called
    program = called(programs, inside, (len(order), length.shape[1]))
    found = Iterations(
        number=inside,
        begin_ns=began[order],
        length_ns=quantile(length[order], 0.5, 1),
        program=program,
        span=_span(moments.span, begin, end, number)[order],
        cut=cut,
        ahead=_ahead(programs, moments, cut, limits) / float(np.nanmedian(length)),
        stretches=stretches,
        extra=np.zeros(len(cut), dtype=np.bool_),
    )
    return found if stretches else like_most(found, programs, limits)


def _edges(programs: Programs, cut: Flags, limits: Limits) -> _Edges:
    """From each cut (n,) to the next one of the same rank and group."""
    # Hosts go on with a call that follows on the same rank.
    last = np.append(np.diff(programs.rank) != 0, True)
    at = np.flatnonzero(cut & ~last)
    begin, end = at[:-1], at[1:]
    same = programs.rank[begin] == programs.rank[end]
    same &= programs.comm[begin] == programs.comm[end]
    begin, end = begin[same], end[same]
    if not len(begin):
        return _Edges(begin, end, begin, begin)
    number, members = iterations_shared(programs, begin, end, limits)
    # Where calls were lost, ranks differ in the next one.
    calls = programs.seq[end] - programs.seq[begin]
    whole = calls == median_of_alike(number, calls)[0]
    recorded = np.bincount(number[whole], minlength=len(members))
    seen = np.flatnonzero(recorded >= limits.nearly_all * members)
    return _Edges(begin[whole], end[whole], number[whole], seen)


def _span(of_call: Ints, begin: Ints, end: Ints, number: Ints) -> Ints:
    """The span of each iteration, as its first rank has it: its own where it reaches beyond one."""
    numbers, first = np.unique(number, return_index=True)
    mine, last = of_call[begin[first] + 1], of_call[end[first]]
    found = np.full(int(numbers[-1]) + 1, NONE)
    found[numbers] = np.where(mine == last, mine, len(of_call) + numbers)
    return found


def _inside(nodes: int, begin: Ints, end: Ints, number: Ints, order: Ints) -> Ints:
    """The iteration of each node (n,): behind the cut at its begin, up to the one at its end."""
    place = np.full(int(number.max()) + 1, NONE)
    place[order] = np.arange(len(order))
    change = np.zeros(nodes + 1, dtype=np.int64)
    change[begin + 1] += place[number] + 1
    np.subtract.at(change, end + 1, place[number] + 1)
    return np.cumsum(change)[:-1] - 1


def like_most(found: Iterations, programs: Programs, limits: Limits) -> Iterations:
    """What others made beside all calls of most is `extra`; without those in which most ranks did
    not make all of them. Where no two are alike, all as they are."""
    common = found.mostly_called
    there = found.program != 0
    alike = (found.program == common) & there
    same = alike.sum(1) >= limits.same_calls * there.sum(1)
    if same.all() or same.sum() < max(limits.few, len(same) / 2):
        return found
    ranks, typical = there.shape[1], alike.argmax(0)
    made = _made_as_in(typical, found, programs)
    inside = np.flatnonzero(made & (found.number != NONE))
    each = found.number[inside] * ranks + programs.rank[inside]
    calls = np.bincount(each, minlength=there.size).reshape(there.shape)
    alike |= there & (calls == calls[typical, np.arange(ranks)])
    same = alike.sum(1) >= limits.same_calls * there.sum(1)
    place = np.append(np.where(same, np.cumsum(same) - 1, NONE), NONE)
    number = place[found.number]
    return replace(
        found,
        number=number,
        begin_ns=found.begin_ns[same],
        length_ns=found.length_ns[same],
        program=np.where(alike, common, found.program)[same],
        span=found.span[same],
        extra=~made & (number != NONE),
        waited_ns=None if found.waited_ns is None else found.waited_ns[same],
    )


def _made_as_in(iteration: Ints, found: Iterations, programs: Programs) -> Flags:
    """The nodes (n,) that are as often of their kind, or less often, in that iteration of their
    rank (r,)."""
    mine = numbered(programs.rank, programs.signature.astype(np.int64))
    call = numbered(mine, nth_of(numbered(mine, found.number)))
    in_it = np.zeros(int(call.max()) + 1, dtype=np.bool_)
    in_it[call[found.number == iteration[programs.rank]]] = True
    return np.asarray(in_it[call])


def programs_called(programs: Programs, inside: Ints, shape: tuple[int, int]) -> Hashes:
    """A hash of each rank's calls (s, r) in their order."""
    at = np.flatnonzero(inside != NONE)
    place = inside[at] * shape[1] + programs.rank[at]
    weight = np.uint64(0x9E3779B97F4A7C15) * nth_of(place).astype(np.uint64) | np.uint64(1)
    found = np.zeros(shape[0] * shape[1], dtype=np.uint64)
    np.add.at(found, place, programs.signature[at] * weight)
    found[place] |= np.uint64(1)
    return found.reshape(shape)


def kinds_called(programs: Programs, inside: Ints, shape: tuple[int, int]) -> Hashes:
    """A hash of the kinds of each rank's calls (s, r), whatever their number and order: stretches
    of equal time do not begin at the same call."""
    at = np.flatnonzero(inside != NONE)
    place, signature = inside[at] * shape[1] + programs.rank[at], programs.signature[at]
    order = np.lexsort((signature, place))
    place, signature = place[order], signature[order]
    new = (np.diff(place, prepend=-1) != 0) | (np.diff(signature, prepend=np.uint64(0)) != 0)
    found = np.zeros(shape[0] * shape[1], dtype=np.uint64)
    np.add.at(found, place[new], signature[new])
    found[place] |= np.uint64(1)
    return found.reshape(shape)


def _ahead(programs: Programs, moments: Moments, cut: Flags, limits: Limits) -> float:
    """How long after the last member's call hosts go on (median of the cuts), ns; 0 with durations,
    which need no hosts, and where hosts wait in all calls, for as long as each takes."""
    at = np.flatnonzero(cut)
    at = at[(at + 1 < len(cut)) & np.append(np.diff(programs.rank) == 0, False)[at]]
    if moments.timed or not len(at) or _wait_everywhere(programs, moments, cut, limits):
        return 0.0
    group = numbered(programs.comm[at], programs.seq[at])
    latest = np.full(int(group.max()) + 1, -np.inf)
    np.maximum.at(latest, group, moments.came_ns[at])
    gone = moments.came_ns[at] + (programs.at_ns[at + 1] - programs.at_ns[at])
    return float(np.median(gone - latest[group]))


def _wait_everywhere(programs: Programs, moments: Moments, cut: Flags, limits: Limits) -> bool:
    """Whether hosts wait in other calls, too, where some member came late: in as many as end
    iterations, and in most of them. So do hosts without devices (gloo)."""
    at = np.flatnonzero(~cut & np.isfinite(moments.came_ns))
    if not len(at):
        return False
    group = numbered(programs.comm[at], programs.seq[at])
    first, last = np.full((2, int(group.max()) + 1), np.inf)
    np.minimum.at(first, group, moments.came_ns[at])
    np.minimum.at(last, group, -moments.came_ns[at])
    uneven = at[(-last - first > limits.exact)[group]]
    return bool(len(uneven) >= cut.sum() and moments.waits[uneven].mean() >= limits.mostly)


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
