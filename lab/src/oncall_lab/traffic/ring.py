"""A ring, slice by slice: who may send when, if data must have come and buffers are bounded.

NCCL's SIMPLE protocol (Pulse 2.3 and 6.1): each rank's kernel goes through one fixed sequence of
primitives. To pass on a slice it needs the slice from its predecessor and a free place of its own
send buffer; the proxy thread then posts it once the successor has a free buffer, that is once the
successor's kernel has taken a slice of `buffer_slices` before. The NIC sends a channel's slices
one after another. All of it is maxima and sums of earlier times, so that every rank, channel and
group advances at once as one array, and only the loop over slices is Python's.

Simplified: channels share a link in equal parts, also while another one is silent; what a
receiver cannot take at once is held by the network and by its NIC, and stops no sender before its
buffers are full (two slices under way fit into a switch); one member of a group on each node.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from oncall_lab.arrays import Floats, Ints
from oncall_lab.traffic.conditions import Links
from oncall_lab.traffic.slices import Expected, Slices

SLICES_IN_CHUNK = 2  # NCCL: a step of the ring is a chunk of two slices
KERNEL_NS_PER_BYTE = 1 / 150.0  # a channel's share of the GPU copies and adds 150 GB/s
LATENCY_NS = 5_000.0  # one way, with the flag that tells of it
NONE = -1


@dataclass(frozen=True)
class Primitive:
    """One turn of the kernel: takes in slice `receive`, gives out slice `send`, or either."""

    receive: int
    send: int
    bytes: float


@dataclass(frozen=True)
class Ring:
    """One operation on a ring of n ranks: each sends as much, in loops over the buffer."""

    op: str
    ranks: int
    size_bytes: int  # of the whole buffer
    channels: int
    slice_bytes: int

    @property
    def steps(self) -> int:
        """Chunks each rank sends in a loop."""
        return (self.ranks - 1) * (2 if self.op == "AllReduce" else 1)

    algorithm: ClassVar[str] = "RING"

    def expected(self, numbers: Ints, members: Ints) -> Expected:
        """What each rank of each group (G, n) sends to its successor (Pulse, appendix B)."""
        volume = self.steps * self.size_bytes / self.ranks
        return Expected(
            operation=np.repeat(numbers, self.ranks),
            sender=members.ravel(),
            peer=_from_successor(members).ravel(),
            bytes=np.full(members.size, volume),
        )

    def primitives(self) -> Iterator[Primitive]:
        """What a kernel does on one channel, in order."""
        left = self.size_bytes / self.channels / self.ranks  # of a rank's part
        sent = received = 0
        while left > 0.5:
            slice_bytes = min(left / SLICES_IN_CHUNK, float(self.slice_bytes))
            left -= slice_bytes * SLICES_IN_CHUNK
            for step in range(self.steps + 1):
                for _ in range(SLICES_IN_CHUNK):
                    sends, receives = step < self.steps, step > 0
                    yield Primitive(
                        received if receives else NONE, sent if sends else NONE, slice_bytes
                    )
                    sent, received = sent + sends, received + receives

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
        primitives = list(self.primitives())
        sizes = [p.bytes for p in primitives if p.send != NONE]
        own = links.where(members)
        noise = _Noise(own, len(sizes), self.channels, rng)
        timeline = _Timeline(len(sizes), (len(members), self.channels, self.ranks))
        clock = np.broadcast_to(entered_ns[:, np.newaxis, :], timeline.shape)
        out = own.egress[:, np.newaxis, :] / self.channels
        into = np.roll(own.ingress, -1, axis=1)[:, np.newaxis, :] / self.channels
        down = own.down_ns[:, np.newaxis, :]
        gone = np.minimum(down, np.roll(down, -1, axis=2))  # nothing arrives if either end is down
        for turn in primitives:
            clock = timeline.take(turn, clock, buffer_slices)
            if turn.send != NONE:
                ready = timeline.may_post(turn.send, clock, buffer_slices)
                posted = ready + noise.delay(turn.send)
                pace = out * noise.speed(turn.send)
                timeline.transmit(turn, posted, turn.bytes / pace, turn.bytes / into, down, gone)
        return timeline.slices(np.array(sizes), members, down), clock.max(axis=1)


class _Noise:
    """Jitter of links and delays of proxy threads; a rank's channels share most of both."""

    def __init__(self, own: Links, posts: int, channels: int, rng: np.random.Generator) -> None:
        shape = (posts, *own.egress.shape)
        # Half of the variance stays for some ten slices: others' traffic comes and goes.
        fast, slow = rng.standard_normal(shape), rng.standard_normal(shape)
        for i in range(1, posts):
            slow[i] = 0.9 * slow[i - 1] + 0.436 * slow[i]
        spread = own.unsteady * (0.7 * fast + 0.7 * slow)
        single = 0.004 * rng.standard_normal((*shape[:2], channels, shape[2]))
        self._speed = np.minimum(np.exp(spread[:, :, np.newaxis, :] + single), 1.05)
        self._delay = own.proxy_delays(rng, posts)[:, :, np.newaxis, :]

    def speed(self, post: int) -> Floats:
        """(G, C, n): of a link, against its normal speed."""
        speed: Floats = self._speed[post]
        return speed

    def delay(self, post: int) -> Floats:
        """(G, 1, n): of the proxy thread, ns."""
        delay: Floats = self._delay[post]
        return delay


class _Timeline:
    """When each slice was posted, sent, there, taken: (slices, G, C, n) each, in ns."""

    def __init__(self, slices: int, shape: tuple[int, int, int]) -> None:
        self.shape = shape
        full = (slices, *shape)
        self.posted, self.begin, self.end = np.empty(full), np.empty(full), np.empty(full)
        self.landed, self.arrived, self.taken = np.empty(full), np.empty(full), np.empty(full)

    def take(self, turn: Primitive, clock: Floats, buffer_slices: int) -> Floats:
        """The kernel does one primitive; `clock` (G, C, n) is when it was done with the last."""
        ready = clock
        if turn.receive != NONE:
            ready = np.maximum(ready, _from_predecessor(self.arrived[turn.receive]))
        if turn.send >= buffer_slices:
            ready = np.maximum(ready, self.arrived[turn.send - buffer_slices] + LATENCY_NS)
        done = ready + turn.bytes * KERNEL_NS_PER_BYTE
        if turn.receive != NONE:
            self.taken[turn.receive] = done
        return done

    def may_post(self, send: int, ready: Floats, buffer_slices: int) -> Floats:
        """When the proxy thread could post: in order, and with a free buffer at the successor."""
        if send:
            ready = np.maximum(ready, self.posted[send - 1])
        if send >= buffer_slices:
            freed = _from_successor(self.taken[send - buffer_slices])
            ready = np.maximum(ready, freed + LATENCY_NS)
        return ready

    def transmit(
        self, turn: Primitive, posted: Floats, sending: Floats, taking: Floats,
        down: Floats, gone: Floats,
    ) -> None:  # fmt: skip
        """The NIC sends what was posted, `sending` ns long; the receiver takes `taking` ns."""
        i = turn.send
        begin = np.maximum(posted, self.end[i - 1]) if i else posted
        begin = np.where(begin < down, begin, np.inf)
        end = begin + sending
        before = self.landed[i - 1] if i else -np.inf
        landed = np.maximum(end, np.maximum(before, begin) + taking)
        landed = np.where(landed < gone, landed, np.inf)
        self.posted[i], self.begin[i] = posted, begin
        self.end[i] = np.where(end < down, end, np.inf)
        self.landed[i], self.arrived[i] = landed, landed + LATENCY_NS

    def slices(self, sizes: Floats, members: Ints, down: Floats) -> Slices:
        """All that went onto the wire; of the last slice of a NIC that went down, a part."""
        group, channel, column = np.indices(self.shape)
        peers = np.roll(members, -1, axis=1)
        index, *where = np.nonzero(np.isfinite(self.begin))
        at = (index, *where)
        begin, end = self.begin[at], self.end[at]
        cut = np.broadcast_to(down, self.shape)[tuple(where)]
        full = sizes[index]
        broken = ~np.isfinite(end)
        # At the pace of a normal slice.
        pace = float(np.median((end - begin)[~broken])) if not broken.all() else 1.0
        until = np.where(broken, cut, 0.0) - np.where(broken, begin, 0.0)
        share = np.where(broken, np.clip(until / pace, 0.0, 1.0), 1.0)
        columns = tuple(where)
        return Slices(
            operation=group[columns],
            sender=members[group[columns], column[columns]],
            peer=peers[group[columns], column[columns]],
            channel=channel[columns],
            bytes=full * share,
            posted_ns=self.posted[at],
            begin_ns=begin,
            end_ns=np.where(broken, cut, end),
            completed_ns=self.arrived[at] + LATENCY_NS,
        )


def _from_predecessor(values: NDArray[Any]) -> NDArray[Any]:
    return np.roll(values, 1, axis=-1)


def _from_successor(values: NDArray[Any]) -> NDArray[Any]:
    return np.roll(values, -1, axis=-1)
