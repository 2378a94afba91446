"""How long each piece of time would be without a fault: like is compared with like.

As docs/decisions/018-lost-time-by-replay.md says under 3.

Own time is compared with the other members of the tensor group in the same iteration: same sample,
same work. This removes long samples, slow iterations, checkpoints and heavy stages. Without such a
group it is compared with the ranks of the same role. Transfers are compared with those at the same
place between the same roles, now and in other iterations.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from oncall.analysis.common.quantiles import median, quantile
from oncall.analysis.lost_time.arrays import NONE, Ints, Times, few_ranks, pairs_of, smallest
from oncall.analysis.lost_time.graph import Account, Graph, Groups, Level, Order, Spent, gather
from oncall.analysis.lost_time.limits import Limits


def account_of(order: Order, groups: Groups, spent: Spent, timed: bool, limits: Limits) -> Account:
    """The account of a class of segments."""
    graph, own = order.graph, spent.own
    if not timed:
        own = own.copy()
        fastest = _of_groups(graph, groups, own, limits)
        _with_leaders(groups, own, fastest, spent.lead, limits)
        _to_the_late(order, own, fastest, limits)
    role_own = _of_role(graph, own, limits)
    baseline = role_own.copy()
    for members in _of_one_size(groups):
        for place in range(members.shape[1]):
            rank, mates = members[:, place], np.delete(members, place, axis=1)
            for mine, role, each in zip(baseline, role_own, own, strict=True):
                theirs = median(each[mates], 1)
                mine[rank] = np.where(np.isnan(theirs), role[rank], theirs)
    _with_leaders(groups, own, baseline, spent.lead, limits)
    if timed:
        rounds, transfers = spent.rounds, spent.transfers
        baseline_rounds = _baseline_transfer(rounds, _round_kinds(graph), limits)
        baseline_transfers = _baseline_transfer(transfers, _transfer_kinds(graph), limits)
    else:
        rounds, transfers = _common_delays(graph, groups, own, baseline, limits)
        baseline_rounds, baseline_transfers = np.zeros_like(rounds), np.zeros_like(transfers)
    # What is not known takes its baseline: who waits for a rank that left no recording shows no
    # transfer.
    known = graph.rounds.whole & ~np.isnan(rounds)
    rounds = np.nan_to_num(np.where(known, rounds, baseline_rounds))
    transfers = np.nan_to_num(np.where(np.isnan(transfers), baseline_transfers, transfers))
    baseline[np.isnan(own)] = np.nan
    baseline = _filled(baseline, role_own)
    return Account(
        own=_filled(own, role_own),
        rounds=rounds,
        transfers=transfers,
        baseline_own=baseline,
        baseline_rounds=np.minimum(np.nan_to_num(baseline_rounds), rounds),
        baseline_transfers=np.minimum(np.nan_to_num(baseline_transfers), transfers),
    )


def _of_one_size(groups: Groups) -> Iterator[Ints]:
    """The members of all tensor groups (groups, size), those of one size together."""
    tight = np.flatnonzero(groups.group != NONE)
    tight = tight[np.argsort(groups.group[tight], kind="stable")]
    _, start, size = np.unique(groups.group[tight], return_index=True, return_counts=True)
    for one in np.unique(size[size > 1]):
        yield tight[start[size == one][:, None] + np.arange(one)]


def _of_role(graph: Graph, own: Times, limits: Limits) -> Times:
    found = np.full_like(own, np.nan)
    for role in np.unique(graph.role):
        mine = np.flatnonzero(graph.role == role)
        if len(mine) < limits.few:
            found[:, mine] = _of_peers(own[:, mine], limits)
            continue
        for each, times in zip(found, own, strict=True):
            each[mine] = median(times[mine], 0)
    return found


def _of_groups(graph: Graph, groups: Groups, own: Times, limits: Limits) -> Times:
    """The baseline of each role by its tensor groups, each as its fastest member: what holds up one
    member shows on all of them."""
    found = _of_role(graph, own, limits)
    for role in np.unique(graph.role[groups.group != NONE]):
        mine = np.flatnonzero((graph.role == role) & (groups.group != NONE))
        numbers = np.unique(groups.group[mine])
        least = [smallest(own[:, mine[groups.group[mine] == one]], 1) for one in numbers]
        found[:, mine] = _of_peers(np.stack(least, axis=1), limits)[:, :1]
    return found


def _with_leaders(groups: Groups, own: Times, baseline: Times, lead: int, limits: Limits) -> None:
    """Who loads data for its group takes as long before it broadcasts them as others who do: a
    host, so that it shows where the device is when the host, ahead by the `lead`, calls."""
    flat, found = own.reshape(len(own), -1), baseline.reshape(len(own), -1)
    width = own.shape[2]
    for called in groups.broadcasts:
        nodes = called - np.minimum(called % width, lead)
        found[:, nodes] = np.fmax(found[:, nodes], _of_peers(flat[:, nodes], limits))


def _of_peers(times: Times, limits: Limits) -> Times:
    """What peers (s, p, width) mostly take, of two the lesser; of one, in its better iterations."""
    if times.shape[1] >= limits.few:
        return median(times, 1)[:, None]
    if times.shape[1] == 2:
        return np.fmin(times[:, :1], times[:, 1:])
    return quantile(times, limits.ordinary, 0)[None] if len(times) > 2 else times


def _round_kinds(graph: Graph) -> Ints:
    """A number for roles, size and place of each round (k,)."""
    rounds = graph.rounds
    if not len(rounds):
        return np.zeros(0, dtype=np.int64)
    first, last = rounds.nodes[rounds.start], rounds.nodes[rounds.start + rounds.size - 1]
    return _kinds(graph, first, last, rounds.size)


def _transfer_kinds(graph: Graph) -> Ints:
    return _kinds(graph, graph.sender, graph.receiver, graph.receiver % graph.width)


def _kinds(graph: Graph, first: Ints, last: Ints, more: Ints) -> Ints:
    width = graph.width
    features = np.stack(
        [graph.role[first // width], graph.role[last // width], first % width, more]
    )
    return np.unique(features, axis=1, return_inverse=True)[1].ravel()


def _baseline_transfer(times: Times, kind: Ints, limits: Limits) -> Times:
    """The median over its kind, or the rank's own better iterations, whichever is less."""
    found = times.copy()
    for one in np.unique(kind):
        mine = np.flatnonzero(kind == one)
        values = times[:, mine]
        baseline = quantile(values, limits.ordinary, 0)[None] if len(values) > 2 else values
        if len(mine) > 2:
            peers = median(values, 1)[:, None]
        else:
            peers = smallest(values, 1)[:, None] if len(mine) == 2 else values
        found[:, mine] = np.fmin(np.maximum(baseline, 0), peers)
    return np.fmin(found, times)


def _to_the_late(order: Order, own: Times, baseline: Times, limits: Limits) -> None:
    """Calls alone: hosts run ahead by a fraction of the work between two calls, too. What a rank
    does longer shows in part before the operation that it comes late to; the rest shows after it,
    on all members alike, and is given back to who came late."""
    flat, excess = own.reshape(len(own), -1), (own - baseline).reshape(len(own), -1)
    for level in order.levels:
        node, size = _waited_in(order, level)
        if not len(node):
            continue
        start = np.cumsum(size) - size
        of = np.repeat(np.arange(len(size)), size)
        before = np.nan_to_num(excess[:, node])
        common = np.nan_to_num(np.minimum.reduceat(excess[:, node + 1], start, axis=1))
        latest = np.maximum.reduceat(before, start, axis=1)
        others = (np.add.reduceat(before, start, axis=1) - latest) / (size - 1)
        was_late = (common > 0) & (latest - others > limits.hardly * common)
        moved = np.where(was_late, common, 0)[:, of]
        is_latest = before >= latest[:, of]
        given = moved * is_latest / np.add.reduceat(is_latest, start, axis=1)[:, of]
        for values in (flat, excess):
            for segment in range(len(own)):
                np.subtract.at(values[segment], node + 1, moved[segment])
                np.add.at(values[segment], node, given[segment])


def _waited_in(order: Order, level: Level) -> tuple[Ints, Ints]:
    """The nodes of the operations of a level in which several wait for one another and then go on,
    one operation after the other, and how many each has."""
    graph = order.graph
    nodes, _, sizes = gather(graph.rounds, level.rounds)
    sides = np.stack([graph.sender[level.transfers], graph.receiver[level.transfers]], axis=1)
    node = np.append(nodes, sides.ravel())
    size = np.append(sizes, np.full(len(sides), 2))
    goes_on = node % graph.width + 1 < graph.length[node // graph.width]
    goes_on &= ~order.asynchronous[node]
    of = np.repeat(np.arange(len(size)), size)
    kept = (size > 1) & (np.bincount(of[goes_on], minlength=len(size)) == size)
    return node[kept[of]], size[kept]


def _common_delays(
    graph: Graph, groups: Groups, own: Times, baseline: Times, limits: Limits
) -> tuple[Times, Times]:
    """Calls alone: what all members spend more than their peers after an operation that they share
    is its transfer, and is taken off `own`. Where one of them came late by a good part of it, it is
    that lateness, which a host that runs ahead shows in two parts."""
    width = graph.width
    flat = (own - baseline).reshape(len(own), -1)
    mine = own.reshape(len(own), -1)
    rounds = np.zeros((len(own), len(graph.rounds)))
    transfers = np.zeros((len(own), len(graph.sender)))
    kept = np.flatnonzero((graph.rounds.size < graph.ranks) & ~groups.tight_rounds)
    nodes, _, sizes = gather(graph.rounds, kept)
    ends = np.stack([graph.sender, graph.receiver], axis=1).ravel()
    pairs = (graph.sender // width) * graph.ranks + graph.receiver // width
    for found, chosen, node, of, stream in (
        (rounds, kept, nodes, np.repeat(np.arange(len(kept)), sizes), graph.rounds.comm[kept]),
        (transfers, np.arange(len(pairs)), ends, np.arange(len(ends)) // 2, pairs),
    ):
        if not len(node):
            continue
        turn = _turns(node // width, of, stream, graph.ranks)
        follows = node % width + 1 < graph.length[node // width]
        node, of = node[follows], of[follows]
        several = np.bincount(of, minlength=len(chosen))[of] > 1
        node, of = node[several], of[several]
        # What is looked at first takes its part of what follows it.
        for now in np.unique(turn[of]):
            mates = turn[of] == now
            _take(found, chosen, node[mates], of[mates], flat, mine, limits)
    return rounds, transfers


def _turns(rank: Ints, of: Ints, stream: Ints, ranks: int) -> Ints:
    """A number for each transfer (k,), so that those of one number have no rank in common: one
    stream after the other, where they share ranks, and each in its order."""
    busy = np.full(ranks, -1)
    layer = np.zeros(len(stream), dtype=np.int64)
    members = pairs_of(stream[of], rank)
    streams, start = np.unique(members[0], return_index=True)
    for one, mine in zip(streams, np.split(members[1], start[1:]), strict=True):
        busy[mine] = layer_of = busy[mine].max(initial=-1) + 1
        layer[stream == one] = layer_of
    order = np.argsort(stream, kind="stable")
    place = np.arange(len(stream))
    begins = np.maximum.accumulate(np.where(np.diff(stream[order], prepend=-1) != 0, place, 0))
    nth = np.empty(len(stream), dtype=np.int64)
    nth[order] = place - begins
    return layer * len(stream) + nth


def _take(
    found: Times, chosen: Ints, node: Ints, of: Ints, flat: Times, mine: Times, limits: Limits
) -> None:
    """Move what is common to the members `of` each transfer from their own time into `found`."""
    begins = np.diff(of, prepend=-1) != 0
    start = np.flatnonzero(begins)
    common = np.maximum(0, np.nan_to_num(np.minimum.reduceat(flat[:, node + 1], start, axis=1)))
    late = np.nan_to_num(np.fmax.reduceat(flat[:, node], start, axis=1))
    common = np.where(late > limits.large * common, 0, common)
    found[:, chosen[of[start]]] = common
    taken = common[:, np.cumsum(begins) - 1]
    for segment in range(len(mine)):
        np.subtract.at(mine[segment], node + 1, taken[segment])
        np.subtract.at(flat[segment], node + 1, taken[segment])


def _filled(own: Times, role_own: Times) -> Times:
    """Absent ranks behave like their peers; the times themselves where nobody is absent."""
    if np.isfinite(own).all():
        return own
    found = own.copy()
    for some in few_ranks(found):
        mine = found[:, some]
        np.copyto(mine, role_own[:, some], where=np.isnan(mine))
        np.copyto(mine, median(own[:, some], 0)[None], where=np.isnan(mine))
        np.nan_to_num(mine, copy=False)
    return found
