"""The accounts of a job's lost time: one for each class of similar iterations.

Of calls alone, clocks are put right by what all hosts do together: all leave a cut together, so a
rank that seems to leave early or late there has a clock that is off by as much. A rank may be late
for other reasons: only its early iterations count. This fails where a host works for long before
its first call after the cut. So clocks are left as they are if, by them, no host goes on from a
call before its last member has come.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from oncall.analysis.common.quantiles import median, quantile
from oncall.analysis.lost_time.arrays import Times
from oncall.analysis.lost_time.baselines import account_of
from oncall.analysis.lost_time.causes import Books, Class, replayed
from oncall.analysis.lost_time.graph import Graph, graph_of, groups_of, ordered
from oncall.analysis.lost_time.limits import Limits
from oncall.analysis.lost_time.pipelines import with_peers
from oncall.analysis.lost_time.programs import Programs
from oncall.analysis.lost_time.segments import Measured, cuts, like_segments, measured
from oncall.analysis.lost_time.waiting import lengths, spent

_TURNS = 3  # after which medians of ranks and of segments hardly change


def books_of(programs: Programs, limits: Limits) -> Books | None:
    """The classes that matter, each accounted for; None if there are no two like segments, or all
    ranks wait for all others in every call, where the rounds say it all."""
    cut = cuts(programs, limits)
    programs = with_peers(programs, cut)
    shapes = like_segments(programs, cut, limits)
    graphs = [graph_of(programs, one.first, one.length) for one in shapes]
    if any(graph.one_chain for graph in graphs):
        return None
    times = [measured(programs, one, limits) for one in shapes]
    timed = any(one.timed for one in times)
    if times and not timed:
        times = on_one_axis(times, graphs, limits)
    found: list[Class] = []
    lead: int | None = None
    in_step = True
    for segments, graph in zip(shapes, graphs, strict=True):
        each = times.pop(0)
        groups = groups_of(programs, graph, limits)
        waits = spent(graph, groups, each, lead, programs.on_device, limits)
        if waits is None:
            continue
        order = ordered(graph, waits.asynchronous)
        if not order.complete:
            continue
        lead = waits.lead if lead is None else lead
        in_step &= waits.in_step
        length_ns, timed_too = lengths(graph, each), each.timed
        del each  # the largest arrays beside those of the account
        account = account_of(order, groups, waits, timed_too, limits)
        if not waits.in_step:
            account = replace(account, baseline_own=account.own)
        begin = np.where(
            segments.first >= 0, programs.at_ns[segments.first], np.iinfo(np.int64).max
        )
        replayed_ns = replayed(order, account.own, account.rounds, account.transfers)
        too_long = quantile(replayed_ns - length_ns, limits.ordinary, 0)
        # With durations a replay with and one without a cause are too long alike.
        error_ns = np.inf if timed_too else max(0.0, float(np.nan_to_num(too_long)))
        found.append(
            Class(
                order=order,
                account=account,
                begin_ns=begin.min(1),
                length_ns=length_ns,
                replayed_ns=replayed_ns,
                error_ns=error_ns,
                backwards_ns=waits.backwards,
            )
        )
    if not found:
        return None
    longest = max(float(np.median(one.length_ns)) for one in found)
    kept = [one for one in found if np.median(one.length_ns) > limits.hardly * longest]
    return Books(kept, timed, in_step, sum(one.older for one in shapes))


def on_one_axis(
    classes: Sequence[Measured], graphs: Sequence[Graph], limits: Limits
) -> list[Measured]:
    """The same times (one entry a class of segments) by the clock of the median rank.

    The largest class decides: what precedes it is alike, as the end of an evaluation is not.
    """
    largest = max(classes, key=lambda one: len(one.call))
    offset, elsewhere = _ahead([largest], limits), _ahead(classes, limits)
    offset = np.nan_to_num(np.where(np.isnan(offset), elsewhere, offset))
    moved = [replace(one, call=one.call - offset[None, :, None]) for one in classes]
    as_recorded = _gone_early(classes, graphs)
    believed = as_recorded <= min(limits.negligible, _gone_early(moved, graphs))
    return [*classes] if believed else moved


def _gone_early(classes: Sequence[Measured], graphs: Sequence[Graph]) -> float:
    """The share of calls from which hosts go on before their last member has come."""
    early, calls = 0, 0
    for one, graph in zip(classes, graphs, strict=True):
        rounds = graph.rounds
        if len(rounds):
            rank, place = rounds.nodes // graph.width, rounds.nodes % graph.width
            last = np.fmax.reduceat(one.call[:, rank, place], rounds.start, axis=1)
            over = one.call[:, rank, place + 1] - np.repeat(last, rounds.size, axis=1)
            early += int((over < 0).sum())
            calls += int((~np.isnan(over)).sum())
    return early / max(calls, 1)


def _ahead(classes: Sequence[Measured], limits: Limits) -> Times:
    """By how much each rank's clock is ahead (r,), NaN if unknown: a low value that was measured.

    By medians of ranks and of segments in turn: whoever is missing in one moves it no further.
    """
    found = []
    for one in classes:
        first = one.begin_ns + one.call[:, :, 0]
        offset = np.zeros(first.shape[1])
        for _ in range(_TURNS):
            begin = median(first - offset, 1)
            offset = np.nan_to_num(median(first - begin[:, None], 0))
        found.append(first - begin[:, None])
    ordered = np.sort(np.concatenate(found), axis=0)
    at = np.maximum(np.sum(~np.isnan(ordered), axis=0) - 1, 0) * limits.ordinary
    return np.asarray(np.take_along_axis(ordered, at.astype(np.int64)[None], 0)[0])
