"""All monitors of one node: what is being sent and how long pings take in, captures out.

Pings go from node to node, so a round trip cannot be told flow by flow here: it is held against
the least ever measured to its target, while anything is being sent. Standstills are told of single
flows. Pure: time is told.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from oncall.collect.rate_limit import RateLimit
from oncall.collect.triggers.in_flight import Flow, InFlight
from oncall.collect.triggers.monitor import Begun, Capture, Monitor, Policy
from oncall.collect.triggers.threshold import measured_threshold_ns

CAPTURES_PER_SECOND, CAPTURES_AT_ONCE = 1 / 60, 3.0  # of a node: whatever the network does
TARGETS = 4_096
FLOWS = 65_536
_NEWER = 1 / 8  # weight of a step's time in what the next should take, as TCP's of a round trip
_PINGS_TO_KNOW = 20  # before the least round trip to a target is believed


@dataclass
class _Target:
    monitor: Monitor
    step: int = -1
    least_rtt_ns: float = float("inf")
    pings: int = 0


@dataclass
class _Sending:
    monitor: Monitor
    now: InFlight | None = None
    seen_ns: int = 0
    usual_ns: float = 0.0  # what its steps take; 0: none has ended yet


class NodeTriggers:
    """Fed by one thread, in order of time (CLOCK_MONOTONIC). `limited`: captures that were one
    too many for the node."""

    def __init__(self, policy: Policy | None = None) -> None:
        self.limited = 0
        self._policy = policy or Policy()
        self._limit = RateLimit(CAPTURES_PER_SECOND, CAPTURES_AT_ONCE)
        self._targets: dict[Hashable, _Target] = {}
        self._flows: dict[Flow, _Sending] = {}
        self._step, self._newest = 0, frozenset[tuple[Flow, int]]()

    def pinged(self, target: Hashable, at_ns: int, rtt_ns: int) -> Capture | None:
        """A ping came back."""
        if target not in self._targets:
            if len(self._targets) >= TARGETS:
                return None
            self._targets[target] = _Target(Monitor(self._policy))
        told = self._targets[target]
        told.least_rtt_ns = min(told.least_rtt_ns, rtt_ns)
        told.pings += 1
        if not self._newest or told.pings < _PINGS_TO_KNOW:
            return None
        if told.step != self._step:
            told.step = self._step
            usual_ns = max(self._expected_ns(flow) for flow, _ in self._newest)
            limit_ns = measured_threshold_ns(told.least_rtt_ns)
            told.monitor.begin(Begun(self._step, at_ns, usual_ns, limit_ns))
        return self._allowed(told.monitor.measured(at_ns, rtt_ns))

    def look(self, sending: Sequence[InFlight], now_ns: int) -> list[Capture]:
        """What is being sent now; what was and is not any more is over."""
        newest = frozenset((each.flow, each.operation) for each in sending)
        if newest - self._newest:
            self._step += 1
        self._newest = newest
        for flow in self._flows.keys() - {each.flow for each in sending}:
            self._end(self._flows[flow])
        watched = [self._watch(each, now_ns) for each in sending]
        found = [capture for capture in watched if capture is not None]
        # Flows that stand still together are one look.
        return found if found and self._allowed(found[0]) else []

    def _watch(self, each: InFlight, now_ns: int) -> Capture | None:
        known = self._flows.get(each.flow)
        if known is None:
            if len(self._flows) >= FLOWS:
                self._flows.clear()
            known = self._flows[each.flow] = _Sending(Monitor(self._policy))
        if known.now is None or known.now.operation != each.operation:
            self._end(known)
            known.monitor.begin(
                Begun(each.operation, each.began_ns, self._expected_ns(each.flow), float("inf"))
            )
        known.now, known.seen_ns = each, now_ns
        known.monitor.moved(now_ns if each.posted_ns is None else each.posted_ns)
        return known.monitor.look(now_ns)

    def _end(self, known: _Sending) -> None:
        if known.now is not None:
            took_ns = max(1.0, known.seen_ns - known.now.began_ns)
            usual_ns = known.usual_ns or took_ns
            known.usual_ns = usual_ns + _NEWER * (took_ns - usual_ns)
            known.monitor.end(())
            known.now = None

    def _expected_ns(self, flow: Flow) -> float:
        known = self._flows.get(flow)
        return known.usual_ns if known is not None and known.usual_ns else self._policy.stall_ns

    def _allowed(self, capture: Capture | None) -> Capture | None:
        if capture is None:
            return None
        if not self._limit.allows(int(capture.at_ns)):
            self.limited += 1
            return None
        return capture
