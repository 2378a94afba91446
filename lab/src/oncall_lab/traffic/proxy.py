"""What proxy threads see of their own transfers, and what the profiler plugin counts of it.

A thread that loses its core posts late, which rings and exchanges play; it also looks late at
completions and flushes. A flush never leaves the host and takes microseconds, unless nobody looks:
so it tells whose thread is slow, where gaps tell it of a whole group only (Pulse 8.1).

Simplified: each look is late by itself; a slice is a step; flushes hold up nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from oncall_lab.arrays import Bools, Columns, Floats, Ints, changes
from oncall_lab.traffic.conditions import Links
from oncall_lab.traffic.slices import Slices

FLUSH_NS = 4e3  # a read of the GPU's memory by its own NIC


@dataclass(frozen=True)
class ProxySteps(Columns):
    """One channel's sends to, or receives from, one peer in an operation that was completed: arrays
    of one length; times are ns since the job began.

    flush_ns is recorded by receivers, wire_ns, from posting to completion, by senders; else zero.
    """

    operation: Ints
    rank: Ints
    peer: Ints
    channel: Ints
    sends: Bools
    steps: Ints
    bytes: Floats
    flush_ns: Floats
    wire_ns: Floats
    started_ns: Floats
    ended_ns: Floats


def noticed(slices: Slices, links: Links, rng: np.random.Generator) -> Slices:
    """The same slices, completed when their senders' threads look. Parts of one request are
    completed together."""
    order = _in_order(slices)
    ordered = slices.where(order)
    begins = _begins(ordered, ordered.posted_ns)
    late = links.where(ordered.sender[begins]).proxy_delays(rng, 1)[0]
    completed = slices.completed_ns.copy()
    completed[order] += late[np.cumsum(begins) - 1]
    return replace(slices, completed_ns=completed)


def proxy_steps(slices: Slices, links: Links, rng: np.random.Generator) -> ProxySteps:
    """What senders and receivers of these slices tell of each transfer that was completed."""
    ordered = slices.where(_in_order(slices))
    steps = ordered.where(_begins(ordered, ordered.posted_ns))
    is_first = _begins(steps)
    of = np.cumsum(is_first) - 1
    first = steps.where(is_first)
    volume = np.bincount(np.cumsum(_begins(ordered)) - 1, ordered.bytes)
    ended = np.full(len(first), -np.inf)
    np.maximum.at(ended, of, steps.completed_ns)
    flush = FLUSH_NS + links.where(steps.peer).proxy_delays(rng, 1)[0]
    whole = np.isfinite(ended)
    wire = np.bincount(of, np.where(whole[of], steps.completed_ns - steps.posted_ns, 0.0))
    both = {
        "operation": first.operation,
        "channel": first.channel,
        "steps": np.bincount(of),
        "bytes": volume,
        "started_ns": first.posted_ns,
        "ended_ns": ended,
    }
    none = np.zeros(len(first))
    sides = (
        {"rank": first.sender, "peer": first.peer, "sends": none == 0,
         "wire_ns": wire, "flush_ns": none},
        {"rank": first.peer, "peer": first.sender, "sends": none > 0,
         "wire_ns": none, "flush_ns": np.bincount(of, flush)},
    )  # fmt: skip
    return ProxySteps.joined([ProxySteps(**both, **side).where(whole) for side in sides])


def _in_order(slices: Slices) -> Ints:
    """(n,): by transfer, then as they were posted."""
    s = slices
    return np.lexsort((s.posted_ns, s.channel, s.peer, s.sender, s.operation))


def _begins(ordered: Slices, *more: Floats) -> Bools:
    """Where, in slices in order, another transfer begins, or another of `more`."""
    s = ordered
    return changes(s.operation, s.sender, s.peer, s.channel, *more)
