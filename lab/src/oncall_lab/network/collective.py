"""A collective's messages, each sent when what it needs has come and its sender is free.

An algorithm says, as NCCL's kernels go through it, in which round a member sends which chunks of
the buffer to whom. What a message needs follows from the chunks: it cannot leave before the last
message that brought one of them to its sender. Members and chunks are numbered from 0.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain

import numpy as np

from oncall_lab.arrays import Floats, Ints

NONE = -1


@dataclass(frozen=True)
class Send:
    """What one member sends to another in a round: `chunks` of as many as there are members."""

    src: int
    dst: int
    chunks: range


Rounds = Iterator[list[Send]]


def _ring(members: int, rounds: int, first: int) -> Rounds:
    """Each member sends a chunk to the next one, beginning with that `first` places behind its
    own number, and after it the chunk that has just come (NCCL's all_reduce.h, all_gather.h and
    reduce_scatter.h)."""
    for behind in range(first, first + rounds):
        held = [(member - behind) % members for member in range(members)]
        yield [
            Send(member, (member + 1) % members, range(chunk, chunk + 1))
            for member, chunk in enumerate(held)
        ]


def _reduce_scatter(members: int) -> Rounds:
    return _ring(members, members - 1, first=1)


def _all_gather(members: int) -> Rounds:
    return _ring(members, members - 1, first=0)


def _all_reduce(members: int) -> Rounds:
    """Reduced in one turn of the ring, handed on in another: a chunk that is complete goes on."""
    return _ring(members, 2 * (members - 1), first=1)


def _halving_doubling(members: int) -> Rounds:
    """Halves are exchanged with ever nearer members, reduced ones with ever farther ones (Thakur
    et al. 2005); `members` is a power of two."""

    def block(size: int, member: int) -> range:
        begin = member // size * size
        return range(begin, begin + size)

    distances = [1 << power for power in range(members.bit_length() - 1)]
    for distance in reversed(distances):
        yield [Send(one, one ^ distance, block(distance, one ^ distance)) for one in range(members)]
    for distance in distances:
        yield [Send(one, one ^ distance, block(distance, one)) for one in range(members)]


ALGORITHMS: Mapping[tuple[str, str], Callable[[int], Rounds]] = {
    ("RING", "AllReduce"): _all_reduce,
    ("RING", "AllGather"): _all_gather,
    ("RING", "ReduceScatter"): _reduce_scatter,
    ("HALVING_DOUBLING", "AllReduce"): _halving_doubling,
}


@dataclass(frozen=True)
class Messages:
    """All messages of one collective, arrays of one length, round by round.

    `flow` (n,) place among `pairs`, the (src, dst) members that exchange anything; `step` (n,) its
    round, from 1; `needs` (n, 2) the messages that must have come, or NONE: what brought its
    chunks, and its sender's message before.
    """

    pairs: tuple[tuple[int, int], ...]
    flow: Ints
    src: Ints
    dst: Ints
    step: Ints
    bytes: Ints
    needs: Ints

    def __len__(self) -> int:
        return len(self.flow)

    def steps_of(self, flow: int) -> list[int]:
        """In which steps a flow sends."""
        mine = self.step[self.flow == flow]
        return [int(step) for step in mine]


def messages_of(algorithm: str, op: str, members: int, step_bytes: int) -> Messages:
    """The messages of `op`; the largest has `step_bytes`."""
    rounds = list(ALGORITHMS[algorithm, op](members))
    sends = list(chain.from_iterable(rounds))
    brought: dict[tuple[int, int], int] = {}
    before: dict[int, int] = {}
    needs: list[tuple[int, int]] = []
    for sent in rounds:
        first = len(needs)
        for send in sent:
            came = max(brought.get((send.src, chunk), NONE) for chunk in send.chunks)
            needs.append((came, before.get(send.src, NONE)))
        for number, send in enumerate(sent, first):
            before[send.src] = number
            brought |= {(send.dst, chunk): number for chunk in send.chunks}
    pairs = sorted({(send.src, send.dst) for send in sends})
    chunks = np.array([len(send.chunks) for send in sends])
    return Messages(
        tuple(pairs),
        np.array([pairs.index((send.src, send.dst)) for send in sends]),
        np.array([send.src for send in sends]),
        np.array([send.dst for send in sends]),
        np.repeat(np.arange(1, len(rounds) + 1), [len(sent) for sent in rounds]),
        np.rint(step_bytes * chunks / chunks.max()).astype(np.int64),
        np.array(needs),
    )


class Progress:
    """Which messages have begun and ended, in nanoseconds; NaN: not yet."""

    def __init__(self, messages: Messages, entered_ns: Floats, overhead_ns: Floats) -> None:
        """`entered_ns` (members,) when each member calls; `overhead_ns` (n,) of each message."""
        self.messages, self.overhead_ns = messages, overhead_ns
        self.started_ns = np.full(len(messages), np.nan)
        self.ended_ns = np.full(len(messages), np.nan)
        self._open = (messages.needs != NONE).sum(axis=1)
        self._waiting: dict[int, list[int]] = {}
        for message, needs in enumerate(messages.needs.tolist()):
            for need in needs:
                if need != NONE:
                    self._waiting.setdefault(need, []).append(message)
        self._due: list[tuple[float, int]] = []
        for message in np.flatnonzero(self._open == 0).tolist():
            self._schedule(message, float(entered_ns[messages.src[message]]))

    @property
    def over(self) -> bool:
        return not np.isnan(self.ended_ns).any()

    def due(self, now_ns: float) -> list[int]:
        """Messages that begin now."""
        begun = []
        while self._due and self._due[0][0] <= now_ns:
            message = heapq.heappop(self._due)[1]
            self.started_ns[message] = now_ns
            begun.append(message)
        return begun

    def end(self, message: int, now_ns: float) -> None:
        """A message has come; those that needed it may begin."""
        self.ended_ns[message] = now_ns
        for after in self._waiting.get(message, ()):
            self._open[after] -= 1
            if self._open[after] == 0:
                self._schedule(after, now_ns)

    def _schedule(self, message: int, ready_ns: float) -> None:
        heapq.heappush(self._due, (ready_ns + float(self.overhead_ns[message]), message))
