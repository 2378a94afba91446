"""Programs of pipelines: interleaved 1F1B, and zero bubble with the weights' gradients apart.

Sends and receives are batched as Megatron batches them (`schedules.py` without overlap), which is
why they cannot deadlock: every batch of a rank runs on one stream and is waited for.
"""

from __future__ import annotations

from oncall_lab.jobs.program import Builder
from oncall_lab.jobs.training import finish

CHUNKS = 2  # virtual stages a rank, where interleaved


class _Stage:
    """One rank's way through a pipeline."""

    def __init__(self, b: Builder, chunks: int) -> None:
        s = self.scenario = b.scenario
        self.b, self.chunks, self.pipe = b, chunks, b.groups["stages"].members
        self.stage, self.stages = self.pipe.index(b.rank), len(self.pipe)
        self.first, self.last = self.stage == 0, self.stage == self.stages - 1
        self.replica = b.rank % (s.ranks // self.stages)
        self.length_ns = s.forward_ns / chunks * (1 + s.imbalance * self.last)
        self.split = s.program == "zero_bubble"
        self.done = {"F": 0, "B": 0, "W": 0}

    def compute(self, way: str) -> None:
        """A forward, a backward, or the gradients of weights (W) that a backward left out."""
        sample = self.b.sample(self.replica, self.done[way] // self.chunks)
        whole = way == "B" and not self.split
        self.b.compute(self.length_ns * sample * (2 if whole else 1))
        self.done[way] += 1

    def exchange(self, *ways: str) -> None:
        """A batch, in Megatron's order; empty where there is nothing to pass."""
        known = (("send", "prev"), ("recv", "prev"), ("send", "next"), ("recv", "next"))
        ends = {
            "prev": self.pipe[self.stage - 1],
            "next": self.pipe[(self.stage + 1) % self.stages],
        }
        parts = [(way, ends[end]) for way, end in known if f"{way}_{end}" in ways]
        if parts:
            nbytes = self.scenario.model_bytes / 64
            self.b.wait(self.b.passing("stages", parts, nbytes, batched=True))

    def chunk(self, number: int, *, forward: bool) -> int:
        at = number % (self.stages * self.chunks) // self.stages
        return at if forward else self.chunks - 1 - at

    def finish(self) -> None:
        nbytes = self.scenario.model_bytes
        self.b.call("data", "_reduce_scatter_base", nbytes)
        self.b.call("data", "_all_gather_base", nbytes)
        finish(self.b)


def zero_bubble(b: Builder) -> None:
    """1F1B whose weights' gradients fill what would be a bubble (ZB-H1)."""
    at = _Stage(b, 1)
    total = b.scenario.micro_batches
    ahead = min(at.stages - at.stage - 1, total)
    to_next, from_prev = () if at.last else ("send_next",), () if at.first else ("recv_prev",)
    to_prev, from_next = () if at.first else ("send_prev",), () if at.last else ("recv_next",)
    for _ in range(ahead):
        at.exchange(*from_prev)
        at.compute("F")
        at.exchange(*to_next)
    if ahead < total:
        at.exchange(*from_prev)
    for number in range(total):
        steady = number < total - ahead
        if steady:
            at.compute("F")
            at.exchange(*to_next, *from_next)
        else:
            at.exchange(*from_next)
        at.compute("B")
        more = number < total - ahead - 1
        at.exchange(*to_prev, *(from_prev if more else ()))
        if at.done["B"] > at.stage:
            at.compute("W")
    while at.done["W"] < total:
        at.compute("W")
    at.finish()


def interleaved(b: Builder) -> None:
    """1F1B over virtual stages: each rank has the first and the last layers of two pieces."""
    at = _Stage(b, CHUNKS)
    total, lag = b.scenario.micro_batches * CHUNKS, at.stages - 1
    ahead = (at.stages - at.stage - 1) * 2 + (CHUNKS - 1) * at.stages
    at.exchange(*(() if at.first else ("recv_prev",)))
    for number in range(ahead):
        at.compute("F")
        head = at.first and at.chunk(number + 1, forward=True) == 0
        ways = [] if head else ["recv_prev"]
        if not (at.last and at.chunk(number, forward=True) == CHUNKS - 1):
            ways.append("send_next")
        if number == ahead - 1 and not at.last:
            ways.append("recv_next")
        at.exchange(*ways)
    for number in range(total):
        forward = number + ahead
        ways = []
        if forward < total:
            at.compute("F")
            if not (at.last and at.chunk(forward, forward=True) == CHUNKS - 1):
                ways.append("send_next")
            # The first stage receives what the last, which is `lag` behind, has just computed.
            fed = at.first and at.chunk(forward - lag, forward=True) == CHUNKS - 1
            if forward < total - 1 and not fed:
                ways.append("recv_prev")
        at.compute("B")
        if not (at.first and at.chunk(number, forward=False) == 0):
            ways.append("send_prev")
        fed = at.last and at.chunk(number - lag, forward=False) == 0
        if number < total - 1 and not fed:
            ways.append("recv_next")
        at.exchange(*ways)
    at.finish()
