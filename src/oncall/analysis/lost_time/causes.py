"""What each cause costs: the iteration replayed with it removed.

As docs/decisions/018-lost-time-by-replay.md says under 4.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from oncall.analysis.lost_time.baselines import Account
from oncall.analysis.lost_time.graph import Order
from oncall.analysis.lost_time.limits import Limits
from oncall.analysis.lost_time.programs import Ints, Times

_MOST_NUMBERS = 2_000_000  # of a replay at once: 16 MB, which memory allocators keep


@dataclass(frozen=True)
class Class:
    """A class of like segments: its order, its account, `begin_ns` (s,) of segments, `length_ns`
    (s,) as measured, and as replayed with nothing removed; `error_ns`: by how much replays are too
    long everywhere; `backwards_ns` (s,) as in `Spent`."""

    order: Order
    account: Account
    begin_ns: Ints
    length_ns: Times
    replayed_ns: Times
    error_ns: float
    backwards_ns: Times


def replayed(order: Order, own: Times, rounds: Times, transfers: Times) -> Times:
    """The length of each segment (s,) with these times: own (s, r, width), rounds (s, k), ..."""
    return order.lengths(own.reshape(len(own), -1).T, rounds.T, transfers.T)


def gains_of_own(one: Class, candidates: Ints, removed: Sequence[int], limits: Limits) -> Times:
    """By how much segments shrink if the own time of a rank is its peers' (candidates, s)."""
    account = one.account

    def remove(rank: int, times: Sequence[Times]) -> None:
        _put_baseline(one, rank, times[0])

    times = (_own_without(one, removed), account.rounds.T, account.transfers.T)
    return _gains(one, candidates, remove, times, excess_of_own(one), limits)


def gains_together(one: Class, sets: Sequence[Ints]) -> Times:
    """The same if the own time of all ranks of a set is their peers' (sets, s)."""
    account = one.account
    times = account.rounds.T, account.transfers.T
    now = replayed(one.order, account.own, account.rounds, account.transfers)
    now = np.minimum(now, one.length_ns + one.error_ns)
    found = np.zeros((len(sets), len(now)))
    for at, ranks in enumerate(sets):
        own = _by_node(account.own)
        for rank in ranks.tolist():
            _put_baseline(one, rank, own)
        found[at] = now - one.order.lengths(own, *times)
    return found


def gains_of_transfers(
    one: Class, candidates: Ints, removed: Sequence[int], limits: Limits
) -> Times:
    """The same if all transfers of a rank take their baseline time, but for those of everybody, and
    the own time of those `removed` is their peers'."""
    account = one.account
    rounds, transfers = _touched(one.order)
    rounds_of, transfers_of = rounds.by_rank(), transfers.by_rank()

    def remove(rank: int, times: Sequence[Times]) -> None:
        _, rounds, transfers = times
        mine, sent = rounds_of(rank), transfers_of(rank)
        rounds[mine] = account.baseline_rounds.T[mine]
        transfers[sent] = account.baseline_transfers.T[sent]

    most = rounds.summed(
        np.maximum(0, account.rounds - account.baseline_rounds), one.order.graph.ranks
    ) + transfers.summed(
        np.maximum(0, account.transfers - account.baseline_transfers), one.order.graph.ranks
    )
    times = (_own_without(one, removed), account.rounds.T, account.transfers.T)
    return _gains(one, candidates, remove, times, most, limits)


def _own_without(one: Class, removed: Sequence[int]) -> Times:
    """Own times (nodes, s), of the ranks `removed` their peers'."""
    own = _by_node(one.account.own)
    for rank in removed:
        _put_baseline(one, rank, own)
    return own


def _put_baseline(one: Class, rank: int, own: Times) -> None:
    """Let the own times of a rank, among those of all (nodes, s), be its peers'."""
    width = one.order.graph.width
    own[rank * width : (rank + 1) * width] = one.account.baseline_own[:, rank].T


def excess_of_own(one: Class) -> Times:
    """How much more own time each rank spent than its peers (r, s), ns."""
    each = zip(one.account.own, one.account.baseline_own, strict=True)
    return np.stack([np.maximum(0, own - baseline).sum(1) for own, baseline in each], axis=1)


def excess_of_transfers(one: Class) -> Times:
    """By how much the transfers that each rank takes part in exceed their baseline (r, s), ns."""
    account, ranks = one.account, one.order.graph.ranks
    rounds, transfers = _touched(one.order)
    return rounds.summed(account.rounds - account.baseline_rounds, ranks) + transfers.summed(
        account.transfers - account.baseline_transfers, ranks
    )


def candidates_by(excess: Times, limits: Limits) -> Ints:
    """The ranks that are tried: all, or the ones with the largest excess."""
    if len(excess) <= 4 * limits.most_tried:
        return np.arange(len(excess))
    return np.sort(np.argsort(-excess, kind="stable")[: limits.most_tried])


def _by_node(own: Times) -> Times:
    """Own times (s, r, width) as replays take them (nodes, s); a copy."""
    return own.reshape(len(own), -1).T.copy()


def _gains(
    one: Class,
    candidates: Ints,
    remove: Callable[[int, Sequence[Times]], None],
    times: Sequence[Times],
    most: Times,
    limits: Limits,
) -> Times:
    """By how much segments shrink (candidates, s). `remove` puts baseline times into copies of
    `times` for one rank, less by `most` (r, s) in all. No segment shrinks by more than that: a rank
    of which it is too little to count is not replayed, and gains 0."""
    found = np.zeros((len(candidates), len(one.length_ns)))
    enough = limits.least_gain / 2 * np.maximum(one.length_ns, one.replayed_ns)
    tried = np.flatnonzero((most[candidates] >= enough).any(1))
    if not len(tried):
        return found
    now = one.order.lengths(*times)
    # What a replay takes longer than was measured, beyond its error everywhere, is no loss.
    now = np.minimum(now, one.length_ns + one.error_ns)
    at_once = max(1, _MOST_NUMBERS // max(times[0].size, 1))
    for begin in range(0, len(tried), at_once):
        chosen = candidates[tried[begin : begin + at_once]]
        many = [np.tile(each, len(chosen)) for each in times]
        for at, rank in enumerate(chosen.tolist()):
            mine = slice(at * len(now), (at + 1) * len(now))
            remove(rank, [each[:, mine] for each in many])
        lengths = one.order.lengths(*many)
        found[tried[begin : begin + at_once]] = now - lengths.reshape(len(chosen), -1)
    return found


@dataclass(frozen=True)
class _Parts:
    """Who takes part in which rounds or transfers: a rank and a number for each (m,)."""

    rank: Ints
    of: Ints

    def by_rank(self) -> Callable[[int], Ints]:
        """What tells the numbers of one rank."""
        order = np.argsort(self.rank, kind="stable")
        ranks, numbers = self.rank[order], self.of[order]
        return lambda rank: numbers[slice(*np.searchsorted(ranks, [rank, rank + 1]))]

    def summed(self, values: Times, ranks: int) -> Times:
        """The values (s, k) of each rank's numbers in all (ranks, s)."""
        return np.stack([np.bincount(self.rank, each[self.of], ranks) for each in values], axis=1)


def _touched(order: Order) -> tuple[_Parts, _Parts]:
    """Who takes part in rounds, those of everybody left out, and in transfers."""
    graph = order.graph
    rounds, width = graph.rounds, graph.width
    mine = rounds.size[rounds.of] < graph.ranks
    number = np.arange(len(graph.sender))
    sender, receiver = graph.sender // width, graph.receiver // width
    other = sender != receiver
    return (
        _Parts(rounds.nodes[mine] // width, rounds.of[mine]),
        _Parts(np.append(sender, receiver[other]), np.append(number, number[other])),
    )
