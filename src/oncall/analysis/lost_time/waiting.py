"""Own time, waiting and transfer, from durations or from calls alone.

As docs/decisions/018-lost-time-by-replay.md says under 2.

The host calls ahead, so its call of operation p + lead shows where the device was at operation p.
The lead is one number of a job: the smallest with which calls are possible. The host waits for the
device at a cut, so the last `lead` places are not seen one by one; their sum is.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from oncall.analysis.common.quantiles import median
from oncall.analysis.lost_time.arrays import Flags, Ints, Times, few_ranks, smallest
from oncall.analysis.lost_time.graph import Graph, Groups, Spent
from oncall.analysis.lost_time.limits import Limits
from oncall.analysis.lost_time.segments import Measured

_OVERLAPPING = ("ReduceScatter", "AllReduce", "AllGather")


def spent(
    graph: Graph, groups: Groups, times: Measured, lead: int | None, exact: bool, limits: Limits
) -> Spent | None:
    """Where the time of each segment went; None if the programs are too short for the lead.

    `exact`: calls are those of the device, so there is no lead. Without durations `times` are on
    one time axis.
    """
    if lead is None:
        lead = 0 if exact else lead_of(graph, times, limits)
    if lead and graph.length[graph.length > 0].min() < lead + 3:
        return None
    if times.timed:
        impossible = _too_soon_for_durations(graph, times, lead, limits)
        found = _from_durations(graph, groups, times, lead, limits)
        return replace(found, in_step=exact or impossible < limits.mostly)
    relative = relative_calls(times)
    beside = _asynchronous_calls(graph, groups, relative, lead, limits)
    own = _from_calls(graph, times, relative, lead, beside)
    backwards = -np.nansum(np.minimum(own, 0), axis=(1, 2))
    own = np.maximum(own, 0)  # what is late once, and not waited for, counts once
    empty = np.zeros((len(own), len(graph.rounds))), np.zeros((len(own), len(graph.sender)))
    return Spent(own, *empty, beside, lead, backwards)


def _may_overlap(graph: Graph, groups: Groups) -> Flags:
    """The rounds (k,) of gradients and parameters, which frameworks let go on beside: not those of
    tensor groups, nor the cut."""
    rounds = graph.rounds
    named = np.array([name in _OVERLAPPING for name in groups.ops], dtype=np.bool_)
    first = rounds.nodes[rounds.start]
    is_cut = first % graph.width == graph.length[first // graph.width] - 1
    return np.asarray(named[rounds.op] & ~is_cut & ~groups.tight_rounds)


def _asynchronous_calls(
    graph: Graph, groups: Groups, relative: Times, lead: int, limits: Limits
) -> Flags:
    """Collectives (nodes,) beside which their members go on, by calls alone: who waits cannot call
    on before the last member has called."""
    rounds = graph.rounds
    beside = np.zeros(graph.ranks * graph.width, dtype=np.bool_)
    chosen = _may_overlap(graph, groups)[rounds.of]
    early, _ = gone_early(graph, relative, lead)
    kind = kinds_of_waits(graph)[: len(rounds.nodes)]
    for one in np.unique(kind[chosen]):
        mine = chosen & (kind == one)
        seen = early[mine & ~np.isnan(early)]
        if len(seen) and seen.mean() > limits.overlaps_time:
            beside[rounds.nodes[mine]] = True
    return beside


def _from_durations(
    graph: Graph, groups: Groups, times: Measured, lead: int, limits: Limits
) -> Spent:
    """Own time is the gap between two calls less the operation before: no clock but its own."""
    segments, ranks, width = times.duration.shape
    asynchronous = _asynchronous(graph, groups, times, lead, limits)
    beside = asynchronous.reshape(ranks, width)
    complete = times.known.copy()
    own = np.empty_like(times.duration)
    rest = _rest(graph, groups, times, beside, lead) if lead else None
    for some in few_ranks(own):
        complete[:, some] &= (~np.isnan(times.duration[:, some]) | ~graph.exists[some]).all(2)
        own[:, some] = _gaps(graph, times, beside, lead, rest, some)
    own[~complete] = np.nan
    rounds = np.empty((segments, len(graph.rounds)))
    transfers = np.empty((segments, len(graph.sender)))
    for segment, took in enumerate(times.duration):
        known = np.where(complete[segment][:, None], took, np.nan).ravel()
        # Of a round that its last member did not record, the others only show how long they waited.
        rounds[segment] = np.minimum.reduceat(known[graph.rounds.nodes], graph.rounds.start)
        transfers[segment] = np.minimum(known[graph.sender], known[graph.receiver])
    _settle(graph, own, limits)
    return Spent(own, rounds, transfers, asynchronous, lead, np.zeros(segments))


def _gaps(
    graph: Graph, times: Measured, beside: Flags, lead: int, rest: Times | None, some: slice
) -> Times:
    """The time between the calls of some ranks that is in no operation (s, ranks, width); of the
    last places each its part of the `rest` (s, r)."""
    exists, beside, took = graph.exists[some], beside[some], times.duration[:, some]
    place, seen = np.arange(graph.width), (graph.length[some] - lead)[:, None]
    gap = np.diff(times.call[:, some], axis=2)
    own = np.full_like(took, np.nan)
    shown = gap[:, :, lead:][:, :, : graph.width - 1]  # one by one
    own[:, :, 1 : shown.shape[2] + 1] = shown
    own[:, :, 1:] -= np.where(beside, 0, took)[:, :, :-1]
    own[~np.broadcast_to(place < seen, own.shape)] = np.nan
    own[:, :, 0] = times.call[:, some, lead] - times.left[:, some]
    if rest is not None:
        own = np.where((place >= seen) & exists, rest[:, some, None] / lead, own)
    own = np.where(exists, own, 0)
    return _joined(graph.length[some], own, took, beside) if beside.any() else own


def _rest(graph: Graph, groups: Groups, times: Measured, beside: Flags, lead: int) -> Times:
    """Of the last places together the time that is in no operation (s, r)."""
    tail = (np.arange(graph.width) >= (graph.length - lead)[:, None] - 1) & graph.exists & ~beside
    last = np.maximum(graph.length - 1, 0)
    rest = at_place(times.call, last + 1) - at_place(times.call, last)
    rest = rest - np.stack([np.where(tail, each, 0).sum(1) for each in times.duration])
    return _without_waiting(graph, groups, times, rest, beside, lead)


def _asynchronous(
    graph: Graph, groups: Groups, times: Measured, lead: int, limits: Limits
) -> Flags:
    """Collectives (nodes,) beside which their members go on: the next calls leave them no room."""
    _, ranks, width = times.duration.shape
    last = np.arange(width) >= (graph.length - 1 - lead)[:, None]
    baseline, room = np.empty((2, ranks, width))
    for some in few_ranks(times.duration):
        took = times.duration[:, some]
        shifted = np.full_like(took, np.nan)
        shifted[:, :, : width - lead] = np.diff(times.call[:, some], axis=2)[:, :, lead:]
        baseline[some] = median(took, 0)
        room[some] = median(np.where(last[some], np.nan, shifted) - took, 0)
    overlaps = (room < -limits.ordinary * baseline) & (room < -limits.overlaps_time)
    rounds = graph.rounds
    flat = overlaps.ravel()[rounds.nodes]
    share = np.add.reduceat(flat.astype(np.float64), rounds.start) / rounds.size
    kinds = list(zip(rounds.op.tolist(), rounds.count.tolist(), strict=True))
    flagged = {kinds[k] for k in np.flatnonzero(share > 0.5)}
    beside = np.zeros(ranks * width, dtype=np.bool_)
    chosen = (
        np.array([kind in flagged for kind in kinds], dtype=np.bool_)
        & (rounds.size < ranks)
        & ~groups.tight_rounds
    ) | (share > 0.5)
    beside[rounds.nodes[chosen[rounds.of]]] = True
    return beside


def _without_waiting(
    graph: Graph, groups: Groups, times: Measured, rest: Times, beside: Flags, lead: int
) -> Times:
    """What the last places took of a rank's own: where some overlap, the sum holds waiting, and
    only what the tensor group waited for the rank is its own."""
    found = rest.copy()
    width = graph.width
    tight = np.zeros(graph.ranks * width, dtype=np.bool_)
    tight[graph.rounds.nodes[groups.tight_rounds[graph.rounds.of]]] = True
    for rank in np.flatnonzero(beside.any(1)):
        length = int(graph.length[rank])
        mates = groups.mates(int(rank))
        more = np.zeros(len(rest))
        for place in range(max(length - lead, 0), length) if len(mates) else []:
            if not beside[rank, place] and tight[rank * width + place]:
                theirs = median(times.duration[:, mates, place], 1)
                more += np.nan_to_num(np.maximum(0, theirs - times.duration[:, rank, place]))
        peers = np.flatnonzero(graph.role == graph.role[rank])
        found[:, rank] = np.clip(smallest(rest[:, peers], 1) + more, None, rest[:, rank])
    return found


def _joined(length: Ints, own: Times, took: Times, beside: Flags) -> Times:
    """Waiting at the join for what is asynchronous is no own time; of some ranks, `length` (r,)."""
    own = own.copy()
    pending = np.full(own.shape[:2], -np.inf)
    at = own[:, :, 0].copy()
    after = np.cumsum(beside[:, ::-1], axis=1)[:, ::-1] > 0  # asynchronous ones from here on
    for place in range(own.shape[2]):
        if place:
            at = at + np.nan_to_num(own[:, :, place])
        mine, takes = beside[:, place], np.nan_to_num(took[:, :, place])
        pending = np.where(mine, np.fmax(pending, at + takes), pending)
        joins = ~mine & ~after[:, place] & np.isfinite(pending) & (place > 0) & (place < length)
        before = at - np.nan_to_num(own[:, :, place])
        waited = np.clip(pending - before, 0, np.maximum(np.nan_to_num(own[:, :, place]), 0))
        own[:, :, place] -= np.where(joins, waited, 0)
        pending = np.where(joins, -np.inf, pending)
        at = at + np.where(mine, 0, takes)
    return own


def _settle(graph: Graph, own: Times, limits: Limits) -> None:
    """Put right what calls show at another place than where it was: what a place lacks to half of
    the baseline.

    A host that is further ahead of its device than elsewhere calls on at once and then waits: what
    is lacking shows as an excess at one of the next places. A host that stalls calls late, and
    then several times at once: what the burst makes up for was no loss. So what is still lacking
    is taken from the place before.
    """
    segments, _, width = own.shape
    of_role = np.full((segments, int(graph.role.max()) + 1, width), np.nan)
    for role, number in enumerate(np.bincount(graph.role).tolist()):
        if number >= 3:
            mine = np.flatnonzero(graph.role == role)
            of_role[:, role] = [median(each[mine], 0) for each in own]
    for some in few_ranks(own):
        here = own[:, some]
        baseline = np.fmin(median(here, 0)[None], of_role[:, graph.role[some]])
        _move(here, np.nan_to_num(np.maximum(baseline, 0)), limits)


def _move(own: Times, baseline: Times, limits: Limits) -> None:
    """The same of some ranks, with what their places mostly take."""
    floor = 0.5 * baseline
    for ahead in range(1, min(limits.most_lead, own.shape[2] - 1) + 1):
        here, there = own[:, :, :-ahead], own[:, :, ahead:]
        lacks = np.maximum(floor[:, :, :-ahead] - here, 0)
        moved = np.nan_to_num(np.minimum(lacks, np.maximum(there - baseline[:, :, ahead:], 0)))
        here += moved
        there -= moved
    for place in range(own.shape[2] - 1, 0, -1):
        lacks = np.nan_to_num(np.minimum(own[:, :, place] - floor[:, :, place], 0))
        own[:, :, place] -= lacks
        own[:, :, place - 1] += lacks


def _from_calls(graph: Graph, times: Measured, relative: Times, lead: int, beside: Flags) -> Times:
    """Waiting is the last member's call less one's own; transfers stay within the next own time.
    For what goes on `beside` (nodes,) a rank waits after the last of it."""
    segments, ranks, width = times.duration.shape
    begun = np.full((segments, ranks, width), np.nan)
    begun[:, :, : width - lead] = relative[:, :, lead:-1]
    begun = np.where(np.arange(width) < (graph.length - lead)[:, None], begun, np.nan)
    at = begun.reshape(segments, -1)
    over = np.full_like(at, np.nan)
    lost = np.zeros(at.shape, dtype=np.bool_)
    gone = np.repeat(~times.known, width, axis=1)
    lost[:, graph.unmatched] = True
    rounds = graph.rounds
    if len(rounds):
        latest = np.fmax.reduceat(at[:, rounds.nodes], rounds.start, axis=1)
        over[:, rounds.nodes] = latest[:, rounds.of]
        missing = np.logical_or.reduceat(gone[:, rounds.nodes], rounds.start, axis=1)
        missing |= ~rounds.whole & (rounds.size < ranks)  # for one that all lack, all wait alike
        lost[:, rounds.nodes] = missing[:, rounds.of]
    if len(graph.sender):
        latest = np.fmax(at[:, graph.sender], at[:, graph.receiver])
        missing = gone[:, graph.sender] | gone[:, graph.receiver]
        for side in (graph.sender, graph.receiver):
            for segment in range(segments):
                np.fmax.at(over[segment], side, latest[segment])
                np.logical_or.at(lost[segment], side, missing[segment])
    over = np.where(np.isnan(over), at, over).reshape(segments, ranks, width)
    _wait_at_joins(over, at.reshape(over.shape), beside.reshape(ranks, width))
    lost = lost.reshape(over.shape)
    own = np.full_like(begun, np.nan)
    own[:, :, 1:] = np.where(lost[:, :, :-1], np.nan, begun[:, :, 1:] - over[:, :, :-1])
    own[:, :, 0] = begun[:, :, 0]
    if lead:
        end = median(at_place(relative, graph.length), 1)
        rest = end[:, None] - at_place(over, np.maximum(graph.length - 1 - lead, 0))
        for role in np.unique(graph.role):
            mine = np.flatnonzero(graph.role == role)
            rest[:, mine] = smallest(rest[:, mine], 1)[:, None]
        tail = (np.arange(width) >= (graph.length - lead)[:, None]) & graph.exists
        own = np.where(tail, rest[:, :, None] / lead, own)
    return own


def _wait_at_joins(over: Times, at: Times, beside: Flags) -> None:
    """Let ranks go on `beside` (r, width) their calls, and wait for all of them after the last."""
    for rank in np.flatnonzero(beside.any(1)):
        mine = np.flatnonzero(beside[rank])
        pending = np.fmax.reduce(over[:, rank, mine], axis=1)
        over[:, rank, mine] = at[:, rank, mine]
        over[:, rank, mine[-1]] = pending


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
