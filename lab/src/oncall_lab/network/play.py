"""The run: senders offer, ports serve and pause, messages end and let others begin."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count

import numpy as np

from oncall_lab.arrays import Bools, Floats
from oncall_lab.network.collective import Progress
from oncall_lab.network.congestion import Rates
from oncall_lab.network.measure import Counts, Meter
from oncall_lab.network.plan import Plan
from oncall_lab.network.queues import Legs, Queues, legs_of
from oncall_lab.network.scenario import NetworkScenario

QUANTA = 4  # in which a port at line rate fills the room between XON and XOFF
WINDOW_NS = 50_000  # of congestion control
STILL_NS = 8e6  # nothing has moved for so long: nothing will


@dataclass(frozen=True)
class Played:
    """What happened. Times in nanoseconds from the begin; NaN: never.

    `ended_ns` (flows of others,); `pauses` (time, port, paused) in order; `marks` (windows, flows):
    what met a queue deep enough in each window of congestion control; `counts` by leg of `legs`,
    whose flows are the collective's first; `stolen` (legs,) bytes.
    """

    scenario: NetworkScenario
    plan: Plan
    legs: Legs
    progress: Progress
    flow_started_ns: Floats
    flow_ended_ns: Floats
    pauses: tuple[tuple[float, int, bool], ...]
    marks: Bools
    counts: Counts
    stolen: Floats
    until_ns: float
    quantum_ns: float

    @property
    def members(self) -> int:
        """How many flows are the collective's."""
        return len(self.plan.routes)

    @property
    def epoch_ns(self) -> float:
        """Of what is counted: the scenario's, in whole quanta."""
        return max(1, round(self.scenario.epoch_ns / self.quantum_ns)) * self.quantum_ns


def play(scenario: NetworkScenario, plan: Plan, opened: Sequence[int] = ()) -> Played:
    """Play until the collective is over, or nothing moves any more.

    `opened` ports are so fast that they never have a queue: what would be, were they not to blame?
    """
    return _Player(scenario, plan, opened).play()


class _Player:
    def __init__(self, scenario: NetworkScenario, plan: Plan, opened: Sequence[int]) -> None:
        self.scenario, self.plan = scenario, plan
        rng = np.random.default_rng([scenario.seed, 0x91A4])
        messages, others = plan.messages, plan.flows
        self.members = len(plan.routes)
        self.legs = legs_of([*plan.routes, *(flow.path for flow in others)])
        ports = len(plan.tree.device_of)
        self.quantum_bytes = (scenario.xoff_bytes - scenario.xon_bytes) / QUANTA
        self.quantum_ns = self.quantum_bytes / scenario.network_bytes_per_s * 1e9
        service = np.full(ports, self.quantum_bytes)
        service[list(opened)] *= ports
        self.queues = Queues(self.legs, service, scenario.xoff_bytes, scenario.xon_bytes)
        number = self.members + len(others)
        self.meter = Meter(self.queues, np.arange(number) < self.members)
        controlled = [scenario.congestion_control] * self.members
        controlled += [flow.controlled for flow in others]
        self.rates = Rates(np.array(controlled))
        self.most = np.ones(number)  # of line rate
        self.most[self.members :] = [flow.share for flow in others]
        self.progress = Progress(
            messages,
            rng.uniform(0, scenario.skew_ns, scenario.world_size),
            rng.uniform(0, scenario.overhead_ns, len(messages)),
        )
        self.pace = 1 - rng.uniform(0, scenario.jitter, len(messages))
        self.unsent = np.zeros(number)
        self.coming = np.full(number, np.inf)  # what a receiver still waits for; inf: for nothing
        self.message = np.full(self.members, -1)
        self.to_come = sorted(range(len(others)), key=lambda n: others[n].at_ns, reverse=True)
        self.flow_started_ns = np.full(len(others), np.nan)
        self.flow_ended_ns = np.full(len(others), np.nan)
        self.pauses: list[tuple[float, int, bool]] = []
        self.marks: list[Bools] = []
        self._none = np.zeros(ports, np.bool_)

    def play(self) -> Played:
        window_quanta = max(1, round(WINDOW_NS / self.quantum_ns))
        epoch_quanta = max(1, round(self.scenario.epoch_ns / self.quantum_ns))
        moved_ns = now_ns = 0.0
        paused = self.queues.paused
        for quantum in count():
            now_ns = quantum * self.quantum_ns
            self._begin(now_ns)
            offered = np.minimum(self.most * self.rates.share * self.quantum_bytes, self.unsent)
            sent, out = self.queues.advance(offered, self._forced(now_ns))
            self.unsent -= sent
            self.coming -= out
            self.meter.quantum(offered - sent)
            self._end(now_ns + self.quantum_ns)
            if not np.array_equal(paused, self.queues.paused):
                self._tell(paused, now_ns + self.quantum_ns)
                paused = self.queues.paused
            if quantum % window_quanta == 0:
                self._mark()
            if quantum % epoch_quanta == epoch_quanta - 1:
                self.meter.close()
            if out[: self.members].sum() > 1.0:
                moved_ns = now_ns
            elif now_ns - moved_ns > STILL_NS + self._storms_left_ns(moved_ns):
                break
            if self.progress.over:
                break
        return Played(
            self.scenario,
            self.plan,
            self.legs,
            self.progress,
            self.flow_started_ns,
            self.flow_ended_ns,
            tuple(self.pauses),
            np.array(self.marks).reshape(-1, self.members + len(self.plan.flows)),
            self.meter.counts(),
            self.meter.stolen,
            now_ns + self.quantum_ns,
            self.quantum_ns,
        )

    def _begin(self, now_ns: float) -> None:
        for message in self.progress.due(now_ns):
            flow = int(self.plan.messages.flow[message])
            self.message[flow] = message
            self.unsent[flow] = self.coming[flow] = float(self.plan.messages.bytes[message])
            self.most[flow] = self.pace[message]
        while self.to_come and self.plan.flows[self.to_come[-1]].at_ns <= now_ns:
            number = self.to_come.pop()
            self.flow_started_ns[number] = now_ns
            size = self.plan.flows[number].bytes
            self.unsent[self.members + number] = self.coming[self.members + number] = size

    def _end(self, now_ns: float) -> None:
        if self.coming.min() >= 1:
            return
        for flow in np.flatnonzero(self.coming < 1).tolist():
            self.coming[flow] = np.inf
            if flow < self.members:
                self.progress.end(int(self.message[flow]), now_ns)
            else:
                self.flow_ended_ns[flow - self.members] = now_ns

    def _tell(self, before: Bools, at_ns: float) -> None:
        now = self.queues.paused
        for port in np.flatnonzero(before != now).tolist():
            self.pauses.append((at_ns, port, bool(now[port])))

    def _mark(self) -> None:
        deep = self.queues.depth() > self.scenario.marking_bytes
        flows = np.zeros(len(self.unsent), np.bool_)
        flows[self.legs.flow[deep[self.legs.port] & (self.queues.served > 1)]] = True
        self.marks.append(flows)
        self.rates.adapt(flows)

    def _forced(self, now_ns: float) -> Bools:
        if not self.plan.storms:
            return self._none
        forced = self._none.copy()
        forced[[s.port for s in self.plan.storms if s.at_ns <= now_ns < s.until_ns]] = True
        return forced

    def _storms_left_ns(self, now_ns: float) -> float:
        return max([0.0, *(storm.until_ns - now_ns for storm in self.plan.storms)])
