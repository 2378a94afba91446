"""What made segments longer, as a verdict: the causes that stand out, with their gain.

The smallest set of causes that explains most of the loss wins: the largest gain first, all others
replayed again without it. Uncertainty comes from resampling iterations.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from oncall.analysis.lost_time.books import Books
from oncall.analysis.lost_time.causes import (
    Entry,
    candidates_by,
    excess_of_own,
    excess_of_transfers,
    gains_of_own,
    gains_of_transfers,
    gains_together,
)
from oncall.analysis.lost_time.chance import by_turns, counts_alone, is_duty
from oncall.analysis.lost_time.latecomers import BLOCKS
from oncall.analysis.lost_time.limits import Limits
from oncall.analysis.lost_time.measured import median
from oncall.analysis.lost_time.programs import Ints, Times


def entries_of(books: Books, limits: Limits) -> list[Entry]:
    """Causes, the largest gain first; then the transfers that are slow beside them."""
    own: list[Entry] = []
    left = np.ones(len(books.length_ns))  # of each segment, without the causes found
    candidates = candidates_by(books.joined(excess_of_own).sum(1), limits)
    for _ in range(limits.most_causes):
        removed = [rank for entry in own for rank in entry.ranks]
        share = books.shares(
            partial(gains_of_own, candidates=candidates, removed=removed, limits=limits)
        )
        share[np.isin(candidates, removed)] = 0
        total = np.where(share >= limits.least_gain / 2, share, 0).sum(1)
        best = int(np.argmax(total))
        entry = _entry(books, limits, "own", (int(candidates[best]),), share[best])
        rest = np.delete(total, best)
        if entry is None or (len(rest) and total[best] < limits.stands_out * rest.max()):
            break
        if _others_too(share, best, limits) and by_turns(
            share[best], share.max(0), len(share), limits
        ):
            break
        own.append(entry)
        left -= share[best]
    if not own:
        own = _on_one_host(books, limits) or _alike(books, limits)
    return own + _slow_transfers(books, limits, own, left)


def _alike(books: Books, limits: Limits) -> list[Entry]:
    """The ranks that are late by as much as one another, if together they cost what none costs
    alone: those of a host, or of a pipeline whose transfers are not recorded."""
    excesses = books.joined(excess_of_own)
    excess = excesses.mean(1)
    late = excess >= limits.as_late * excess.max()
    if not 1 < late.sum() <= len(late) / 2:
        return []
    sides = [np.flatnonzero(late), np.flatnonzero(~late)]
    share = books.shares(partial(gains_together, sets=sides))
    entry = _entry(books, limits, "own", tuple(sides[0].tolist()), share[0])
    # Nobody else stands against them: it has to be more than replays are off by.
    if entry is None or entry.share < books.error:
        return []
    # Of many, some are late at any time: these are the same ones each time.
    each = excesses[np.ix_(late, share[0] >= limits.least_gain)]
    if (median(each / np.maximum(each.max(0), 1.0), 1) < limits.as_late).any():
        return []
    if by_turns(share[0], share.max(0), len(late) / len(sides[0]), limits):
        return []
    return [entry]


def _on_one_host(books: Books, limits: Limits) -> list[Entry]:
    """The neighbours without whom iterations are shorter, where no others are, and no one of them
    alone: ranks of a host. Of blocks that gain nearly as much the smallest."""
    excesses = books.joined(excess_of_own)
    excess = excesses.mean(1)
    late = np.sort(np.argsort(-excess)[: limits.tried])
    late = late[excess[late] >= limits.as_late * excess.max()]
    begins = [(at, size) for size in BLOCKS[1:] for at in np.unique(late // size * size)]
    blocks = [np.arange(at, at + size) for at, size in begins if 2 * size <= len(excesses)]
    # Who is the last of them in a call of all differs, so that some may be hardly late.
    blocks = [one for one in blocks if one[-1] < len(excesses) and _most_are_late(excess, one)]
    if not blocks:
        return []
    share = books.shares(partial(gains_together, sets=blocks))
    total = np.where(share >= limits.least_gain / 2, share, 0).sum(1)
    enough = np.flatnonzero(total >= limits.alike * total.max())
    _, _, best = min((len(blocks[one]), -total[one], int(one)) for one in enough)
    block = blocks[best]
    whole = range(0, len(excesses) - len(block) + 1, len(block))
    beside = [np.arange(at, at + len(block)) for at in whole if at != block[0]]
    each = np.vstack([share[best], books.shares(partial(gains_together, sets=beside))])
    others = np.where(each[1:] >= limits.least_gain / 2, each[1:], 0).sum(1)
    if total[best] < limits.stands_out * others.max(initial=0.0):
        return []
    entry = _entry(books, limits, "own", tuple(block.tolist()), share[best])
    if entry is None or entry.share < books.error:
        return []
    if _others_too(each, 0, limits) and by_turns(each[0], each.max(0), len(each), limits):
        return []
    return [entry]


def _most_are_late(excess: Times, block: Ints) -> bool:
    """Is the middle rank of the block later than all others?"""
    return bool(np.median(excess[block]) > np.delete(excess, block).max(initial=0.0))


def _others_too(share: Times, best: int, limits: Limits) -> bool:
    """Does any other rank ever cost as much as half of what this one does?"""
    mine, others = share[best], np.delete(share, best, 0)
    much = max(float(np.median(mine[mine >= limits.least_gain])) / 2, limits.least_gain)
    return bool((others >= much).any())


def _slow_transfers(books: Books, limits: Limits, own: list[Entry], left: Times) -> list[Entry]:
    """The rank whose transfers cost most, or those that share all slow ones with it; shares are of
    what is `left` (s,) of segments without the causes in `own`."""
    excesses = books.joined(excess_of_transfers)
    ranks = len(excesses)
    candidates = candidates_by(excesses.sum(1), limits)
    removed = [rank for entry in own for rank in entry.ranks]
    gains = partial(gains_of_transfers, candidates=candidates, removed=removed, limits=limits)
    share = books.shares(gains) / left
    total = np.where(share >= limits.least_gain / 2, share, 0).sum(1)
    best = int(np.argmax(total))
    concerned = share[best] >= limits.least_gain
    if not concerned.any():
        return []
    if _others_too(share, best, limits) and by_turns(share[best], share.max(0), len(share), limits):
        return []
    near = candidates[total >= limits.alike * total[best]]
    # Of what the worst of them shows, in most iterations: what happens once tells nobody apart.
    excess = excesses[np.ix_(near, concerned)]
    part = median(excess / np.maximum(excess.max(0), 1.0), 1)
    same = near[part >= limits.same]
    known = [entry.ranks[0] for entry in own]
    mine = [
        int(near[at]) for at in np.flatnonzero(part >= limits.own_and_link) if near[at] in known
    ]
    # Calls alone hardly show transfers: more is asked of them.
    fewest = 1 if books.timed else limits.calls_alone
    least = limits.least_gain * (1 if books.timed else limits.calls_gain)
    blamed = tuple(mine or map(int, same))
    entry = _entry(books, limits, "transfer", blamed, share[best])
    if (
        entry is None
        or entry.segments <= fewest
        or entry.share < least
        or len(same) > max(2, ranks // 2)
    ):
        return []
    return [entry]


def _entry(
    books: Books, limits: Limits, cause: str, ranks: tuple[int, ...], share: Times
) -> Entry | None:
    """The verdict on one cause, if enough segments gain enough; `share` (s,)."""
    concerned = share >= limits.least_gain
    number = int(concerned.sum())
    if not number:
        return None
    values = share[concerned]
    if values.mean() < books.backwards:
        return None  # Hosts that go on too early by as much do not wait for it.
    drawn = np.random.default_rng(0).choice(values, (limits.resampled, number)).mean(1)
    low = float(np.quantile(drawn, limits.certain))
    length_ns = np.maximum(books.length_ns, books.replayed_ns)
    gain_ns = float((share * length_ns)[concerned].sum())
    if low < limits.least_gain or (number < 2 and not counts_alone(gain_ns, length_ns, limits)):
        return None
    mean, in_order = float(values.mean()), np.argsort(books.begin_ns, kind="stable")
    duty = cause == "own" and is_duty(ranks, mean, concerned[in_order], limits)
    return Entry(
        cause="perhaps" if duty else cause,
        ranks=ranks,
        share=mean,
        low=low,
        segments=number,
        gain_ns=gain_ns,
        begin_ns=int(books.begin_ns[concerned].min()),
    )
