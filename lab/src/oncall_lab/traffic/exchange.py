"""Sends and receives in groups: flows that share links, each held back by its own buffer.

All-to-all, neighbour exchange and pipeline stages are such groups (Pulse 5.3): each pair goes on
by itself. A sender may be a buffer ahead of what the receiver's kernel has taken, so a kernel that
starts late leaves a gap of milliseconds at its senders (Pulse 6.1). Links are shared by weight
among the flows that have something to send, at either end; all flows of all groups advance at
once in steps of 16 us.

Simplified: steps are half an epoch; one channel for a pair; a flow's start is on the step.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from oncall_lab.arrays import Bools, Floats, Ints
from oncall_lab.traffic.conditions import Links
from oncall_lab.traffic.slices import Slices

STEP_NS = 16_000.0
LATENCY_NS = 5_000.0
UNEVEN = 0.25  # spread of weights: each pair meets other congestion (Pulse 7.2.5)
_REDRAWN = 32  # steps that weights and jitter last


@dataclass(frozen=True)
class Flows:
    """What is sent from whom to whom, from different nodes; arrays of one length m.

    `operation` numbers what the flow belongs to. entered_ns: the kernel's start at either end.
    """

    operation: Ints
    sender: Ints
    receiver: Ints
    bytes: Floats
    sender_entered_ns: Floats
    receiver_entered_ns: Floats


def play_exchange(
    flows: Flows, links: Links, buffer_bytes: float, slice_bytes: float, rng: np.random.Generator
) -> tuple[Slices, Floats]:
    """What goes onto the wire, and when each flow (m,) has arrived; infinity is never."""
    play = _Exchange(flows, links, buffer_bytes, slice_bytes, rng)
    while play.step():
        pass
    return play.slices(), play.finished_ns + LATENCY_NS


class _Exchange:
    """The state of every flow at `now_ns`, and the log of what was sent in each step."""

    def __init__(
        self,
        flows: Flows,
        links: Links,
        buffer_bytes: float,
        slice_bytes: float,
        rng: np.random.Generator,
    ) -> None:
        self.flows, self.links, self.rng = flows, links, rng
        self.buffer_bytes, self.slice_bytes = buffer_bytes, slice_bytes
        m = len(flows.sender)
        self.sent, self.taken = np.zeros(m), np.zeros(m)
        self.resumes_ns = flows.sender_entered_ns.copy()
        self.finished_ns = np.where(flows.bytes > 0, np.inf, flows.sender_entered_ns)
        begins = flows.sender_entered_ns[np.isfinite(flows.sender_entered_ns)]
        self.now_ns = float(begins.min()) if len(begins) else np.inf
        # Of each step: its begin; flows, what each sent, how long that took, what it had sent.
        self.log: list[tuple[float, Ints, Floats, Floats, Floats]] = []
        down = links.down_ns
        self.down_ns = np.minimum(down[flows.sender], down[flows.receiver])
        self._steps = 0

    def step(self) -> bool:
        """One step, or a leap to when something can be sent again; False: nothing ever will."""
        if not np.isfinite(self.now_ns):
            return False
        flows, now = self.flows, self.now_ns
        self.taken = np.where(now >= flows.receiver_entered_ns, self.sent, self.taken)
        left = flows.bytes - self.sent
        room = np.minimum(left, self.buffer_bytes - (self.sent - self.taken))
        active = (room > 0) & (now >= self.resumes_ns) & (now < self.down_ns)
        if not active.any():
            return self._leap(left, room)
        self._send(active, room)
        self.now_ns += STEP_NS
        return True

    def _leap(self, left: Floats, room: Floats) -> bool:
        held = (left > 0) & (self.now_ns < self.down_ns)
        full = held & (room <= 0) & (self.flows.receiver_entered_ns > self.now_ns)
        waits = held & (room > 0)
        moments = np.concatenate(
            [self.flows.receiver_entered_ns[full], self.resumes_ns[waits], [np.inf]]
        )
        self.now_ns = float(moments.min())
        return bool(np.isfinite(self.now_ns))

    def _send(self, active: Bools, room: Floats) -> None:
        if self._steps % _REDRAWN == 0:
            self._weights = np.exp(UNEVEN * self.rng.standard_normal(len(active)))
            spread = self.links.unsteady * self.rng.standard_normal(len(self.links.egress))
            self._egress = self.links.egress * np.minimum(np.exp(spread), 1.05)
        self._steps += 1
        at = np.flatnonzero(active)
        rate = _shares(
            self._weights[at],
            self.flows.sender[at],
            self.flows.receiver[at],
            self._egress,
            self.links.ingress,
        )
        amount = np.minimum(rate * STEP_NS, room[at])
        before = self.sent[at]
        took = amount / rate
        self.log.append((self.now_ns, at, amount, took, before))
        self.sent[at] = before + amount
        over = self.sent[at] >= self.flows.bytes[at] - 0.5
        done = at[over]
        self.sent[done] = self.flows.bytes[done]
        self.finished_ns[done] = self.now_ns + took[over]
        self._post_next(at[(self.sent[at] // self.slice_bytes) > (before // self.slice_bytes)])

    def _post_next(self, flows: Ints) -> None:
        """The proxy thread has a next slice to post, and may be kept from it: so are all flows of
        its rank."""
        if not len(flows):
            return
        delay = self.links.where(self.flows.sender[flows]).proxy_delays(self.rng, 1)[0]
        for flow, late_ns in zip(flows[delay > STEP_NS], delay[delay > STEP_NS], strict=True):
            same = self.flows.sender == self.flows.sender[flow]
            until = self.now_ns + STEP_NS + late_ns
            self.resumes_ns[same] = np.maximum(self.resumes_ns[same], until)

    def slices(self) -> Slices:
        """The log as slices; a work request lasts from its first byte to its last."""
        steps = self.log or [(0.0, np.empty(0, dtype=np.int64), *(np.empty(0),) * 3)]
        begins, flows, amounts, durations, befores = zip(*steps, strict=True)
        flow, amount = np.concatenate(flows), np.concatenate(amounts)
        before = np.concatenate(befores)
        begin = np.repeat(np.array(begins), [len(at) for at in flows])
        end = begin + np.concatenate(durations)
        request = flow * 2**24 + (before // self.slice_bytes).astype(np.int64)
        _, index = np.unique(request, return_inverse=True)
        posted, completed = np.full(index.size, np.inf), np.full(index.size, -np.inf)
        np.minimum.at(posted, index, begin)
        np.maximum.at(completed, index, end)
        # What a NIC that went down had begun is never over.
        broken = np.isinf(self.finished_ns) & np.isfinite(self.down_ns)
        begun = np.flatnonzero(broken) * 2**24 + (self.sent[broken] // self.slice_bytes).astype(int)
        completed[index[np.isin(request, begun)]] = np.inf
        return Slices(
            operation=self.flows.operation[flow],
            sender=self.flows.sender[flow],
            peer=self.flows.receiver[flow],
            channel=np.zeros(len(flow), dtype=np.int64),
            bytes=amount,
            posted_ns=posted[index],
            begin_ns=begin,
            end_ns=end,
            completed_ns=completed[index] + 2 * LATENCY_NS,
        )


def _shares(
    weights: Floats, sender: Ints, receiver: Ints, egress: Floats, ingress: Floats
) -> Floats:
    """Bytes/ns of each flow: a share by weight at either end, and what others leave unused."""
    n = len(egress)

    def part(link: Floats, end: Ints) -> Floats:
        total = np.bincount(end, weights, minlength=n)
        share: Floats = np.maximum(link, 0.0)[end] * weights / total[end]
        return share

    rate = np.minimum(part(egress, sender), part(ingress, receiver))
    for _ in range(2):
        spare_out = egress - np.bincount(sender, rate, minlength=n)
        spare_in = ingress - np.bincount(receiver, rate, minlength=n)
        rate = rate + np.minimum(part(spare_out, sender), part(spare_in, receiver))
    return rate
