"""Whether what a way found is more than noise, and what it costs: judged alike for all ways."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, lgamma, log, log1p

import numpy as np

from oncall.analysis.lost_time.arrays import Flags, Ints, Times
from oncall.analysis.lost_time.limits import Limits

BLOCKS = (1, 2, 3, 4, 6, 8)  # ranks of a host or a pipeline: a whole number of these
_DRAWS = 200  # of iterations: a quantile is exact to a few percent
_QUANTILES = (0.05, 0.95)  # of the mean share: what `low` and `high` are


@dataclass(frozen=True)
class Entry:
    """One cause: `ranks` that share it (more than one: the evidence cannot tell them apart), and
    what each iteration concerned would have been shorter."""

    cause: str  # own, transfer, turns or, unless proven, perhaps
    ranks: tuple[int, ...]
    share: float  # of the iterations concerned, mean
    low: float  # quantiles of that mean
    high: float
    segments: int  # iterations concerned, or calls
    gain_ns: float  # of all of them
    begin_ns: int  # of the first one
    shown_by: str  # as in the relation's column
    until_ns: int | None = None  # the end of the last one, if that is over

    @property
    def proven(self) -> bool:
        return self.cause != "perhaps"


@dataclass(frozen=True)
class Declined:
    """Why a way names nobody."""

    reason: str


Answer = tuple[Entry, ...] | Entry | Declined


@dataclass(frozen=True)
class Loss:
    """What some ranks cost each iteration (s,), as one way sees it: the `share` by which it would
    be shorter without that, and the length it is a share of. `spread`: it is lost before several
    calls of an iteration, as no task that one rank does for all is."""

    cause: str
    ranks: Sequence[int]
    share: Times
    length_ns: Times
    begin_ns: Ints
    shown_by: str
    spread: bool = False

    def concerned(self, limits: Limits) -> Flags:
        """The iterations that lose more than they differ by anyway."""
        return np.asarray(self.share >= limits.least_gain)


def judged(
    loss: Loss, limits: Limits, fewest: int, *, proven: bool = True, always: bool = False
) -> Entry | Declined:
    """The entry of a loss, if `fewest` iterations lose so much, or one as much as if all did, and
    that is worth a word of all the time since. It is a suspicion unless `proven`, or where rank 0
    may be on duty for all others (`always`: in any number of iterations)."""
    concerned = loss.concerned(limits)
    number = int(concerned.sum())
    lost_ns = np.where(concerned, loss.share * loss.length_ns, 0.0)
    if not number:
        return Declined("no iteration would be clearly shorter without it")
    if number < fewest and not counts_alone(float(lost_ns.sum()), loss.length_ns, limits):
        return Declined("too few iterations would be shorter without it")
    clear = loss.share >= much(loss.share, limits)
    begin_ns = int(loss.begin_ns[clear].min())  # a small loss long before is chance
    since = loss.begin_ns >= begin_ns
    if lost_ns.sum() < limits.negligible * loss.length_ns[since].sum():
        return Declined("it costs hardly anything of all the time since")
    values = loss.share[concerned]
    mean = float(values.mean())
    in_order = concerned[np.argsort(loss.begin_ns, kind="stable")]
    tasks = loss.cause == "own" and not loss.spread
    duty = tasks and is_duty(loss.ranks, mean, in_order, limits, always)
    drawn = np.random.default_rng(0).choice(values, (_DRAWS, number)).mean(1)
    low, high = np.quantile(drawn, _QUANTILES)
    return Entry(
        cause=loss.cause if proven and not duty else "perhaps",
        ranks=tuple(map(int, loss.ranks)),
        share=mean,
        low=float(low),
        high=float(high),
        segments=number,
        gain_ns=float(lost_ns.sum()),
        begin_ns=begin_ns,
        shown_by=loss.shown_by,
        until_ns=_over_at(loss, clear, limits),
    )


def much(share: Times, limits: Limits) -> float:
    """Half of what most of the costly iterations cost, of all (s,): as much counts as the same."""
    costly = share[share >= limits.least_gain]
    return max(float(np.median(costly)) * limits.mostly, limits.least_gain) if len(costly) else 0.0


def _over_at(loss: Loss, clear: Flags, limits: Limits) -> int | None:
    """The end of the last iteration that clearly costs something, if more follow than one may
    differ among, and twice as many as lie between any two that do."""
    order = np.argsort(loss.begin_ns, kind="stable")
    at = np.flatnonzero(clear[order])
    left, between = len(order) - 1 - int(at[-1]), int(np.diff(at).max(initial=1)) - 1
    if left < max(limits.event, limits.stands_out * between):
        return None
    last = order[at[-1]]
    return int(loss.begin_ns[last] + loss.length_ns[last])


def stands_out(share: Times, best: int, limits: Limits) -> bool:
    """Whether one of several candidates (c, s) costs clearly more than each other one, and is the
    worst one more often than chance explains."""
    counted = np.where(share >= limits.least_gain / 2, share, 0).sum(1)
    others = np.delete(counted, best)
    if len(others) and counted[best] < limits.stands_out * others.max():
        return False
    return not chance(share, best, len(share), limits)


def chance(share: Times, best: int, of: float, limits: Limits) -> bool:
    """Whether others cost half as much at times, and chance explains how often the best of several
    candidates (c, s), one of so many, is the worst one."""
    mine, others = share[best], np.delete(share, best, 0)
    return bool((others >= much(mine, limits)).any()) and by_turns(mine, share.max(0), of, limits)


def by_turns(mine: Times, worst: Times, of: float, limits: Limits) -> bool:
    """Whether chance explains how often a rank is the worst one. Where samples differ in length, or
    hosts are busy with something else, each rank is as late as that by turns.

    `mine` (n,) is the share of iterations that the rank costs, `worst` (s,) that of the worst rank
    of each; `of` is the number of ranks (or of blocks of them).
    """
    if not (mine >= limits.least_gain).any():
        return True
    least = much(mine, limits)
    times = int((mine >= least).sum())
    turns = max(times, int((worst >= least).sum()))
    return at_least(times, turns, 1 / of) > limits.by_chance / of


def at_least(number: int, of: int, part: float) -> float:
    """How likely it is that what comes by turns comes so often (binomial). In logarithms: the
    coefficients of a thousand iterations exceed a float."""
    if part >= 1:  # too few others were recorded to compare with
        return 1.0

    def log_chance(k: int) -> float:
        ways = lgamma(of + 1) - lgamma(k + 1) - lgamma(of - k + 1)
        return ways + k * log(part) + (of - k) * log1p(-part)

    return sum(exp(log_chance(k)) for k in range(number, of + 1))


def counts_alone(lost_ns: float, length_ns: Times, limits: Limits) -> bool:
    """Whether one iteration lost as much as if all of them (s,) were a little longer."""
    iterations = max(len(length_ns), limits.few)
    return bool(lost_ns >= limits.least_gain * iterations * length_ns.mean())


def is_duty(
    ranks: Sequence[int], share: float, late: Flags, limits: Limits, always: bool = False
) -> bool:
    """Whether ranks may be late because they save for all others, as rank 0 does, or all of its
    replica: never in two iterations (s,) in a row, in order of time; or because rank 0 logs, by a
    small `share` of them, `always`."""
    now_and_then = bool(late.any() and (np.diff(np.flatnonzero(late)) > 1).all())
    logs = always and share < limits.large and tuple(ranks) == (0,)
    return 0 in ranks and (now_and_then or logs)
