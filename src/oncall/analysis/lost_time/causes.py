"""What each cause costs: the iteration replayed with it removed (LOST_TIME.md, section 8)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from oncall.analysis.lost_time.baselines import Account
from oncall.analysis.lost_time.graph import Order
from oncall.analysis.lost_time.limits import Limits
from oncall.analysis.lost_time.programs import Flags, Ints, Times

_MOST_NUMBERS = 16_000_000  # of a replay at once: 128 MB


@dataclass(frozen=True)
class Class:
    """A class of like segments: its order, its account, `begin_ns` (s,) of segments, `length_ns`
    (s,) as measured, and as replayed with nothing removed."""

    order: Order
    account: Account
    begin_ns: Ints
    length_ns: Times
    replayed_ns: Times


@dataclass(frozen=True)
class Entry:
    """One cause: `ranks` that share it (more than one: the evidence cannot tell them apart), and
    what each segment concerned would have been shorter."""

    cause: str  # own or transfer
    ranks: tuple[int, ...]
    share: float  # of the segments concerned, mean
    low: float  # 5 % quantile of that mean
    segments: int  # concerned
    gain_ns: float  # of all of them
    begin_ns: int  # of the first one


def replayed(order: Order, own: Times, rounds: Times, transfers: Times) -> Times:
    """The length of each segment (s,) with these times: own (s, r, width), rounds (s, k), ..."""
    return order.replay(own.reshape(len(own), -1).T.copy(), rounds.T, transfers.T)[0]


def gains_of_own(one: Class, candidates: Ints, removed: Sequence[int]) -> Times:
    """By how much segments shrink if the own time of a rank is its peers' (candidates, s)."""
    account = one.account
    own = account.own.copy()
    own[:, list(removed)] = account.baseline_own[:, list(removed)]
    return _gains(
        one,
        candidates,
        lambda rank: (_with(own, rank, account.baseline_own), account.rounds, account.transfers),
        (own, account.rounds, account.transfers),
    )


def gains_of_transfers(one: Class, candidates: Ints) -> Times:
    """The same if all transfers of a rank take their baseline time, but for those of everybody."""
    account = one.account
    rounds, transfers = _touched(one.order)

    def without(rank: int) -> tuple[Times, Times, Times]:
        return (
            account.own,
            np.where(rounds[rank], account.baseline_rounds, account.rounds),
            np.where(transfers[rank], account.baseline_transfers, account.transfers),
        )

    return _gains(one, candidates, without, (account.own, account.rounds, account.transfers))


def excess_of_own(one: Class) -> Times:
    """How much more own time each rank spent than its peers (r, s), ns."""
    return np.asarray(np.maximum(0, one.account.own - one.account.baseline_own).sum(2).T)


def excess_of_transfers(one: Class) -> Times:
    """By how much the transfers that each rank takes part in exceed their baseline (r, s), ns."""
    account = one.account
    rounds, transfers = _touched(one.order)
    return np.asarray(
        rounds @ (account.rounds - account.baseline_rounds).T
        + transfers @ (account.transfers - account.baseline_transfers).T
    )


def candidates_by(excess: Times, limits: Limits) -> Ints:
    """The ranks that are tried: all, or the ones with the largest excess."""
    if len(excess) <= 4 * limits.tried:
        return np.arange(len(excess))
    return np.sort(np.argsort(-excess, kind="stable")[: limits.tried])


def _with(own: Times, rank: int, baseline: Times) -> Times:
    changed = own.copy()
    changed[:, rank] = baseline[:, rank]
    return changed


def _gains(
    one: Class,
    candidates: Ints,
    without: Callable[[int], tuple[Times, Times, Times]],
    before: tuple[Times, Times, Times],
) -> Times:
    now = replayed(one.order, *before)
    at_once = max(1, _MOST_NUMBERS // max(before[0].size, 1))
    found = np.zeros((len(candidates), len(now)))
    for begin in range(0, len(candidates), at_once):
        chosen = candidates[begin : begin + at_once]
        times = [np.concatenate(each) for each in zip(*map(without, chosen.tolist()), strict=True)]
        lengths = replayed(one.order, times[0], times[1], times[2]).reshape(len(chosen), -1)
        found[begin : begin + len(chosen)] = now - lengths
    return found


def _touched(order: Order) -> tuple[Flags, Flags]:
    """Which rounds and transfers each rank takes part in (r, k) and (r, t), cuts left out."""
    graph = order.graph
    rounds = np.zeros((graph.ranks, len(graph.rounds)), dtype=np.bool_)
    mine = graph.rounds.size[graph.rounds.of] < graph.ranks
    rounds[graph.rounds.nodes[mine] // graph.width, graph.rounds.of[mine]] = True
    transfers = np.zeros((graph.ranks, len(graph.sender)), dtype=np.bool_)
    for side in (graph.sender, graph.receiver):
        transfers[side // graph.width, np.arange(len(side))] = True
    return rounds, transfers
