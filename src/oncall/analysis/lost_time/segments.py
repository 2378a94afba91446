"""Similar iterations: what lies between two cuts, and the cuts that make most of it comparable.

A cut is a collective of all ranks: they start and end a segment together, so each can be replayed
alone. Cuts come from sequence numbers, never from time, so what one rank lost drops that rank only.
Segments in which most ranks did the same form a class: evaluations, checkpoints and the start of a
job become classes of their own.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from oncall.analysis.lost_time.arrays import (
    NONE,
    Flags,
    Hashes,
    Ints,
    Times,
    most_frequent,
    pairs_of,
)
from oncall.analysis.lost_time.limits import Limits
from oncall.analysis.lost_time.programs import Programs


@dataclass(frozen=True)
class Segments:
    """Like segments (s,) of one class: `first` (s, r) is each rank's first node, NONE where its
    program differs or is not recorded whole, `length` (r,) its number of nodes; the node behind
    the last one begins the next segment. `number` (s,) orders segments in time. `older`: how
    many earlier ones of the class are left out."""

    number: Ints
    first: Ints
    length: Ints
    older: int = 0


def cuts(programs: Programs, limits: Limits) -> Flags:
    """The nodes (n,) that end segments; none where no collective is common to all ranks.

    Collectives of the communicator of all ranks with the smallest messages; where these are in
    every layer, those calls of it that are rarest.
    """
    collective = ~programs.batch
    everyone = len(programs.ranks)
    size = np.bincount(programs.comm[collective], minlength=len(programs.members))
    volume = np.bincount(
        programs.comm[collective], programs.count[collective], minlength=len(programs.members)
    )
    seen, _ = pairs_of(programs.comm[collective], programs.rank[collective])
    covered = np.bincount(seen, minlength=len(programs.members))
    wide = (covered >= limits.nearly_all * everyone) & (size >= 2 * everyone)
    if everyone < 2 or not wide.any():
        return np.zeros(len(programs.rank), dtype=np.bool_)
    choice = np.flatnonzero(wide)
    order = np.lexsort((size[choice], volume[choice] / size[choice]))
    best = choice[order[0]]
    mine = collective & (programs.comm == best)
    if len(programs.rank) >= limits.fewest * mine.sum():
        return np.asarray(mine)
    return _rarest(programs, collective & wide[programs.comm], limits)


def _rarest(programs: Programs, wide: Flags, limits: Limits) -> Flags:
    """Those calls of all ranks that leave enough between two of them: most often, then smallest."""
    kinds, kind = np.unique(programs.signature[wide], return_inverse=True)
    number = np.bincount(kind)
    small = np.full(len(kinds), np.iinfo(np.int64).max)
    np.minimum.at(small, kind, programs.count[wide])
    rare = (number * limits.fewest <= len(programs.rank)) & (number >= 2 * len(programs.ranks))
    chosen = np.zeros(len(programs.rank), dtype=np.bool_)
    if rare.any():
        some = np.flatnonzero(rare)
        best = some[np.lexsort((small[some], -number[some]))[0]]
        chosen[np.flatnonzero(wide)[kind == best]] = True
    elif len(kinds) <= limits.fewest:
        chosen[wide] = True
    return chosen


def like_segments(programs: Programs, cut: Flags, limits: Limits) -> list[Segments]:
    """The classes of like segments of two at least, the ones that take most nodes first."""
    number, first, length, program = _all_segments(programs, cut)
    if not len(number):
        return []
    present = (first != NONE).mean(1) >= limits.mostly
    classes: list[list[int]] = []
    for one in np.flatnonzero(present)[np.argsort(-(first[present] != NONE).sum(1), kind="stable")]:
        for mates in classes:
            both = (first[one] != NONE) & (first[mates[0]] != NONE)
            if both.any() and (program[one] == program[mates[0]])[both].mean() >= limits.same_calls:
                mates.append(int(one))
                break
        else:
            classes.append([int(one)])
    found = []
    for mates in classes:
        calls = int(length[mates[0]].sum())
        kept = np.array(sorted(mates))[-max(limits.most_compared, limits.most_calls // calls) :]
        common, size = _common_program(program[kept], length[kept])
        same = (program[kept] == common) & (first[kept] != NONE)
        if len(kept) >= 2 and same.any(0).mean() >= limits.nearly_all and size.max() >= 1:
            there = np.where(same, first[kept], NONE)
            found.append(Segments(number[kept], there, size, len(mates) - len(kept)))
    return sorted(found, key=lambda one: -len(one.number) * int(one.length.max()))


def _all_segments(programs: Programs, cut: Flags) -> tuple[Ints, Ints, Ints, Hashes]:
    """Each segment's number (s,), and of each rank in it its first node, its length, and a hash of
    its program (s, r); NONE where calls of the cut's communicator are missing between."""
    at = np.flatnonzero(cut)
    begin, end = at[:-1], at[1:]
    # A call follows on the same rank: it shows when the segment was over.
    last = np.append(np.flatnonzero(np.diff(programs.rank)), len(programs.rank) - 1)
    whole = (programs.rank[begin] == programs.rank[end]) & ~np.isin(end, last)
    begin, end = begin[whole], end[whole]
    if not len(begin):
        empty = np.zeros((0, 0), dtype=np.int64)
        return np.zeros(0, dtype=np.int64), empty, empty, empty.astype(np.uint64)
    counted = np.zeros(len(programs.rank), dtype=np.int64)
    for comm in np.unique(programs.comm[at]):
        mine = np.flatnonzero(programs.comm == comm)
        counted[mine] = np.cumsum(~programs.batch[mine])
    same = programs.comm[begin] == programs.comm[end]
    between = counted[end] - counted[begin] == programs.seq[end] - programs.seq[begin]
    kept = same & between
    begin, end = begin[kept], end[kept]
    key = programs.comm[end] * (1 << 44) + programs.seq[end]
    numbers, segment = np.unique(key, return_inverse=True)
    rank = programs.rank[end]
    weight = np.uint64(0x9E3779B97F4A7C15)
    place = np.zeros(len(programs.rank), dtype=np.int64)
    place[begin + 1] = begin + 1
    np.maximum.accumulate(place, out=place)
    np.subtract(np.arange(len(place)), place, out=place)
    power = np.cumprod(np.full(int(place.max()) + 1, weight), dtype=np.uint64)
    total = power[place]
    total *= programs.signature
    np.cumsum(total, out=total)
    shape = (len(numbers), len(programs.ranks))
    first, length = np.full(shape, NONE), np.zeros(shape, dtype=np.int64)
    program = np.zeros(shape, dtype=np.uint64)
    first[segment, rank] = begin + 1
    length[segment, rank] = end - begin
    program[segment, rank] = total[end] - total[begin]
    # In the order in which they were called.
    when = np.full(len(numbers), np.iinfo(np.int64).max)
    np.minimum.at(when, segment, programs.at_ns[end])
    order = np.argsort(when, kind="stable")
    return numbers[order], first[order], length[order], program[order]


def _common_program(program: Hashes, length: Ints) -> tuple[Hashes, Ints]:
    """What each rank did in most of its segments (r,), and how many nodes that is (r,)."""
    common = most_frequent(program)
    at = np.argmax(program == common, axis=0)
    return common, np.take_along_axis(length, at[None], 0)[0]


@dataclass(frozen=True)
class Measured:
    """Segments (s) of ranks (r) with `width` places each, ns.

    `call` (s, r, width + 1) by each rank's own clock; the entry behind a rank's last node is when
    it left the cut at the end, `left` (s, r) when it left the one before: a host that waits for its
    device there calls next at once; of devices the end of the cut is known. `duration`
    (s, r, width). NaN: not recorded. `known` (s, r).
    `timed`: operations state how long they took.
    """

    begin_ns: int  # what calls are counted from
    left: Times
    call: Times
    duration: Times
    known: Flags
    timed: bool


def measured(programs: Programs, segments: Segments, limits: Limits) -> Measured:
    """The calls and durations of each segment."""
    known = segments.first != NONE
    length, width = np.where(known.any(0), segments.length, 0), int(segments.length.max())
    base = int(programs.at_ns[segments.first[known]].min())
    places = np.arange(width + 1)
    inside = places <= length[:, None]
    behind = places == length[:, None]
    call = np.full((*known.shape, width + 1), np.nan)
    duration = np.full((*known.shape, width), np.nan)
    left = np.full(known.shape, np.nan)
    for at, (first, here) in enumerate(zip(segments.first, known, strict=True)):
        rank, place = np.nonzero(inside & here[:, None])
        node = first[rank] + place
        call[at, rank, place] = programs.at_ns[node] - base
        within = place < length[rank]
        duration[at, rank[within], place[within]] = programs.duration_ns[node[within]]
        if programs.on_device:  # a rank leaves a cut when that is over
            mine, before = np.flatnonzero(here), first[here] - 1
            left[at, mine] = programs.at_ns[before] - base + programs.duration_ns[before]
            ends = behind[rank, place]
            last = node[ends] - 1
            call[at, rank[ends], place[ends]] = (
                programs.at_ns[last] - base + programs.duration_ns[last]
            )
    there = ~np.isnan(call[:, :, :-1])
    timed = bool(there.any() and np.isfinite(duration[there]).mean() > limits.nearly_all)
    return Measured(
        base, left if programs.on_device else call[:, :, 0], call, duration, known, timed
    )
