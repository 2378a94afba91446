"""Whether all ranks of one host come late, though samples that differ in length hide it.

Who is last in an iteration is mostly the rank with the longest sample, of any host. What a hot or
throttled host adds, it adds to all of its ranks: the middle one of them is late in nearly every
iteration. Without it the host's last rank would come earlier by as much.
"""

from __future__ import annotations

from math import comb

import numpy as np

from oncall.analysis.lost_time.chance import at_least
from oncall.analysis.lost_time.judgement import Declined, Entry, Loss, judged
from oncall.analysis.lost_time.latecomers import by_hosts, is_seen
from oncall.analysis.lost_time.lateness import Lateness
from oncall.analysis.lost_time.limits import Limits
from oncall.analysis.lost_time.measured import quantile
from oncall.analysis.lost_time.programs import Flags, Times

_SIZES = (8, 4)  # ranks of a host that have a middle one


def late_hosts(lateness: Lateness, limits: Limits) -> Entry | Declined:
    """The host whose ranks are late as a whole. Of a pipeline it may be a stage, whose lateness is
    its design: not to be asked of one."""
    iterations = lateness.iterations
    found = [one for size in _SIZES if (one := _best(lateness, size, limits)) is not None]
    if not found:
        return Declined("no host's ranks are all later than others'")
    host, gain = max(found, key=lambda one: float(one[1].sum()))
    ranks = np.flatnonzero(host).tolist()
    loss = Loss("own", ranks, gain, iterations.length_ns, iterations.begin_ns, lateness.by)
    late = loss.concerned(limits)
    if late.any() and not is_seen(iterations, late, ~late, float(gain[late].mean()), limits):
        return Declined("iterations are no longer where the host's ranks are late")
    return judged(loss, limits, limits.few)


def _best(lateness: Lateness, size: int, limits: Limits) -> tuple[Flags, Times] | None:
    """The host of so many ranks (r,) whose middle rank is the latest of all hosts' in more
    iterations than chance explains, and what it costs each of them (s,)."""
    share = lateness.share
    of_rank, each = by_hosts(share, lateness.ranks, size)
    hosts = each.shape[1]
    if hosts < 2:
        return None
    middle = quantile(each, 0.5, 2)
    there = np.isfinite(middle)  # of a service, the hosts of one replica
    compared = there.sum(1) > 1
    latest = np.bincount(np.nanargmax(middle[compared], axis=1), minlength=hosts)
    best = int(latest.argmax())
    seen = compared & there[:, best]
    if not seen.any():
        return None
    of = int(there[seen].sum(1).min())
    host = of_rank == best
    chance = at_least(int(latest[best]), int(seen.sum()), 1 / of)
    if min(chance, _apart_by_chance(share[seen], host)) > limits.by_chance / of:
        return None
    if not _all_later(quantile(share[seen], 0.5, 0), host, limits):
        return None
    beside, alone = np.where(host, np.nan, share), np.where(host, share, np.nan)
    shift = quantile(alone, 0.5, 1) - quantile(beside, 0.5, 1)
    last = np.fmax.reduce(alone, axis=1) - np.fmax.reduce(beside, axis=1)
    return host, np.where(seen, np.nan_to_num(np.clip(np.fmin(shift, last), 0.0, 1.0)), 0.0)


def _apart_by_chance(share: Times, host: Flags) -> float:
    """How likely chance alone puts all ranks of the host behind all others in so many iterations
    (s, r): of all choices of as many ranks, one is the last ones. Two hosts need no more than a few
    iterations to be distinguished so."""
    apart = np.fmin.reduce(share[:, host], axis=1) > np.fmax.reduce(share[:, ~host], axis=1)
    ranks = int(np.isfinite(share).sum(1).min())
    mine = int(np.isfinite(share[:, host]).sum(1).min())
    if not 0 < mine < ranks:
        return 1.0
    return at_least(int(apart.sum()), len(share), 1 / comb(ranks, mine))


def _all_later(each: Times, host: Flags, limits: Limits) -> bool:
    """Is a rank of the host later than one of another host in nearly all pairs of them, and all of
    them by about as much? `each` (r,) is the lateness of ranks in the median iteration."""
    others = each[~host & np.isfinite(each)]
    later = each[host][:, None] > others
    by = each[host] - np.median(others)
    alike = np.nanmin(by) >= limits.late_together * np.nanmax(by)
    return bool(alike and later.mean() >= limits.nearly_all)
