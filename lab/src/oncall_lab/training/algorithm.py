"""How NCCL's algorithms move data: duration, counts, and where a stall leaves everybody.

Counts are primitives of one channel. A rank sends and receives in a fixed sequence; a send waits
for room in the receiver's FIFO, a receive for data. So when one rank hangs, the others get
exactly as far as the dependencies let them (CCL-D 4.2.2 reads the fault from that).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from oncall_lab.arrays import Bools, Floats, Ints

FIFO_STEPS = 8  # NCCL_STEPS: sends ahead of the receiver
CHUNK_BYTES = 512 * 1024
SMALL_BYTES = 64 * 1024  # below: one channel and the LL protocol
ALGORITHMS = ("RING", "TREE")


@dataclass(frozen=True)
class Shape:
    """An operation as NCCL would run it on n ranks."""

    op: str
    algo: str
    ranks: int
    size_bytes: int
    channels: int
    forced_protocol: str = ""

    @property
    def protocol(self) -> str:
        if self.forced_protocol:
            return self.forced_protocol
        return "LL" if self.size_bytes < SMALL_BYTES else "SIMPLE"

    def duration_ns(self, bytes_per_s: Floats, latency_ns: float) -> Floats:
        """Transfer time once everybody is there, per group: bandwidth term and latency term."""
        others = self.ranks - 1
        share, hops = {
            "AllReduce": (2 * others / self.ranks, 2 * others),
            "ReduceScatter": (others / self.ranks, others),
            "AllGather": (others, others),
            "AllToAll": (others / self.ranks, others),
        }.get(self.op, (1.0, 1))
        if self.algo == "TREE":
            share, hops = 2.0, 2 * max(1, int(np.log2(self.ranks)))
        # Hops of a ring overlap except for their own latency, a fifth of a launch.
        return share * self.size_bytes / bytes_per_s * 1e9 + latency_ns * (1 + 0.05 * hops)

    def counts(self) -> tuple[Ints, Ints]:
        """Send and receive primitives of one channel by column (n,), when done."""
        n, loops = self.ranks, self._loops()
        ones = np.ones(n, dtype=np.int64)
        if self.op == "Send":
            return ones * loops, ones * 0
        if self.op == "Recv":
            return ones * 0, ones * loops
        if self.algo == "TREE":
            tree = binary_tree(n)
            up = (tree.parent >= 0).astype(np.int64)
            return (up + tree.children) * loops, (up + tree.children) * loops
        rounds = 2 * (n - 1) if self.op == "AllReduce" else n - 1
        return ones * rounds * loops, ones * rounds * loops

    def _loops(self) -> int:
        each = self.size_bytes
        if self.algo == "RING" and self.op in ("AllReduce", "ReduceScatter", "AllToAll"):
            each //= self.ranks
        return max(1, -(-each // (self.channels * CHUNK_BYTES)))


def shape_of(
    op: str, size_bytes: int, ranks: int, tree: bool, channels: int, protocol: str = ""
) -> Shape:
    """The algorithm and channels an operation of this size gets."""
    algo = "TREE" if tree and op == "AllReduce" else "RING"
    channels = 1 if size_bytes < SMALL_BYTES else channels
    return Shape(op, algo, ranks, size_bytes, channels, protocol)


@dataclass(frozen=True)
class Tree:
    """NCCL's binary tree (ncclGetBtree): parent, number of children and depth by column."""

    parent: Ints
    children: Ints
    depth: Ints


@cache
def binary_tree(ranks: int) -> Tree:
    """The tree over n ranks. With n a power of two every rank of a layer has as many children."""
    parent = np.full(ranks, -1, dtype=np.int64)
    for rank in range(1, ranks):
        bit = rank & -rank
        up = (rank ^ bit) | (bit << 1)
        parent[rank] = up if up < ranks else rank ^ bit
    depth = np.zeros(ranks, dtype=np.int64)
    at = parent.copy()
    while (at >= 0).any():
        depth += at >= 0
        at = np.where(at >= 0, parent[at], -1)
    children = np.bincount(parent[parent >= 0], minlength=ranks)
    return Tree(parent, children, depth)


def stalled(shape: Shape, stuck: Bools, reached: Ints) -> tuple[Ints, Ints]:
    """Sends and receives of one channel (G, n) when the `stuck` members stand at `reached`.

    `reached` counts primitives of either direction; it is read where `stuck` (0: never entered).
    Groups without a stuck member are complete.
    """
    sends, recvs = (np.broadcast_to(c, stuck.shape).copy() for c in shape.counts())
    held = stuck.any(axis=1, keepdims=True)
    if shape.op in ("Send", "Recv"):
        far_sends, far_recvs = _pair(reached, stuck)
    elif shape.algo == "TREE":
        far_sends, far_recvs = _tree(shape, stuck, reached)
    elif shape.op == "AllToAll":
        far_sends, far_recvs = _all_to_all(shape, stuck, reached)
    else:
        far_sends, far_recvs = _ring(stuck, reached)
    return (
        np.where(held, np.minimum(sends, far_sends), sends),
        np.where(held, np.minimum(recvs, far_recvs), recvs),
    )


def _ring(stuck: Bools, reached: Ints) -> tuple[Ints, Ints]:
    """Step j of a rank needs step j - 1 of the rank before it, and room at the rank after it."""
    upstream, before = _nearest(stuck, reached, step=1)
    downstream, after = _nearest(stuck, reached, step=-1)
    sends = np.minimum(before + upstream, after + FIFO_STEPS * downstream)
    recvs = np.minimum(before + np.maximum(upstream - 1, 0), sends)
    return sends, recvs


def _nearest(stuck: Bools, reached: Ints, step: int) -> tuple[Ints, Ints]:
    """Distance to the nearest stuck member backwards (step 1) or forwards, and where it stands."""
    n = stuck.shape[1]
    if step == -1:
        distance, value = _nearest(stuck[:, ::-1], reached[:, ::-1], 1)
        return distance[:, ::-1], value[:, ::-1]
    twice = np.concatenate([stuck, stuck], axis=1)
    index = np.where(twice, np.arange(2 * n), -1)
    last = np.maximum.accumulate(index, axis=1)[:, n:]
    distance = np.arange(n, 2 * n) - last
    return distance, np.take_along_axis(reached, last % n, axis=1)


def _tree(shape: Shape, stuck: Bools, reached: Ints) -> tuple[Ints, Ints]:
    """Reduce upwards, broadcast downwards; chunk j comes down after every rank sent it up."""
    tree = binary_tree(shape.ranks)
    own_degree = np.maximum(1, (tree.parent >= 0) + tree.children)
    chunks = np.where(stuck, reached // own_degree, np.iinfo(np.int64).max // 4)
    slowest = chunks.min(axis=1, keepdims=True)
    # Who waits for a stuck child passes on no more than that child; others fill their FIFO.
    held = stuck.copy()
    for rank in np.argsort(-tree.depth):
        if tree.parent[rank] >= 0:
            held[:, tree.parent[rank]] |= held[:, rank]
    up = np.where(held, slowest, slowest + FIFO_STEPS)
    has_parent = tree.parent >= 0
    down = slowest * np.ones_like(up)
    from_children: Ints = np.zeros_like(up)
    for rank in np.flatnonzero(has_parent):
        from_children[:, tree.parent[rank]] += np.where(
            stuck[:, tree.parent[rank]], slowest[:, 0], up[:, rank]
        )
    sends = up * has_parent + down * tree.children
    recvs = from_children + down * has_parent
    return sends, recvs


def _all_to_all(shape: Shape, stuck: Bools, reached: Ints) -> tuple[Ints, Ints]:
    """Everybody finishes with everybody but the stuck ones."""
    total = shape.counts()[0][0]
    others = shape.ranks - 1
    share = np.where(stuck, reached, 0).sum(axis=1, keepdims=True) // others
    missing = stuck.sum(axis=1, keepdims=True)
    free = total // others * (others - missing) + share
    count = np.where(stuck, np.minimum(reached, free), free)
    return count, count


def _pair(reached: Ints, stuck: Bools) -> tuple[Ints, Ints]:
    """A sender runs a FIFO ahead of a blocked receiver; a receiver has what was sent."""
    first_stuck: Any = np.where(stuck, reached, np.iinfo(np.int64).max // 4).min(
        axis=1, keepdims=True
    )
    sends = np.where(stuck, reached, first_stuck + FIFO_STEPS)
    recvs = np.where(stuck, reached, first_stuck)
    return sends, recvs
