"""A double binary tree, slice by slice: up to the root reduced, down again as it is.

NCCL cuts the data in two and runs a tree on each half of the channels; who passes on in one tree
is a leaf of the other, so that every link is used (Pulse, appendix B). The rules of who may send
when are those of the ring: data from the children (or the parent), a free buffer at the receiver,
one slice of a connection after another.

Simplified: a rank's link is shared in equal parts by all of its connections, also while some are
silent; reduction and broadcast are done by two halves of the kernel that do not wait for each
other but at the root.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np

from oncall_lab.arrays import Floats, Ints
from oncall_lab.traffic.conditions import Links
from oncall_lab.traffic.ring import KERNEL_NS_PER_BYTE, LATENCY_NS
from oncall_lab.traffic.slices import Expected, Slices
from oncall_lab.training.algorithm import binary_tree


@dataclass(frozen=True)
class Tree:
    """One AllReduce of n ranks."""

    ranks: int
    size_bytes: int
    channels: int
    slice_bytes: int
    algorithm: ClassVar[str] = "TREE"

    @cached_property
    def parents(self) -> Ints:
        """(C, n): each rank's parent on each channel, -1 at the root."""
        first = binary_tree(self.ranks).parent
        # The second tree: the first one seen from the other end, or one rank further if there is
        # an odd number (ncclGetDtree).
        if self.ranks % 2:
            second = np.roll(np.where(first < 0, -1, (first + 1) % self.ranks), 1)
        else:
            second = np.where(first < 0, -1, self.ranks - 1 - first)[::-1]
        return np.stack([first if 2 * c < self.channels else second for c in range(self.channels)])

    @cached_property
    def levels(self) -> list[tuple[Ints, Ints, Ints]]:
        """(channel, child, parent) of all connections, by depth of the child, from 1 on."""
        depth = np.zeros_like(self.parents)
        at = self.parents.copy()
        while (at >= 0).any():
            depth += at >= 0
            at = np.where(at >= 0, np.take_along_axis(self.parents, np.maximum(at, 0), 1), -1)
        found = []
        for level in range(1, int(depth.max()) + 1):
            channel, child = np.nonzero(depth == level)
            found.append((channel, child, self.parents[channel, child]))
        return found

    @property
    def connections(self) -> Ints:
        """(n,): how many connections each rank sends on."""
        channel, child = np.nonzero(self.parents >= 0)
        up = np.bincount(child, minlength=self.ranks)
        return up + np.bincount(self.parents[channel, child], minlength=self.ranks)

    def sizes(self) -> Floats:
        """Bytes of each slice of a channel, in order."""
        whole = self.size_bytes / self.channels
        count = max(1, int(np.ceil(whole / self.slice_bytes)))
        return np.full(count, whole / count)

    def expected(self, numbers: Ints, members: Ints) -> Expected:
        """What each rank of each group (G, n) sends to its parents and children: a tree's half of
        the data on every connection (Pulse, appendix B)."""
        channel, child = np.nonzero(self.parents >= 0)
        parent = self.parents[channel, child]
        source, target = np.append(child, parent), np.append(parent, child)
        pairs, count = np.unique(np.stack([source, target]), axis=1, return_counts=True)
        groups, edges = len(members), len(count)
        return Expected(
            operation=np.repeat(numbers, edges),
            sender=members[:, pairs[0]].ravel(),
            peer=members[:, pairs[1]].ravel(),
            bytes=np.tile(count * self.size_bytes / self.channels, groups),
        )

    def play(
        self,
        members: Ints,
        entered_ns: Floats,
        links: Links,
        buffer_slices: int,
        rng: np.random.Generator,
    ) -> tuple[Slices, Floats]:
        """What the groups `members` (G, n) send when their kernels start at `entered_ns` (G, n).

        Returns the slices, numbered by group, and when each rank's kernel ends (G, n); infinity is
        never.
        """
        play = _Play(self, members, entered_ns, links, buffer_slices, rng)
        sizes = self.sizes()
        for number, size in enumerate(sizes):
            play.reduce(number, size)
            play.broadcast(number, size)
        slices = Slices.joined([play.up.slices(sizes, members), play.down.slices(sizes, members)])
        return slices, play.broadcast_ns.max(axis=1)


class _Play:
    """The kernels of all ranks: when each was done with its last slice, up and down."""

    def __init__(
        self, tree: Tree, members: Ints, entered_ns: Floats, links: Links, buffer_slices: int,
        rng: np.random.Generator,
    ) -> None:  # fmt: skip
        self.tree = tree
        own = links.where(members)
        shape = (len(members), tree.channels, tree.ranks)
        self.reduce_ns = np.broadcast_to(entered_ns[:, np.newaxis, :], shape).copy()
        self.broadcast_ns = self.reduce_ns.copy()
        self.up = _Connections(tree, own, buffer_slices, rng, upwards=True)
        self.down = _Connections(tree, own, buffer_slices, rng, upwards=False)

    def reduce(self, number: int, size: float) -> None:
        """Slice `number` from the leaves to the root."""
        ready = self.reduce_ns.copy()
        for channel, child, parent in reversed(self.tree.levels):
            done = ready[:, channel, child] + size * KERNEL_NS_PER_BYTE
            self.reduce_ns[:, channel, child] = done
            arrived = self.up.send(number, (channel, child), done, size)
            for one in range(len(child)):  # two children of a parent are not taken at once
                at = (slice(None), channel[one], parent[one])
                ready[at] = np.maximum(ready[at], arrived[:, one])
        channel, root = np.nonzero(self.tree.parents < 0)
        self.reduce_ns[:, channel, root] = ready[:, channel, root] + size * KERNEL_NS_PER_BYTE
        for channel, child, parent in self.tree.levels:
            self.up.taken[number][:, channel, child] = self.reduce_ns[:, channel, parent]

    def broadcast(self, number: int, size: float) -> None:
        """Slice `number` from the root to the leaves."""
        channel, root = np.nonzero(self.tree.parents < 0)
        at = (slice(None), channel, root)
        self.broadcast_ns[at] = np.maximum(self.broadcast_ns[at], self.reduce_ns[at])
        for channel, child, parent in self.tree.levels:
            arrived = self.down.send(
                number, (channel, child), self.broadcast_ns[:, channel, parent], size
            )
            at = (slice(None), channel, child)
            done = np.maximum(self.broadcast_ns[at], arrived) + size * KERNEL_NS_PER_BYTE
            self.broadcast_ns[at] = done
            self.down.taken[number][at] = done


class _Connections:
    """All connections of one direction, each named by channel and child: (slices, G, C, n), ns."""

    def __init__(
        self, tree: Tree, own: Links, buffer_slices: int, rng: np.random.Generator, upwards: bool
    ) -> None:
        self.tree, self.own, self.buffer_slices = tree, own, buffer_slices
        self.upwards = upwards
        slices, groups = len(tree.sizes()), len(own.egress)
        full = (slices, groups, tree.channels, tree.ranks)
        self.posted, self.begin = np.full(full, np.inf), np.full(full, np.inf)
        self.end, self.arrived = np.full(full, np.inf), np.full(full, np.inf)
        self.taken = np.full(full, np.inf)
        self.share = own.egress / np.maximum(tree.connections, 1)
        self.spread = np.minimum(
            np.exp(own.unsteady * rng.standard_normal((slices, *own.egress.shape))), 1.05
        )
        self.delays = own.proxy_delays(rng, slices)

    def send(self, number: int, at: tuple[Ints, Ints], ready: Floats, size: float) -> Floats:
        """(G, edges): when a slice that is ready then has arrived at the other end."""
        channel, child = at
        parent = self.tree.parents[channel, child]
        source, target = (child, parent) if self.upwards else (parent, child)
        key = (slice(None), channel, child)
        post = ready
        if number:
            post = np.maximum(post, self.posted[number - 1][key])
        if number >= self.buffer_slices:
            freed = self.taken[number - self.buffer_slices][key]
            post = np.maximum(post, freed + LATENCY_NS)
        post = post + self.delays[number][:, source]
        begin = np.maximum(post, self.end[number - 1][key]) if number else post
        down = self.own.down_ns[:, source]
        begin = np.where(begin < down, begin, np.inf)
        pace = self.share[:, source] * self.spread[number][:, source]
        end = begin + size / pace
        landed = np.where(end < np.minimum(down, self.own.down_ns[:, target]), end, np.inf)
        self.posted[number][key], self.begin[number][key] = post, begin
        self.end[number][key] = np.where(end < down, end, np.inf)
        self.arrived[number][key] = landed + LATENCY_NS
        return landed + LATENCY_NS

    def slices(self, sizes: Floats, members: Ints) -> Slices:
        """All that went onto the wire whole."""
        index, group, channel, child = np.nonzero(np.isfinite(self.end))
        at = (index, group, channel, child)
        parent = self.tree.parents[channel, child]
        source, target = (child, parent) if self.upwards else (parent, child)
        return Slices(
            operation=group,
            sender=members[group, source],
            peer=members[group, target],
            channel=channel,
            bytes=sizes[index],
            posted_ns=self.posted[at],
            begin_ns=self.begin[at],
            end_ns=self.end[at],
            completed_ns=self.arrived[at] + LATENCY_NS,
        )
