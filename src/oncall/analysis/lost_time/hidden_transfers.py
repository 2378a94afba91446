"""Transfers that became longer though iterations hardly did: computation may hide them."""

from __future__ import annotations

from dataclasses import replace
from functools import reduce

import numpy as np

from oncall.analysis.lost_time.changes import change_entry
from oncall.analysis.lost_time.iterations import Iterations
from oncall.analysis.lost_time.judgement import Declined, Entry
from oncall.analysis.lost_time.limits import Limits
from oncall.analysis.lost_time.programs import Programs
from oncall.analysis.lost_time.slowdowns import Slowdown, lasting
from oncall.analysis.lost_time.transfers import taken


def longer_transfers(
    programs: Programs, iterations: Iterations, limits: Limits
) -> Entry | Declined:
    """The groups whose transfers take longer for good, as far as they are recorded: computation
    hides them there, which says nothing of the rest of the job. Their share is the most that they
    may cost. A communicator makes one transfer after the other: what these take beyond an iteration
    of before is lost for certain."""
    taken_ns = taken(programs, iterations, limits)
    length_ns = float(np.median(iterations.length_ns))
    found: dict[int, Slowdown] = {}
    for comm in np.flatnonzero(np.isfinite(taken_ns).all(0)):
        for change in lasting(taken_ns[:, comm], iterations.begin_ns, limits)[:1]:
            now_ns = np.median(taken_ns[change.concerns(iterations.begin_ns), comm])
            share = float(change.share * now_ns / length_ns)
            if share >= limits.large and change.segments >= limits.few:
                found[int(comm)] = replace(change, share=share)
    if not found:
        return Declined("no group's transfers became longer for good")
    members = [np.asarray(programs.members[comm]) for comm in found]
    ranks = reduce(np.intersect1d, members)
    ranks = ranks if len(ranks) else reduce(np.union1d, members)
    slowest = max(found, key=lambda comm: found[comm].share)
    most = found[slowest]
    longer = most.concerns(iterations.begin_ns)
    now_ns = float(np.median(taken_ns[longer, slowest]))
    least = 1 - float(np.median(iterations.length_ns[~longer])) / now_ns
    if least >= limits.least_gain and iterations.ask_for_the_same(limits):
        lengths_ns = np.full(longer.sum(), now_ns)
        return change_entry("transfer", ranks, least, replace(most, share=least), lengths_ns)
    entry = change_entry("perhaps", ranks, 0.0, most, iterations.length_ns[longer])
    return replace(entry, shown_by="overlap")
