"""By how many calls a host runs ahead of its device, and who would go on too early with that lead.

The host calls ahead, so its call of operation p + lead shows where the device was at operation p.
The lead is one number of a job: the smallest with which calls are possible.
"""

from __future__ import annotations

import numpy as np

from oncall.analysis.lost_time.graph import Graph
from oncall.analysis.lost_time.limits import Limits
from oncall.analysis.lost_time.measured import Measured, median
from oncall.analysis.lost_time.programs import Ints, Times


def lead_of(graph: Graph, times: Measured, limits: Limits) -> int:
    """The smallest lead with which the calls are (nearly) as possible as with the best one."""
    shortest = int(graph.length[graph.length > 0].min())
    leads = range(max(1, min(limits.most_lead + 1, shortest - 4)))
    if times.timed:
        bad = np.array([_too_soon_for_durations(graph, times, lead, limits) for lead in leads])
        good = bad <= bad.min() * limits.equally_good + limits.negligible
        return int(np.argmax(good))
    _, number = np.unique(kinds_of_waits(graph), return_counts=True)
    relative = relative_calls(times)
    bad = np.array([_before_others(graph, relative, lead) for lead in leads])
    # What goes on beside its members does so with any lead, and shows none.
    waited = bad.min(0) <= limits.overlaps_time
    if not waited.any():
        waited[:] = True
    possible = bad <= bad.min(0) * limits.equally_good + limits.at_once
    return int(np.argmax((possible * number * waited).sum(1)))


def relative_calls(times: Measured) -> Times:
    """Calls (s, r, width + 1) from when the median rank began each segment."""
    return times.call - median(times.call[:, :, 0], 1)[:, None, None]


def _nodes_of(call: Times, graph: Graph) -> Times:
    """Calls of nodes alone (s, r, width): without the first one of the next segment."""
    return np.where(graph.exists, call[:, :, :-1], np.nan)


def _too_soon_for_durations(graph: Graph, times: Measured, lead: int, limits: Limits) -> float:
    """The share of places where calls leave no room for the operation between them."""
    call = _nodes_of(times.call, graph)
    gap = call[:, :, lead + 1 :] - call[:, :, lead:-1] if lead + 1 < graph.width else call[:, :, :0]
    duration = times.duration[:, :, : gap.shape[2]]
    room = median(gap - duration, 0)
    baseline = median(np.where(np.isnan(gap), np.nan, duration), 0)
    seen = ~np.isnan(room)
    bad = room < -limits.least_gain * baseline - limits.at_once
    # One place more or less says nothing: a long lead leaves few of them.
    return float((bad[seen].sum() / len(seen) + 0.5) / (seen.sum() / len(seen) + 1))


def kinds_of_waits(graph: Graph) -> Ints:
    """A number for each member of a round (entries,), then each side of a transfer (2 t,): who
    waits in operations of one kind waits alike."""
    rounds = graph.rounds
    of_rounds = np.stack([rounds.op, rounds.count])
    _, kind = np.unique(of_rounds, axis=1, return_inverse=True)
    return np.append(kind.ravel()[rounds.of] + 1, np.zeros(2 * len(graph.sender), dtype=np.int64))


def _before_others(graph: Graph, relative: Times, lead: int) -> Times:
    """By how long, on average, ranks would go on before the last of those they wait for has called,
    for each kind of waits, ns."""
    early = np.concatenate(gone_early(graph, relative, lead))
    _, kind = np.unique(kinds_of_waits(graph), return_inverse=True)
    seen = ~np.isnan(early)
    total = np.bincount(kind, np.where(seen, early, 0))
    return np.asarray(total / np.maximum(np.bincount(kind, seen), 1))


def gone_early(graph: Graph, relative: Times, lead: int) -> tuple[Times, Times]:
    """By how much each member of a round (entries,), and each side of a transfer (2 t,), goes on
    before the last of them has called, ns: the median over segments, as a host that stalls calls
    late what its device has done; NaN where that is not seen."""
    call = _nodes_of(relative, graph)
    at = np.full_like(call, np.nan)
    after = np.full_like(call, np.nan)
    at[:, :, : graph.width - lead] = call[:, :, lead:]
    after[:, :, : graph.width - lead - 1] = call[:, :, lead + 1 :]
    at, after = (np.where(np.isnan(after), np.nan, x).reshape(len(call), -1) for x in (at, after))
    rounds, sides = graph.rounds, np.concatenate([graph.sender, graph.receiver])
    early = np.zeros((len(call), 0))
    if len(rounds):
        latest = np.fmax.reduceat(at[:, rounds.nodes], rounds.start, axis=1)
        early = np.maximum(0, latest[:, rounds.of] - after[:, rounds.nodes])
    latest = np.tile(np.fmax(at[:, graph.sender], at[:, graph.receiver]), 2)
    return median(early, 0), median(np.maximum(0, latest - after[:, sides]), 0)


def lengths(graph: Graph, times: Measured) -> Times:
    """How long each segment took (s,)."""
    whole = at_place(times.call, graph.length) - times.left
    return median(np.where(times.known, whole, np.nan), 1)


def at_place(values: Times, place: Ints) -> Times:
    """Of each segment and rank the value at one place (s, r); `place` (r,)."""
    where = np.broadcast_to(place[None, :, None], (*values.shape[:2], 1))
    return np.asarray(np.take_along_axis(values, where, 2)[:, :, 0])
