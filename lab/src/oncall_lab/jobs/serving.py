"""A tensor-parallel server: replicas that have nothing to do with one another, and idle times."""

from __future__ import annotations

from oncall_lab.jobs.program import Builder

_PREFILL = 0.15  # share of engine steps that read a prompt
_IDLE = 0.1  # share of engine steps before which no request was there


def serving(b: Builder) -> None:
    """One engine step: a batch of requests, layer by layer with small all-reduces."""
    s = b.scenario
    replica = b.rank // s.group
    rng = b.shared("requests", replica)
    prefill, idle, wait = rng.random() < _PREFILL, rng.random() < _IDLE, rng.exponential()
    batch = float(rng.lognormal(0, 0.3 + s.uneven)) * (6 if prefill else 1)
    if idle:
        b.host(s.gap_ns * wait)
    for _ in range(2 * s.layers):
        b.compute(s.forward_ns / 8 / s.layers * batch)
        b.call("tensor", "all_reduce", 2**18 * batch)
    b.call("tensor", "_all_gather_base", 2**19)
    b.sync()
    if b.rank % s.group == 0:
        b.host(s.forward_ns / 40)  # the scheduler
