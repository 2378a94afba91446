"""All monitors of one node: flows and round trips in; captures and budgets for other nodes out.

Pings go from node to node, so round trips are not known per flow: each is compared with the minimum
ever measured to its target, while any rank of the node sends. Stalls are measured per flow. Pure:
the caller passes the time.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass

from oncall.core.units import NS_PER_S
from oncall.node.common.rate_limit import RateLimit
from oncall.node.triggers.in_flight import Awaited, Flow, InFlight
from oncall.node.triggers.monitor import Begun, Capture, Message, Monitor, Policy

CAPTURES_PER_SECOND, CAPTURES_AT_ONCE = 1 / 60, 3.0  # of a node: whatever the network does
HANDED_PER_SECOND, HANDED_AT_ONCE = 1 / 60, 6.0  # beyond them: whatever others hand over
TARGETS = 4_096
FLOWS = 65_536
_NEWER = 1 / 8  # weight of a step's time in what the next should take, as TCP's of a round trip
_PINGS_TO_KNOW = 20  # before the least round trip to a target is believed
_TOLERATED = 1.2  # times the least: where precision is best for all families (Vedrfolnir figure 12)
_QUEUED_NS = 30_000 * 8 / 25  # a burst of seven packets in a port of 25 Gbit/s, with nothing wrong


@dataclass
class _Target:
    monitor: Monitor
    step: int = -1
    least_rtt_ns: float = float("inf")
    pings: int = 0


@dataclass
class _Sending:
    """A flow from here. `handed`: detections that others left for the step it is in."""

    monitor: Monitor
    now: InFlight | None = None
    seen_ns: int = 0
    baseline_ns: float = 0.0  # what its steps take; 0: none has ended yet
    handed: int = 0


class NodeTriggers:
    """Fed by one thread, in order of time (CLOCK_MONOTONIC).

    `stall_ns`: a flow without an acknowledgement for this long has stalled, however short its step.
    `limited`: captures that exceeded the node's limit.
    """

    def __init__(self, stall_ns: float = NS_PER_S / 2, policy: Policy | None = None) -> None:
        self.limited = 0
        self._stall_ns = stall_ns
        self._policy = policy or Policy()
        self._limit = RateLimit(CAPTURES_PER_SECOND, CAPTURES_AT_ONCE)
        self._handed_limit = RateLimit(HANDED_PER_SECOND, HANDED_AT_ONCE)
        self._targets: dict[Hashable, _Target] = {}
        self._flows: dict[Flow, _Sending] = {}
        self._step, self._newest = 0, frozenset[tuple[Flow, int]]()

    # ----------------------------------------------------------------- captures

    def pinged(self, target: Hashable, at_ns: int, rtt_ns: int) -> Capture | None:
        """A ping came back."""
        if target not in self._targets:
            if len(self._targets) >= TARGETS:
                return None
            self._targets[target] = _Target(Monitor(self._policy))
        target_pings = self._targets[target]
        target_pings.least_rtt_ns = min(target_pings.least_rtt_ns, rtt_ns)
        target_pings.pings += 1
        if not self._newest or target_pings.pings < _PINGS_TO_KNOW:
            return None
        if target_pings.step != self._step:
            target_pings.step = self._step
            baseline_ns = max(self._expected_ns(flow) for flow, _ in self._newest)
            limit_ns = _TOLERATED * target_pings.least_rtt_ns + _QUEUED_NS
            target_pings.monitor.begin(
                Begun(self._step, at_ns, baseline_ns, limit_ns, float("inf"))
            )
        return self._allowed(target_pings.monitor.measured(at_ns, rtt_ns))

    def look(
        self, sending: Sequence[InFlight], now_ns: int, awaited: Sequence[Awaited] = ()
    ) -> list[Capture]:
        """Process the flows that are sent and waited for now; flows that are neither any more are
        over."""
        newest = frozenset((each.flow, each.operation) for each in sending)
        if newest - self._newest:
            self._step += 1
        self._newest = newest
        # What is sent before all has come is not over: what is left may go to who is waited for.
        waiting = {each.flow.comm for each in awaited}
        for flow in self._flows.keys() - {each.flow for each in sending}:
            if flow.comm not in waiting:
                self._end(self._flows[flow])
        watched = [self._watch(each, now_ns) for each in sending]
        found = [capture for capture in watched if capture is not None]
        # Flows that stall together are one look.
        return found if found and self._allowed(found[0]) else []

    def _watch(self, each: InFlight, now_ns: int) -> Capture | None:
        known = self._flows.get(each.flow)
        if known is None:
            if len(self._flows) >= FLOWS:
                self._flows.clear()
            known = self._flows[each.flow] = _Sending(Monitor(self._policy))
        if known.now is None or known.now.operation != each.operation:
            self._end(known)
            baseline_ns = self._expected_ns(each.flow)
            stall_ns = max(self._stall_ns, baseline_ns)
            begun = Begun(each.operation, each.began_ns, baseline_ns, float("inf"), stall_ns)
            known.monitor.begin(begun)
        known.now, known.seen_ns = each, now_ns
        known.monitor.moved(now_ns if each.posted_ns is None else each.posted_ns)
        return known.monitor.look(now_ns)

    def _end(self, known: _Sending) -> None:
        if known.now is not None:
            took_ns = max(1.0, known.seen_ns - known.now.began_ns)
            baseline_ns = known.baseline_ns or took_ns
            known.baseline_ns = baseline_ns + _NEWER * (took_ns - baseline_ns)
            known.monitor.end(())
            known.now, known.handed = None, 0

    def _expected_ns(self, flow: Flow) -> float:
        known = self._flows.get(flow)
        return known.baseline_ns if known is not None and known.baseline_ns else self._stall_ns

    def _allowed(self, capture: Capture | None) -> Capture | None:
        if capture is None:
            return None
        at_ns = int(capture.at_ns)
        if not self._limit.allows(at_ns) and not self._paid_by_others(at_ns):
            self.limited += 1
            return None
        return capture

    def _paid_by_others(self, at_ns: int) -> bool:
        known = next((each for each in self._flows.values() if each.handed), None)
        if known is None or not self._handed_limit.allows(at_ns):
            return False
        known.handed -= 1
        return True

    # ---------------------------------------------------------------- handing over

    def handed(self, flow: Flow, detections: int) -> bool:
        """Others wait for a flow and leave it so many; false if nothing of it is being sent from
        here. This captures nothing: it lets what is captured here be captured more often."""
        known = self._flows.get(flow)
        if known is None or known.now is None:
            return False
        known.monitor.handed(known.now.operation, detections)
        known.handed = min(known.handed + detections, self._policy.most)
        return True

    def waited_for(self, awaited: Iterable[Awaited], now_ns: int) -> list[Awaited]:
        """Of each communicator that waits here, and has detections left, the flow that it has
        waited for longest.

        It waits when nothing of it is on this node's wires or held up by a receiver, something
        does not come, and that takes longer than the baseline of its steps."""
        longest: dict[int, Awaited] = {}
        for each in awaited:
            other = longest.setdefault(each.flow.comm, each)
            if each.began_ns < other.began_ns:
                longest[each.flow.comm] = each
        sending = {flow for flow, _ in self._newest}
        return [each for comm, each in longest.items() if self._waits(comm, sending, each, now_ns)]

    def leave_to(self, awaited: Awaited) -> int:
        """The budget that waiting flows have left, for the flow they wait for; nothing of it
        stays."""
        left = 0
        for known in self._of(awaited.flow.comm):
            if known.now is not None:
                message = Message(awaited.flow.src, known.now.operation)
                handover = known.monitor.wait(message)
                left += handover.detections if handover is not None else 0
                known.handed = 0
        return min(left, self._policy.most)

    def _waits(self, comm: int, sending: set[Flow], longest: Awaited, now_ns: int) -> bool:
        mine = self._of(comm)
        baseline_ns = max((known.baseline_ns for known in mine), default=0.0) or self._stall_ns
        return (
            now_ns - longest.began_ns > baseline_ns
            and any(known.monitor.left for known in mine)
            and not any(
                known.now.flow in sending and not known.now.starved
                for known in mine
                if known.now is not None
            )
        )

    def _of(self, comm: int) -> list[_Sending]:
        return [known for flow, known in self._flows.items() if flow.comm == comm]
