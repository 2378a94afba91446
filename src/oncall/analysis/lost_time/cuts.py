"""Which calls end iterations: of a kind that hosts wait in, and that comes once in each."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from itertools import product

import numpy as np

from oncall.analysis.common.ordering import order_of
from oncall.analysis.common.quantiles import median_of_alike
from oncall.analysis.lost_time.arrays import NONE, Flags, Ints, Times, numbered
from oncall.analysis.lost_time.limits import Limits
from oncall.analysis.lost_time.moments import Moments
from oncall.analysis.lost_time.programs import Programs


def cuts(programs: Programs, moments: Moments, limits: Limits) -> Flags:
    """The collectives (n,) of the largest groups that hosts wait in, or that show who waited; of
    these the rarest kind that is called often enough. Every rank has such a group; where stages of
    a pipeline call it in different ways, those of smaller groups show iterations.

    What comes back after as many calls, as a rule, is preferred, if need be by the call before, or
    the first after a longer time without: sharded jobs call few kinds, and all of them many times
    an iteration.
    """
    signature = programs.signature.astype(np.int64)
    size = np.array([len(line) for line in programs.members])[programs.comm]
    kind = numbered(size, signature)
    wide = size == len(programs.ranks)
    enough = limits.fewest, limits.few
    regular = limits.nearly_all, limits.same_calls
    called = moments.waits, moments.shown
    kinds: tuple[Callable[[], Ints], ...] = (  # mostly the first will do
        lambda: kind,
        cache(lambda: numbered(kind, np.roll(signature, 1))),
        cache(
            lambda: np.where(wide & _first_again(numbered(kind, programs.rank), limits), kind, NONE)
        ),
    )
    for any_size, fewest, often, one, calls in product(
        (False, True), enough, regular, kinds, called
    ):
        mine = np.where(calls, one(), NONE)
        cut = _rarest(programs, moments, size, mine, often, fewest, limits, any_size)
        if cut.any():
            return cut
    if moments.timed:
        return np.zeros(len(size), dtype=np.bool_)
    waits = np.where(moments.waits, kind, NONE)
    return _rarest(programs, moments, size, waits, 0, limits.few, limits)


def _first_again(line: Ints, limits: Limits) -> Flags:
    """Whether each one (n,) lies clearly further behind the last of its line than most do, and so
    few do that it is the exception."""
    order = np.argsort(line, kind="stable")
    again = np.flatnonzero(np.diff(line[order]) == 0) + 1
    spacing = order[again] - order[again - 1]
    mostly, _ = median_of_alike(line[order[again]], spacing.astype(np.float64))
    found = np.zeros(len(line), dtype=np.bool_)
    found[order[again]] = spacing > (1 + limits.hardly) * mostly
    return found & (limits.few * np.bincount(line, found) <= np.bincount(line))[line]


def even_cuts(programs: Programs, moments: Moments, limits: Limits) -> Flags:
    """Where no call tells iterations apart, calls (n,) at equal times, of the groups of all ranks,
    or of those that share out the ranks, as replicas of a service do: a stretch as long as an
    iteration shows as well who is late in it."""
    size = np.array([len(line) for line in programs.members])[programs.comm]
    found = np.zeros(len(size), dtype=np.bool_)
    shown = np.flatnonzero(moments.shown & (size > 1))
    shown = shown[size[shown] == size[shown].max(initial=0)]
    if len(np.unique(programs.rank[shown])) < limits.nearly_all * len(programs.ranks):
        return found
    for comm in np.unique(programs.comm[shown]):
        mine = shown[programs.comm[shown] == comm]
        calls, nth = np.unique(programs.seq[mine], return_inverse=True)
        first_ns = np.full(len(calls), np.iinfo(np.int64).max)
        np.minimum.at(first_ns, nth, moments.reached_ns[mine])
        passed_ns = first_ns - first_ns.min()
        stretch = passed_ns * limits.enough // (int(passed_ns.max()) + 1)
        found[mine] = (np.diff(stretch, prepend=NONE) > 0)[nth]
    return found


def _rarest(
    programs: Programs,
    moments: Moments,
    size: Ints,
    kind: Ints,
    regular: float,
    fewest: int,
    limits: Limits,
    any_size: bool = False,
) -> Flags:
    """Of the kinds (n,) that nearly all ranks call often enough for so many iterations, and at
    least so regularly, the calls (n,) of the rarest in the largest groups: in those that are called
    as often, or in the largest of `any_size` that are called as regularly."""
    at = np.flatnonzero(kind != NONE)
    if not len(at):
        return np.zeros(len(kind), dtype=np.bool_)
    ranks, callers = len(programs.ranks), np.bincount(kind[at])
    seen = np.unique(kind[at] << 32 | programs.rank[at]) >> 32
    chosen = np.bincount(seen, minlength=len(callers)) >= limits.nearly_all * ranks
    chosen &= callers / ranks >= fewest + 1
    large = np.zeros(len(callers), dtype=np.int64)
    large[kind[at]] = size[at]
    if not any_size:
        chosen &= large == large[chosen].max(initial=0)
    reached_ns = moments.reached_ns[at]
    often, covered, calls, each = _regularity(at, programs.rank[at], kind[at], reached_ns, limits)
    # Else each call were an iteration, and who lags by one without a loss were late.
    chosen &= each > 1
    most = limits.mostly if moments.timed else limits.hardly
    chosen &= (often >= regular) & (covered >= most)
    chosen &= calls >= limits.mostly * len(kind)
    chosen &= large == large[chosen].max(initial=0)
    best = np.lexsort((callers, ~chosen))[0]
    return np.asarray((kind == best) & chosen[best])


def _regularity(
    at: Ints, rank: Ints, kind: Ints, at_ns: Ints, limits: Limits
) -> tuple[Times, Times, Times, Times]:
    """Which part of the times each kind comes back after about the rank's median number of calls,
    which part of the time from its first call to its last that is, how many calls lie between, and
    the median of all ranks."""
    order = order_of(kind)  # calls come by rank, then in their order
    same = (np.diff(kind[order]) == 0) & (np.diff(rank[order]) == 0)
    again, spacing = kind[order][1:][same], np.diff(at[order])[same]
    of_rank = numbered(again, rank[order][1:][same])
    took_ns = np.diff(at_ns[order])[same]
    kinds = int(kind.max()) + 1
    common = np.zeros(kinds)
    common[again] = median_of_alike(again, spacing)[0]
    own, _ = median_of_alike(of_rank, spacing)  # stages of a pipeline make more calls or fewer
    regular = np.abs(spacing - own) <= limits.hardly * own

    def part(of: Ints) -> Times:
        whole = np.bincount(again, of, kinds)
        return np.bincount(again, of * regular, kinds) / np.maximum(whole, 1)

    calls = np.bincount(again, spacing, kinds).astype(np.float64)
    return part(np.ones_like(took_ns)), part(took_ns), calls, common
