"""What each piece of time would be without a fault: like with like (LOST_TIME.md, section 5).

Own time is compared with the other members of the tensor group in the same iteration: same sample,
same work. This removes long samples, slow iterations, checkpoints and heavy stages. Without such a
group it is compared with the ranks of the same role. Transfers are compared with those at the same
place between the same roles, now and in other iterations.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from oncall.analysis.lost_time.graph import Graph
from oncall.analysis.lost_time.groups import Groups
from oncall.analysis.lost_time.measured import median, quantile, smallest
from oncall.analysis.lost_time.programs import NONE, Ints, Times
from oncall.analysis.lost_time.waiting import Spent

_FEW_PEERS = 3  # ranks of a role that have a median
_USUAL_ALONE = 0.3  # quantile over iterations of a rank without peers
_USUAL_TRANSFER = 0.25  # quantile over iterations of a transfer
_LATENESS = 0.2  # of a common delay, before it: then the delay is that lateness, seen later


@dataclass(frozen=True)
class Account:
    """Segments' time and what it would be, ns: own (s, r, width), rounds (s, k), transfers (s, t);
    `role_own` is the usual own time of each role, whatever the tensor group does."""

    own: Times
    rounds: Times
    transfers: Times
    usual_own: Times
    usual_rounds: Times
    usual_transfers: Times
    role_own: Times


def account_of(graph: Graph, groups: Groups, spent: Spent, timed: bool) -> Account:
    """The account of a class of segments."""
    own = spent.own.copy()
    role_own = _of_role(graph, own)
    usual = role_own.copy()
    for group in np.unique(groups.group[groups.group != NONE]):
        members = np.flatnonzero(groups.group == group)
        for rank in members:
            mates = members[members != rank]
            theirs = median(own[:, mates], 1)
            usual[:, rank] = np.where(np.isnan(theirs), role_own[:, rank], theirs)
    if timed:
        rounds, transfers = spent.rounds, spent.transfers
        usual_rounds = _usual_transfer(rounds, _round_kinds(graph))
        usual_transfers = _usual_transfer(transfers, _transfer_kinds(graph))
    else:
        rounds, transfers = _common_delays(graph, groups, own, usual)
        usual_rounds, usual_transfers = np.zeros_like(rounds), np.zeros_like(transfers)
    rounds, transfers = np.nan_to_num(rounds), np.nan_to_num(transfers)
    return Account(
        own=_filled(own, role_own),
        rounds=rounds,
        transfers=transfers,
        usual_own=_filled(np.where(np.isnan(own), np.nan, usual), role_own),
        usual_rounds=np.minimum(np.nan_to_num(usual_rounds), rounds),
        usual_transfers=np.minimum(np.nan_to_num(usual_transfers), transfers),
        role_own=_filled(role_own, role_own),
    )


def _of_role(graph: Graph, own: Times) -> Times:
    found = np.full_like(own, np.nan)
    for role in np.unique(graph.role):
        mine = np.flatnonzero(graph.role == role)
        if len(mine) >= _FEW_PEERS:
            found[:, mine] = median(own[:, mine], 1)[:, None]
        elif len(mine) == 2:
            found[:, mine] = np.fmin(own[:, mine[0]], own[:, mine[1]])[:, None]
        else:
            found[:, mine] = (
                quantile(own[:, mine], _USUAL_ALONE, 0) if len(own) > 2 else own[:, mine]
            )
    return found


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
    told = np.stack([graph.role[first // width], graph.role[last // width], first % width, more])
    return np.unique(told, axis=1, return_inverse=True)[1].ravel()


def _usual_transfer(times: Times, kind: Ints) -> Times:
    """The median over its kind, or the rank's own better iterations, whichever is less."""
    found = times.copy()
    for one in np.unique(kind):
        mine = np.flatnonzero(kind == one)
        values = times[:, mine]
        usual = quantile(values, _USUAL_TRANSFER, 0)[None] if len(values) > 2 else values
        if len(mine) > 2:
            peers = median(values, 1)[:, None]
        else:
            peers = smallest(values, 1)[:, None] if len(mine) == 2 else values
        found[:, mine] = np.fmin(np.maximum(usual, 0), peers)
    return np.fmin(found, times)


def _common_delays(graph: Graph, groups: Groups, own: Times, usual: Times) -> tuple[Times, Times]:
    """Calls alone: what all members spend more than their peers after an operation that they share
    is its transfer, and is taken off `own`. Where one of them came late by a good part of it, it is
    that lateness, which a host that runs ahead shows in two parts."""
    width = graph.width
    excess = own - usual
    flat = excess.reshape(len(own), -1)
    mine = own.reshape(len(own), -1)
    rounds = np.zeros((len(own), len(graph.rounds)))
    transfers = np.zeros((len(own), len(graph.sender)))

    def common(nodes: Ints) -> Times | float:
        after = nodes[nodes % width + 1 < graph.length[nodes // width]] + 1
        if len(after) < 2:
            return 0.0
        shared = np.maximum(0, np.nan_to_num(np.min(flat[:, after], 1)))
        late = np.nan_to_num(np.fmax.reduce(flat[:, after - 1], axis=1))
        shared = np.where(late > _LATENESS * shared, 0, shared)
        mine[:, after] -= shared[:, None]
        flat[:, after] -= shared[:, None]
        return shared

    for k, nodes in enumerate(np.split(graph.rounds.nodes, graph.rounds.start[1:])):
        if len(nodes) < graph.ranks and not groups.tight_rounds[k]:
            rounds[:, k] = common(nodes)
    for t, ends in enumerate(zip(graph.sender, graph.receiver, strict=True)):
        transfers[:, t] = common(np.array(ends))
    return rounds, transfers


def _filled(own: Times, role_own: Times) -> Times:
    """Absent ranks behave like their peers."""
    found = np.where(np.isnan(own), role_own, own)
    return np.nan_to_num(np.where(np.isnan(found), median(own, 0)[None], found))
