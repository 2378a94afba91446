"""What each cause costs: the iteration replayed with it removed.

As docs/decisions/018-lost-time-by-replay.md says under 4.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from oncall.analysis.lost_time.arrays import Ints, Times
from oncall.analysis.lost_time.graph import Account, Order
from oncall.analysis.lost_time.limits import Limits

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


@dataclass(frozen=True)
class Books:
    """All classes of a job, and whether operations recorded how long they took. `in_step`: hosts
    call as devices go. Else the time between calls says nothing of what ranks do: only transfers
    show. `older`: how many earlier segments are left out."""

    classes: list[Class]
    timed: bool
    in_step: bool = True
    older: int = 0

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
        return self.error <= limits.ordinary and self.backwards <= limits.hardly

    def joined(self, values: Callable[[Class], Times]) -> Times:
        """Values of each rank and segment, of all classes (r, s)."""
        return np.concatenate([values(one) for one in self.classes], axis=1)

    def shares(self, gains: Callable[[Class], Times]) -> Times:
        """Gains as shares of the segments, of all classes (candidates, s): no more than all."""
        whole = np.maximum(self.length_ns, self.replayed_ns)
        return np.minimum(self.joined(gains) / whole, 1.0)


def replayed(order: Order, own: Times, rounds: Times, transfers: Times) -> Times:
    """The length of each segment (s,) with these times: own (s, r, width), rounds (s, k), ..."""
    return order.lengths(own.reshape(len(own), -1).T, rounds.T, transfers.T)


def gains_of_own(
    one: Class, sets: Sequence[Ints] | Ints, removed: Sequence[int], limits: Limits
) -> Times:
    """By how much segments shrink if the own time of all ranks of a set is their peers' (sets, s),
    as that of those `removed` is already."""
    excess = excess_of_own(one)

    def remove(ranks: Ints, times: Sequence[Times]) -> None:
        for rank in ranks.tolist():
            _put_baseline(one, rank, times[0])

    return _gains(one, sets, remove, excess, removed, limits)


def gains_of_all_own(one: Class) -> Times:
    """By how much segments shrink if no own time exceeds its peers' (1, s)."""
    account = one.account
    own = np.minimum(account.own, account.baseline_own)
    now = np.minimum(one.replayed_ns, one.length_ns + one.error_ns)
    return (now - replayed(one.order, own, account.rounds, account.transfers))[None]


def gains_of_transfers(
    one: Class, sets: Sequence[Ints] | Ints, removed: Sequence[int], limits: Limits
) -> Times:
    """The same if all transfers of a set take their baseline time, but for those of everybody."""
    account = one.account
    (in_round, round_of), (in_transfer, transfer_of) = _touched(one.order)

    def remove(ranks: Ints, times: Sequence[Times]) -> None:
        mine, sent = round_of[np.isin(in_round, ranks)], transfer_of[np.isin(in_transfer, ranks)]
        times[1][mine] = account.baseline_rounds.T[mine]
        times[2][sent] = account.baseline_transfers.T[sent]

    return _gains(one, sets, remove, excess_of_transfers(one), removed, limits)


def excess_of_own(one: Class) -> Times:
    """How much more own time each rank spent than its peers (r, s), ns."""
    each = zip(one.account.own, one.account.baseline_own, strict=True)
    return np.stack([np.maximum(0, own - baseline).sum(1) for own, baseline in each], axis=1)


def excess_of_transfers(one: Class) -> Times:
    """By how much the transfers that each rank takes part in exceed their baseline (r, s), ns."""
    account, ranks = one.account, one.order.graph.ranks
    parts = zip(
        _touched(one.order),
        (account.rounds - account.baseline_rounds, account.transfers - account.baseline_transfers),
        strict=True,
    )
    found = [
        np.stack([np.bincount(rank, each[of], ranks) for each in excess], axis=1)
        for (rank, of), excess in parts
    ]
    return np.asarray(found[0] + found[1], dtype=np.float64)


def candidates_by(excess: Times, limits: Limits) -> Ints:
    """The ranks that are tried (c, 1): all, or the ones with the largest excess."""
    if len(excess) <= 4 * limits.most_compared:
        return np.arange(len(excess))[:, None]
    return np.sort(np.argsort(-excess, kind="stable")[: limits.most_compared])[:, None]


def _put_baseline(one: Class, rank: int, own: Times) -> None:
    """Let the own times of a rank, among those of all (nodes, s), be its peers'."""
    width = one.order.graph.width
    own[rank * width : (rank + 1) * width] = one.account.baseline_own[:, rank].T


def _gains(
    one: Class,
    sets: Sequence[Ints] | Ints,
    remove: Callable[[Ints, Sequence[Times]], None],
    excess: Times,
    removed: Sequence[int],
    limits: Limits,
) -> Times:
    """By how much segments shrink (sets, s). `remove` puts baseline times of a set into copies of
    those of all nodes, rounds and transfers. No segment shrinks by more than the `excess` (r, s) of
    the set: where that is too little to count, it is not replayed, and gains 0."""
    account = one.account
    own = account.own.reshape(len(account.own), -1).T.copy()
    for rank in removed:
        _put_baseline(one, rank, own)
    times = own, account.rounds.T, account.transfers.T
    found = np.zeros((len(sets), len(one.length_ns)))
    enough = limits.least_gain / 2 * np.maximum(one.length_ns, one.replayed_ns)
    tried = [at for at, ranks in enumerate(sets) if (excess[ranks].sum(0) >= enough).any()]
    if not tried:
        return found
    # What a replay takes longer than was measured, beyond its error everywhere, is no loss.
    now = np.minimum(one.order.lengths(*times), one.length_ns + one.error_ns)
    at_once = max(1, _MOST_NUMBERS // max(own.size, 1))
    for begin in range(0, len(tried), at_once):
        chosen = tried[begin : begin + at_once]
        many = [np.tile(each, len(chosen)) for each in times]
        for at, place in enumerate(chosen):
            mine = slice(at * len(now), (at + 1) * len(now))
            remove(sets[place], [each[:, mine] for each in many])
        found[chosen] = now - one.order.lengths(*many).reshape(len(chosen), -1)
    return found


def _touched(order: Order) -> tuple[tuple[Ints, Ints], tuple[Ints, Ints]]:
    """Who takes part in which rounds, those of everybody left out, and in which transfers: a rank
    and a number for each (m,)."""
    graph = order.graph
    rounds, width = graph.rounds, graph.width
    mine = rounds.size[rounds.of] < graph.ranks
    number = np.arange(len(graph.sender))
    sender, receiver = graph.sender // width, graph.receiver // width
    other = sender != receiver
    return (
        (rounds.nodes[mine] // width, rounds.of[mine]),
        (np.append(sender, receiver[other]), np.append(number, number[other])),
    )
