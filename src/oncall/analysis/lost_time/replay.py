"""Replay: the causes without which replayed iterations are shorter.

The smallest set of causes that explains most of the loss wins: the largest gain first, all others
replayed again without it.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from oncall.analysis.common.quantiles import median
from oncall.analysis.lost_time.arrays import Ints, Times
from oncall.analysis.lost_time.causes import (
    Books,
    candidates_by,
    excess_of_own,
    excess_of_transfers,
    gains_of_all_own,
    gains_of_own,
    gains_of_transfers,
)
from oncall.analysis.lost_time.judgement import (
    BLOCKS,
    Answer,
    Declined,
    Entry,
    Loss,
    by_turns,
    chance,
    judged,
    stands_out,
)
from oncall.analysis.lost_time.limits import Limits


def replay(books: Books | None, limits: Limits) -> Answer:
    """The ranks whose own time, and those whose transfers, make iterations longer."""
    if books is None:
        return Declined("no like iterations that a replay reproduces")
    own = _own(books, limits)
    removed = [rank for entry in own for rank in entry.ranks]
    entries = (*own, *_transfers(books, removed, limits))
    return entries or Declined("replayed iterations are no shorter without any rank")


def replay_of_all(books: Books | None, limits: Limits) -> Answer:
    """All ranks that are ever the last, if iterations would be shorter with nobody's own time: they
    are late by turns, as by pauses that no two ranks make at the same step."""
    if books is None:
        return Declined("no like iterations that a replay reproduces")
    share = books.shares(gains_of_all_own)[0]
    last = np.unique(books.joined(excess_of_own)[:, share >= limits.least_gain].argmax(0))
    if len(last) < 2 or share.mean() < max(limits.hardly, books.error):
        return Declined("replayed iterations are hardly shorter without anybody's delays")
    entry = _entry(books, "turns", last, share, limits)
    return entry or Declined("too few iterations would be shorter without anybody's delays")


def _own(books: Books, limits: Limits) -> list[Entry]:
    """Ranks whose own time is longer than their peers', the largest gain first."""
    found: list[Entry] = []
    candidates = candidates_by(books.joined(excess_of_own).sum(1), limits)
    while len(found) < limits.most_causes:
        removed = [rank for entry in found for rank in entry.ranks]
        gains = partial(gains_of_own, sets=candidates, removed=removed, limits=limits)
        share = books.shares(gains)
        share[np.isin(candidates[:, 0], removed)] = 0
        best = _largest(share, limits)
        entry = _entry(books, "own", candidates[best], share[best], limits)
        if entry is None or not stands_out(share, best, limits):
            break
        found.append(entry)
    return found or _together(books, limits)


def _together(books: Books, limits: Limits) -> list[Entry]:
    """Ranks that cost together what none of them costs alone: neighbours, as those of a host are,
    or all that are late by about as much. Of sets that gain nearly as much, the smallest."""
    excesses = books.joined(excess_of_own)
    excess, ranks = excesses.mean(1), np.arange(len(excesses))
    late = np.flatnonzero(excess >= limits.mostly * excess.max())
    begins = [(at, size) for size in BLOCKS[1:] for at in np.unique(late // size * size)]
    sets = [ranks[at : at + size] for at, size in begins if 2 * size <= len(ranks) >= at + size]
    # Who is the last of them in a call of all differs, so that some may be hardly late.
    sets = [one for one in sets if np.median(excess[one]) > np.delete(excess, one).max(initial=0.0)]
    sets += [late] if 1 < len(late) <= len(ranks) / 2 else []
    if not sets:
        return []
    gains = partial(gains_of_own, removed=(), limits=limits)
    share = books.shares(partial(gains, sets=sets))
    total = _total(share, limits)
    enough = np.flatnonzero(total >= limits.alike * total.max()).tolist()
    best = min(enough, key=lambda one: (len(sets[one]), -total[one]))
    chosen, size = sets[best], len(sets[best])
    others = [np.delete(ranks, chosen)]
    if chosen[-1] - chosen[0] == size - 1 and not chosen[0] % size:
        others = [ranks[at : at + size] for at in range(0, len(ranks) - size + 1, size)]
        others = [one for one in others if one[0] != chosen[0]]
    elif not _each_time(excesses[chosen], share[best], limits) or by_turns(
        share[best], share[best], len(ranks) / size, limits
    ):
        return []
    each = np.vstack([share[best], books.shares(partial(gains, sets=others))])
    entry = _entry(books, "own", chosen, share[best], limits)
    # Nobody else stands against them: it has to be more than replays are off by.
    if entry is None or entry.share < books.error or not stands_out(each, 0, limits):
        return []
    return [entry]


def _each_time(excess: Times, share: Times, limits: Limits) -> bool:
    """Whether ranks are late alike in each costly iteration: of many, some are late at any time."""
    each = excess[:, share >= limits.least_gain]
    part = median(each / np.maximum(each.max(0), 1.0), 1)
    return bool((part >= limits.mostly).all())


def _transfers(books: Books, removed: list[int], limits: Limits) -> list[Entry]:
    """The rank whose transfers cost most, or those that share all slow ones with it; shares are of
    what iterations last without the own time of ranks that are `removed` already."""
    excesses = books.joined(excess_of_transfers)
    candidates = candidates_by(excesses.sum(1), limits)
    gains = partial(gains_of_transfers, sets=candidates, removed=removed, limits=limits)
    share = books.shares(gains)
    if removed:
        ours = partial(gains_of_own, sets=[np.array(removed)], removed=(), limits=limits)
        own = books.shares(ours)
        share = share / np.maximum(1 - own, limits.least_gain)
    best = _largest(share, limits)
    concerned = share[best] >= limits.least_gain
    if not concerned.any() or chance(share, best, len(share), limits):
        return []
    total = _total(share, limits)
    near = candidates[:, 0][total >= limits.alike * total[best]]
    # Of what the worst of them shows, in most iterations: what happens once tells nobody apart.
    excess = excesses[np.ix_(near, concerned)]
    part = median(excess / np.maximum(excess.max(0), 1.0), 1)
    inseparable = near[part >= limits.inseparable]
    mine = [rank for rank in near[part >= limits.alike].tolist() if rank in removed]
    if len(inseparable) > max(2, len(excesses) // 2):
        return []
    entry = _entry(books, "transfer", np.array(mine or inseparable), share[best], limits)
    # Calls alone hardly show transfers: more is asked of them.
    fewest = limits.fewest_replayed if books.timed else limits.few
    return [entry] if entry is not None and entry.segments >= fewest else []


def _largest(share: Times, limits: Limits) -> int:
    return int(np.argmax(_total(share, limits)))


def _total(share: Times, limits: Limits) -> Times:
    """What each candidate costs in all iterations (c,), noise left out."""
    return np.asarray(np.where(share >= limits.least_gain / 2, share, 0).sum(1))


def _entry(books: Books, cause: str, ranks: Ints, share: Times, limits: Limits) -> Entry | None:
    length_ns = np.maximum(books.length_ns, books.replayed_ns)
    loss = Loss(cause, ranks.tolist(), share, length_ns, books.begin_ns, "replay")
    concerned = loss.concerned(limits)
    # Hosts that go on too early by as much do not wait for it.
    if concerned.any() and share[concerned].mean() < books.backwards:
        return None
    found = judged(loss, limits, limits.fewest_replayed)
    return found if isinstance(found, Entry) else None
