"""What each cause costs: the iteration replayed with it removed (LOST_TIME.md, section 8)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from oncall.analysis.lost_time.baselines import Account
from oncall.analysis.lost_time.graph import Order
from oncall.analysis.lost_time.limits import Limits
from oncall.analysis.lost_time.programs import Flags, Ints, Times

_MOST_NUMBERS = 2_000_000  # of a replay at once: 16 MB, which memory allocators keep


@dataclass(frozen=True)
class Class:
    """A class of like segments: its order, its account, `begin_ns` (s,) of segments, `length_ns`
    (s,) as measured, and as replayed with nothing removed; `error_ns`: by how much replays are too
    long everywhere."""

    order: Order
    account: Account
    begin_ns: Ints
    length_ns: Times
    replayed_ns: Times
    error_ns: float


@dataclass(frozen=True)
class Entry:
    """One cause: `ranks` that share it (more than one: the evidence cannot tell them apart), and
    what each segment concerned would have been shorter."""

    cause: str  # own, transfer, perhaps or unexplained
    ranks: tuple[int, ...]
    share: float  # of the segments concerned, mean
    low: float  # 5 % quantile of that mean
    segments: int  # concerned
    gain_ns: float  # of all of them
    begin_ns: int  # of the first one


def replayed(order: Order, own: Times, rounds: Times, transfers: Times) -> Times:
    """The length of each segment (s,) with these times: own (s, r, width), rounds (s, k), ..."""
    return order.replay(_by_node(own), rounds.T, transfers.T)[0]


def gains_of_own(one: Class, candidates: Sequence[Ints], removed: Sequence[int]) -> Times:
    """By how much segments shrink if the own time of a candidate's ranks is their peers'
    (candidates, s)."""
    account, width = one.account, one.order.graph.width
    own, baseline = _by_node(account.own), _by_node(account.baseline_own)
    for rank in removed:
        own[rank * width : (rank + 1) * width] = baseline[rank * width : (rank + 1) * width]

    def remove(at: int, times: Sequence[Times]) -> None:
        own, _, _ = times
        for rank in candidates[at].tolist():
            own[rank * width : (rank + 1) * width] = baseline[rank * width : (rank + 1) * width]

    every = np.arange(len(candidates))
    return _gains(one, every, remove, (own, account.rounds.T, account.transfers.T))


def gains_of_transfers(one: Class, candidates: Ints) -> Times:
    """The same if all transfers of a rank take their baseline time, but for those of everybody."""
    account = one.account
    rounds_of, transfers_of = _touched(one.order)

    def remove(rank: int, times: Sequence[Times]) -> None:
        _, rounds, transfers = times
        rounds[rounds_of[rank]] = account.baseline_rounds.T[rounds_of[rank]]
        transfers[transfers_of[rank]] = account.baseline_transfers.T[transfers_of[rank]]

    times = (_by_node(account.own), account.rounds.T, account.transfers.T)
    return _gains(one, candidates, remove, times)


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


def _by_node(own: Times) -> Times:
    """Own times (s, r, width) as replays take them (nodes, s); a copy."""
    return own.reshape(len(own), -1).T.copy()


def _gains(
    one: Class,
    candidates: Ints,
    remove: Callable[[int, Sequence[Times]], None],
    times: Sequence[Times],
) -> Times:
    """By how much segments shrink (candidates, s). `remove` puts baseline times into copies of
    `times` for one rank."""
    now, _ = one.order.replay(*times)
    # What a replay takes longer than was measured, beyond its error everywhere, is no loss.
    now = np.minimum(now, one.length_ns + one.error_ns)
    at_once = max(1, _MOST_NUMBERS // max(times[0].size, 1))
    found = np.zeros((len(candidates), len(now)))
    for begin in range(0, len(candidates), at_once):
        chosen = candidates[begin : begin + at_once]
        many = [np.tile(each, len(chosen)) for each in times]
        for at, rank in enumerate(chosen.tolist()):
            mine = slice(at * len(now), (at + 1) * len(now))
            remove(rank, [each[:, mine] for each in many])
        lengths, _ = one.order.replay(*many)
        found[begin : begin + len(chosen)] = now - lengths.reshape(len(chosen), -1)
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
