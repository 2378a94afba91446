"""A collective's messages, each sent when what it needs has come and its sender is free.

Members are numbered from 0, and a pair of members that exchange messages is one flow.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from oncall_lab.network.decomposition import NONE, decompose

Integers = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Messages:
    """All messages of one collective, arrays of one length.

    `flow` (n,) place among `pairs`, the (src, dst) members that exchange anything; `needs` (n, k)
    messages that must have come, its sender's message before among them, or NONE.
    """

    pairs: tuple[tuple[int, int], ...]
    flow: Integers
    src: Integers
    dst: Integers
    step: Integers
    bytes: Integers
    needs: Integers

    def __len__(self) -> int:
        return len(self.flow)

    def steps_of(self, flow: int) -> list[int]:
        """In which steps a flow sends."""
        mine = self.step[self.flow == flow]
        return [int(step) for step in mine]


def messages_of(algorithm: str, op: str, members: int, step_bytes: int) -> Messages:
    """The messages of `op`; the largest has `step_bytes`. Raises what `decompose` raises."""
    steps = decompose(algorithm, op, members)
    pairs = sorted(set(zip(steps.src.tolist(), steps.dst.tolist(), strict=True)))
    place = {pair: number for number, pair in enumerate(pairs)}
    flow = [place[pair] for pair in zip(steps.src.tolist(), steps.dst.tolist(), strict=True)]
    sent = {
        key: n for n, key in enumerate(zip(steps.src.tolist(), steps.step.tolist(), strict=True))
    }
    before = [
        sent.get((src, step - 1), NONE)
        for src, step in zip(steps.src.tolist(), steps.step.tolist(), strict=True)
    ]
    return Messages(
        tuple(pairs),
        np.array(flow, np.int64),
        steps.src,
        steps.dst,
        steps.step,
        np.rint(step_bytes * steps.share / steps.share.max()).astype(np.int64),
        np.column_stack([steps.needs, before]),
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
