"""The accounts of a job's lost time: one for each class of similar iterations."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from oncall.analysis.lost_time.baselines import account_of
from oncall.analysis.lost_time.causes import Class, replayed
from oncall.analysis.lost_time.clocks import on_one_axis
from oncall.analysis.lost_time.graph import graph_of, ordered
from oncall.analysis.lost_time.groups import groups_of
from oncall.analysis.lost_time.leads import lengths
from oncall.analysis.lost_time.limits import Limits
from oncall.analysis.lost_time.measured import measured, quantile
from oncall.analysis.lost_time.peers import with_peers
from oncall.analysis.lost_time.programs import Ints, Programs, Times
from oncall.analysis.lost_time.segments import cuts, like_segments
from oncall.analysis.lost_time.waiting import spent


@dataclass(frozen=True)
class Books:
    """All classes of a job, and whether operations recorded how long they took."""

    classes: list[Class]
    timed: bool

    @property
    def length_ns(self) -> Times:
        return np.concatenate([one.length_ns for one in self.classes])

    @property
    def replayed_ns(self) -> Times:
        return np.concatenate([one.replayed_ns for one in self.classes])

    @property
    def error(self) -> float:
        """The median deviation of replayed lengths from measured ones."""
        return float(np.median(np.abs(self.replayed_ns / self.length_ns - 1)))

    @property
    def missed(self) -> float:
        """Of all time, the part that replays lack beyond what they mostly do: in these iterations
        something happened that the graph does not have."""
        share = self.replayed_ns / self.length_ns
        lack = np.maximum(0.0, np.median(share) - share)
        return float((lack * self.length_ns).sum() / self.length_ns.sum())

    @property
    def covered(self) -> float:
        """Of the time from a segment's begin to the next one's, the part that lies in it (median).
        Where hosts call ahead and then wait, little does: what devices do is not accounted for."""
        order = np.argsort(self.begin_ns, kind="stable")
        apart_ns = np.diff(self.begin_ns[order])
        return float(np.median(self.length_ns[order[:-1]] / np.maximum(apart_ns, 1)))

    @property
    def backwards(self) -> float:
        """Of ranks' time, the part by which they went on before those that a replay has them wait
        for (median of segments)."""
        backwards_ns = np.concatenate([one.backwards_ns for one in self.classes])
        ranks = self.classes[0].order.graph.ranks
        return float(np.median(backwards_ns / (ranks * self.length_ns)))

    @property
    def begin_ns(self) -> Ints:
        return np.concatenate([one.begin_ns for one in self.classes])

    def hold(self, limits: Limits) -> bool:
        """Whether replays last as long as was measured, and hosts wait where they have it."""
        return self.error <= limits.replays and self.backwards <= limits.hardly

    def joined(self, values: Callable[[Class], Times]) -> Times:
        """Values of each rank and segment, of all classes (r, s)."""
        return np.concatenate([values(one) for one in self.classes], axis=1)

    def shares(self, gains: Callable[[Class], Times]) -> Times:
        """Gains as shares of the segments, of all classes (candidates, s): no more than all."""
        whole = np.maximum(self.length_ns, self.replayed_ns)
        return np.minimum(self.joined(gains) / whole, 1.0)


def books_of(programs: Programs, limits: Limits) -> Books | None:
    """The classes that matter, each accounted for; None if there are no two like segments, or all
    ranks wait for all others in every call, where the rounds say it all."""
    cut = cuts(programs, limits)
    programs = with_peers(programs, cut)
    shapes = like_segments(programs, cut, limits)
    graphs = [graph_of(programs, one) for one in shapes]
    if any(graph.one_chain for graph in graphs):
        return None
    times = [
        measured(programs, one, graph, limits) for one, graph in zip(shapes, graphs, strict=True)
    ]
    timed = any(one.timed for one in times)
    if times and not timed:
        times = on_one_axis(times, graphs, limits)
    found: list[Class] = []
    lead: int | None = None
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
        length_ns, timed_too = lengths(graph, each), each.timed
        del each  # the largest arrays beside those of the account
        account = account_of(order, groups, waits, timed_too, limits)
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
    return Books(kept, timed)
