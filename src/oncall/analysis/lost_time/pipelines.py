"""The other side of sends and receives whose peer is not recorded.

In a communicator of two it is the other member. Larger ones are the stages of a pipeline: what a
forward pass received goes to the next stage. A receive alone comes from the stage before until the
first batch of both directions since the iteration began, then from the stage after. A batch of both
directions sends the way it goes and receives from there.

Stages in the middle of a pipeline call the same, and wait differently long by their distance from
its ends. A pipeline is the ranks that send to one another, in the order of their numbers; the same
stage of each has the same place in it. In a ring all call the same, and no place is another. Who
loads data for its group has a place of its own.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from oncall.analysis.lost_time.arrays import NONE, Flags, Hashes, Ints, numbered
from oncall.analysis.lost_time.graph import leaders_of
from oncall.analysis.lost_time.programs import ABSENT, Programs


def with_peers(programs: Programs, cut: Flags) -> Programs:
    """The programs, with unknown peers inferred; `cut` (n,) are the nodes that end iterations."""
    parts = programs.parts
    unknown = parts.peer == NONE
    if not unknown.any():
        return programs
    towards_next = _towards_next(programs, cut)
    rank = programs.rank[parts.node]
    peer = parts.peer.copy()
    for comm in np.unique(parts.comm[unknown]):
        line = programs.members[int(comm)]
        place = np.full(len(programs.ranks), NONE)
        place[line] = np.arange(len(line))
        mine = np.flatnonzero(unknown & (parts.comm == comm))
        at = place[rank[mine]]
        if len(line) < 2 or (at < 0).any():
            continue
        step = np.where((at == 0) | (towards_next[mine] & (at < len(line) - 1)), 1, -1)
        peer[mine] = line[at + step]
    return replace(programs, parts=replace(parts, peer=peer))


def _towards_next(programs: Programs, cut: Flags) -> Flags:
    """Whether each part's other side is the next stage (m,), for stages in the middle."""
    parts = programs.parts
    nodes = len(programs.rank)
    sends = np.bincount(parts.node, parts.sends, nodes) > 0
    receives = np.bincount(parts.node, ~parts.sends, nodes) > 0
    both, alone = sends & receives, receives & ~sends
    # Since the last cut, or the beginning of the rank's program.
    start = cut | (np.diff(programs.rank, prepend=-1) != 0)
    steady = _since(start, both) > 0
    # The last receive alone says the direction; each batch of both since then turns it around.
    sets = start | alone
    last = np.maximum.accumulate(np.where(sets, np.arange(nodes), 0))
    forward = np.where(alone[last], ~steady[last], True)
    turned = _since(sets, both) % 2 == 1
    before = np.roll(forward ^ turned, 1)
    before[start] = True
    heading = before[parts.node]
    return np.asarray(
        np.where(parts.sends | both[parts.node], heading, steady[parts.node]), dtype=np.bool_
    )


def _since(start: Flags, what: Flags) -> Ints:
    """How many of `what` (n,) there have been since the last `start`, each node included."""
    total = np.cumsum(what)
    at = np.maximum.accumulate(np.where(start, np.arange(len(start)), 0))
    return np.asarray(total - total[at] + what[at], dtype=np.int64)


def places_of(programs: Programs, mostly_called: Hashes) -> Ints:
    """The place of each rank (r,), from 0; of those at one place, some may mostly call something
    else (r,), and are a place of their own. Ranks that left nothing behind have theirs as well."""
    parts = programs.parts
    known = np.flatnonzero(parts.peer != NONE)
    peer = parts.peer[known]
    other = np.where(peer <= ABSENT, ABSENT - peer, programs.ranks[np.maximum(peer, 0)])
    one = programs.ranks[programs.rank[parts.node[known]]]
    everyone, number = np.unique(np.concatenate([programs.ranks, one, other]), return_inverse=True)
    mine, one, other = np.split(number, np.cumsum([len(programs.ranks), len(one)]))
    pipeline = _joined(len(everyone), one, other)
    order = np.argsort(pipeline, kind="stable")
    first = np.flatnonzero(np.diff(pipeline[order], prepend=-1))
    place = np.empty(len(everyone), dtype=np.int64)
    place[order] = np.arange(len(order)) - np.repeat(first, np.diff(first, append=len(order)))
    called = np.unique(np.stack([pipeline[mine].astype(np.uint64), mostly_called]), axis=1)
    kinds = np.bincount(called[0].astype(np.int64), minlength=len(everyone))
    found = np.where(kinds[pipeline[mine]] > 1, place[mine] + 1, 0)
    stage = np.where(found, numbered(found, mostly_called.view(np.int64)) + 1, 0)
    return stage * 2 + leaders_of(programs)


def _joined(ranks: int, one: Ints, other: Ints) -> Ints:
    """The smallest of all ranks that each (r,) is joined with, by pairs."""
    found = np.arange(ranks)
    while True:
        least = np.minimum(found[one], found[other])
        joined = found.copy()
        np.minimum.at(joined, one, least)
        np.minimum.at(joined, other, least)
        if (joined == found).all():
            return found
        found = joined
