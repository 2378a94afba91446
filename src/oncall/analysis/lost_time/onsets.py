"""Who changed at the moment from which all iterations are longer.

Hosts run ahead of their devices, and ranks of one role may each do something else: then lateness
shows a part of what a rank costs, or cannot be compared with its peers'. But a rank that has come
later in every iteration since the job became slower, and no other has, did not do so by chance.
"""

from __future__ import annotations

import numpy as np

from oncall.analysis.lost_time.causes import Entry
from oncall.analysis.lost_time.lateness import Lateness
from oncall.analysis.lost_time.limits import Limits
from oncall.analysis.lost_time.measured import quantile
from oncall.analysis.lost_time.programs import Ints, Times
from oncall.analysis.lost_time.slowdowns import Slowdown


def late_since(slowdown: Slowdown, lateness: Lateness, limits: Limits) -> Entry | None:
    """The rank, or the neighbours on a host, that alone came later since the slowdown began."""
    iterations = lateness.iterations
    after = iterations.begin_ns >= slowdown.begin_ns
    if min(after.sum(), (~after).sum()) < limits.repeats:
        return None
    late_ns = lateness.late_ns
    change_ns = quantile(late_ns[after], 0.5, 0) - quantile(late_ns[~after], 0.5, 0)
    change_ns = np.nan_to_num(change_ns)
    ranks = _stand_out(change_ns, limits)
    if ranks is None or not _each_time(late_ns[after][:, ranks], late_ns[~after][:, ranks]):
        return None
    length_ns = float(np.median(iterations.length_ns[after]))
    shown = float(change_ns[ranks].min()) / length_ns
    if shown < limits.least_gain / 2:
        return None
    return Entry(
        cause="own",
        ranks=tuple(map(int, ranks)),
        share=slowdown.share,
        low=min(shown, slowdown.share),
        segments=int(after.sum()),
        gain_ns=slowdown.share * float(iterations.length_ns[after].sum()),
        begin_ns=slowdown.begin_ns,
    )


def _stand_out(change_ns: Times, limits: Limits) -> Ints | None:
    """The ranks that changed alike, and clearly more than all others; None if they are no
    neighbours, or most ranks did."""
    change_ns = change_ns - quantile(change_ns, 0.25, 0)  # of those that did not
    ranks = np.flatnonzero(change_ns >= limits.as_late * change_ns.max())
    others = np.delete(np.abs(change_ns), ranks)
    if not len(others) or change_ns[ranks].min() < limits.stands_out * others.max():
        return None
    neighbours = int(ranks[-1] - ranks[0]) == len(ranks) - 1 and not ranks[0] % len(ranks)
    return ranks if neighbours and 2 * len(ranks) <= len(change_ns) else None


def _each_time(after: Times, before: Times) -> bool:
    """Was each rank later in all iterations after than in any before (s, r)?"""
    return bool((np.nanmin(after, 0) > np.nanmax(before, 0)).all())
