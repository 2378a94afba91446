"""What triggers cost and what they find: captures and bytes an anomaly, beside fixed thresholds.

    python benchmarks/triggers.py [--first 1] [--cases 5] [--kinds INCAST,...] [--how adaptive,...]

Cases are those of accuracy_network.py. A capture is what switches report when a flow asks: the
ports on its way, and behind paused ones those that pause them, of this epoch and the one before.
The diagnosis then has these reports, of a collective that is not over one more, and no others;
single pauses are reported in any case. Round trips are reported every 50 us while a flow moves,
from the queues and pauses on its way. Compared (Vedrfolnir IV-A):

- adaptive: `oncall.node.triggers`: a threshold for each step, a budget, handovers, standstills
  by how long pauses may last on that way, steps that should be over;
- kept: the same, and nothing is handed over;
- threshold only: every round trip beyond that threshold;
- MinR, MaxR: every one beyond 120 % of the least, or largest, base round trip of all flows, as
  Hawkeye's fixed threshold is set there;
- polling: every switch reports always.
"""

from __future__ import annotations

import argparse
import dataclasses
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from accuracy_network import Case, draw, judge
from numpy.typing import NDArray
from trigger_limits import Way, base_rtt_ns, late_ns, longest_pause_ns, threshold_ns

from oncall.node.triggers.channel import NOTIFICATION_BYTES
from oncall.node.triggers.monitor import Begun, Handover, Message, Monitor
from oncall_lab.network.asked import Ask, reported
from oncall_lab.network.collective import NONE
from oncall_lab.network.plan import plan
from oncall_lab.network.play import Played, play

SAMPLE_NS = 50_000
KINDS = ("CONTENTION", "INCAST", "PFC_STORM", "PFC_BACKPRESSURE", "PFC_LOOP_DEADLOCK", "healthy")
PORT_BYTES, FLOW_BYTES = 32, 48  # of a report: counters of a port; 5-tuple and counters of a flow
FIXED_TOLERATED = 1.2  # times the base: Vedrfolnir IV-A, of Hawkeye


@dataclass(frozen=True)
class Sampled:
    """What the sender of each flow could know, (samples, flows): its round trip, whether it sent
    anything since the sample before; `at_ns` (samples,)."""

    at_ns: NDArray[np.float64]
    rtt_ns: NDArray[np.float64]
    moved: NDArray[np.bool_]


@dataclass(frozen=True)
class Triggered:
    """Who asked and when, and how often a monitor handed its budget to another."""

    asks: list[Ask]
    handovers: int = 0


@dataclass(frozen=True)
class Result:
    """One case with one kind of trigger. `bytes`: of reports and of what is handed over."""

    how: str
    captures: int
    handovers: int
    bytes: int
    case: Case
    cpu_us_a_sample: float


def sampled(played: Played) -> Sampled:
    """Round trips of the collective's flows, from the same run in finer epochs."""
    fine = dataclasses.replace(played.scenario, epoch_ns=SAMPLE_NS)
    run = play(fine, plan(fine))
    arrived, met = run.counts.arrived, run.counts.met
    epoch_ns = max(1, round(SAMPLE_NS / run.quantum_ns)) * run.quantum_ns
    at_ns = np.minimum((np.arange(len(arrived)) + 1) * epoch_ns, run.until_ns)
    queued_ns = met / np.maximum(arrived, 1) / fine.network_bytes_per_s * 1e9
    rtt_ns = np.zeros((len(arrived), run.members))
    moved = np.zeros_like(rtt_ns, np.bool_)
    opens_ns = opening(run, at_ns)
    for flow in range(run.members):
        first, last = int(run.legs.first[flow]), int(run.legs.last[flow])
        moved[:, flow] = arrived[:, first + 1] > 1
        rtt_ns[:, flow] = base_rtt_ns(way_of(run, flow))
        for leg in range(first, last + 1):
            rtt_ns[:, flow] += queued_ns[:, leg] + opens_ns[:, run.legs.port[leg]]
    return Sampled(at_ns, rtt_ns, moved)


def opening(played: Played, at_ns: NDArray[np.float64]) -> NDArray[np.float64]:
    """(samples, ports): for how long each port stays paused; 0 where it is open."""
    left_ns = np.zeros((len(at_ns), len(played.plan.tree.device_of)))
    since: dict[int, float] = {}
    ends = [*played.pauses, *((played.until_ns, port, False) for port in range(left_ns.shape[1]))]
    for end_ns, port, paused in ends:
        if paused:
            since[port] = end_ns
        elif port in since:
            inside = (at_ns >= since.pop(port)) & (at_ns < end_ns)
            left_ns[inside, port] = end_ns - at_ns[inside]
    return left_ns


def way_of(played: Played, flow: int) -> Way:
    return Way(len(played.plan.routes[flow]), played.scenario.network_bytes_per_s)


# ------------------------------------------------------------------ triggers


def in_step(played: Played, seen: Sampled) -> Iterator[tuple[int, int, float, float]]:
    """(sample, message, when, round trip) while its flow moves in a step, in order of time."""
    progress, flows = played.progress, played.plan.messages.flow
    ended = np.where(np.isnan(progress.ended_ns), np.inf, progress.ended_ns)
    for sample, at_ns in enumerate(seen.at_ns.tolist()):
        for message in np.flatnonzero((progress.started_ns < at_ns) & (at_ns < ended)).tolist():
            flow = flows[message]
            if seen.moved[sample, flow]:
                yield sample, message, at_ns, float(seen.rtt_ns[sample, flow])


def each_beyond(limit_ns: Callable[[int], float], played: Played, seen: Sampled) -> Triggered:
    """Every round trip beyond the limit of its flow."""
    flows = played.plan.messages.flow
    asks = [
        (int(flows[message]), at_ns)
        for _, message, at_ns, rtt_ns in in_step(played, seen)
        if rtt_ns > limit_ns(int(flows[message]))
    ]
    return Triggered(asks)


def fixed(choose: Callable[[Sequence[float]], float], played: Played, seen: Sampled) -> Triggered:
    """One threshold for all flows, as Hawkeye has it."""
    bases = [base_rtt_ns(way_of(played, flow)) for flow in range(played.members)]
    return each_beyond(lambda _: FIXED_TOLERATED * choose(bases), played, seen)


def stepwise(played: Played, seen: Sampled) -> Triggered:
    """The threshold of each step, and no budget."""
    return each_beyond(lambda flow: threshold_ns(way_of(played, flow)), played, seen)


def adaptive(hands_over: bool, played: Played, seen: Sampled) -> Triggered:
    """Monitors of all members, which receive what each could know when it could know it."""
    group = Group(played, hands_over)
    group.run(seen)
    return Triggered(group.asks, group.handovers)


class Group:
    """The monitors of a collective's members. What they hand over comes at once."""

    def __init__(self, played: Played, hands_over: bool) -> None:
        s = played.scenario
        self.played, self.messages = played, played.plan.messages
        self.hands_over, self.handovers = hands_over, 0
        members = range(s.world_size)
        self.monitors = [Monitor() for _ in members]
        self.came: set[Message] = set()
        self.asks: list[Ask] = []
        self.flow_now = [-1] * s.world_size

    def run(self, seen: Sampled) -> None:
        progress = self.played.progress
        ends = [(at, 0, n) for n, at in enumerate(progress.ended_ns.tolist()) if at == at]
        begins = [(at, 1, n) for n, at in enumerate(progress.started_ns.tolist()) if at == at]
        looks = [(at, 2, n) for n, at in enumerate(seen.at_ns.tolist())]
        for at_ns, what, number in sorted([*ends, *begins, *looks]):
            if what == 2:
                self.look(at_ns, seen.rtt_ns[number], seen.moved[number])
            else:
                (self.begin if what else self.end)(number, at_ns)

    def begin(self, message: int, at_ns: float) -> None:
        flow, member = int(self.messages.flow[message]), int(self.messages.src[message])
        way = way_of(self.played, flow)
        size = float(self.messages.bytes[message])
        expected_ns = size / way.bytes_per_s * 1e9
        step = int(self.messages.step[message])
        self.flow_now[member] = flow
        limits_ns = threshold_ns(way), longest_pause_ns(way), late_ns(size, way)
        self.monitors[member].begin(Begun(step, at_ns, expected_ns, *limits_ns))

    def end(self, message: int, at_ns: float) -> None:  # noqa: ARG002
        src, dst = int(self.messages.src[message]), int(self.messages.dst[message])
        step = int(self.messages.step[message])
        came = Message(src, step)
        self.came.add(came)
        self.monitors[dst].came(came)
        self.flow_now[src] = -1
        awaited = self.awaited_after(src, step) if self.hands_over else ()
        handover: Handover | None = self.monitors[src].end(awaited)
        while handover is not None:
            self.handovers += 1
            to = handover.message
            handover = self.monitors[to.src].handed(to.step, handover.detections)

    def awaited_after(self, member: int, step: int) -> tuple[Message, ...]:
        """What the step after `step` of a member waits for, in order of sender (Table I)."""
        sent = self.messages
        following = (sent.src == member) & (sent.step == step + 1)
        needs = sent.needs[following, 0]
        needed = {
            Message(int(sent.src[need]), int(sent.step[need])) for need in needs[needs != NONE]
        }
        return tuple(sorted(needed - self.came, key=lambda message: (message.src, message.step)))

    def look(self, at_ns: float, rtt_ns: Any, moved: Any) -> None:
        for flow, monitor in zip(self.flow_now, self.monitors, strict=True):
            if flow < 0:
                continue
            if moved[flow]:
                monitor.moved(at_ns)
                capture = monitor.measured(at_ns, float(rtt_ns[flow]))
            else:
                capture = monitor.look(at_ns)
            if capture is not None:
                self.asks.append((flow, at_ns))


HOW: dict[str, Callable[[Played, Sampled], Triggered]] = {
    "adaptive": partial(adaptive, True),
    "kept": partial(adaptive, False),
    "threshold only": stepwise,
    "MinR": partial(fixed, min),
    "MaxR": partial(fixed, max),
}
POLLING = "polling"

# ------------------------------------------------------------------- measuring


def reports_bytes(played: Played, asks: Sequence[Ask]) -> int:
    """What all reports weigh. Those that a flow causes within an epoch are alike."""
    epoch_ns = max(1, round(played.scenario.epoch_ns / played.quantum_ns)) * played.quantum_ns
    alike = defaultdict(list)
    for flow, at_ns in asks:
        alike[flow, int(at_ns // epoch_ns)].append((flow, at_ns))
    return sum(len(same) * bytes_of(played, reported(played, same[:1])) for same in alike.values())


def going_on(played: Played) -> list[Ask]:
    """Whoever diagnoses a collective that is not over asks the flows that it waits for."""
    progress = played.progress
    is_open = ~np.isnan(progress.started_ns) & np.isnan(progress.ended_ns)
    return [(flow, played.until_ns) for flow in played.plan.messages.flow[is_open].tolist()]


def bytes_of(played: Played, recorded: NDArray[np.bool_]) -> int:
    """What these reports weigh."""
    flows = (played.counts.arrived > 0) & recorded[:, played.legs.port]
    return int(recorded.sum()) * PORT_BYTES + int(flows.sum()) * FLOW_BYTES


def results(kind: str, seed: int, hows: Sequence[str]) -> Iterator[Result]:
    """One case with each of these triggers."""
    played, truth = draw(kind, seed)
    seen = sampled(played)
    for how in hows:
        if how == POLLING:
            continue
        began = time.process_time()
        triggered = HOW[how](played, seen)
        took_s = time.process_time() - began
        asks, handovers = [*triggered.asks, *going_on(played)], triggered.handovers
        recorded = reported(played, asks)
        weighs = reports_bytes(played, asks) + handovers * NOTIFICATION_BYTES
        case = judge(kind, seed, played, truth, reported=recorded)
        sample_us = took_s * 1e6 / max(1, seen.rtt_ns.size)
        yield Result(how, len(asks), handovers, weighs, case, sample_us)
    if POLLING not in hows:
        return
    tree = played.plan.tree
    recorded = np.zeros((len(played.counts), len(tree.device_of)), np.bool_)
    recorded[:, [not tree.is_host(device) for device in tree.device_of.tolist()]] = True
    case = judge(kind, seed, played, truth, reported=recorded)
    yield Result(POLLING, len(recorded), 0, bytes_of(played, recorded), case, 0.0)


def table(found: Sequence[Result]) -> Iterator[str]:
    """Rows by kind and trigger; saved: bytes beside each fixed threshold."""
    by = defaultdict(list)
    for each in found:
        by[each.case.kind, each.how].append(each)
    yield (
        "| kind | trigger | captures a case | handed over | KB a case | adaptive saves | paper |"
        " strictly |"
    )
    yield "|---|---|---|---|---|---|---|---|"
    for (kind, how), mine in by.items():
        captures, handovers, kb = (
            sum(getattr(each, name) for each in mine) / len(mine)
            for name in ("captures", "handovers", "bytes")
        )
        ours = sum(each.bytes for each in by[kind, "adaptive"]) / len(mine)
        saved = f"{1 - ours / kb:.0%}" if kb and how != "adaptive" else ""
        scores = [
            ", ".join(f"{n} {name}" for name, n in sorted(Counter(score).items()))
            for score in (
                [each.case.paper for each in mine],
                [each.case.strict for each in mine],
            )
        ]
        counts = [f"{captures:.1f}", f"{handovers:.1f}" if handovers else ""]
        cells = [kind, how, *counts, f"{kb / 1e3:.1f}", saved, *scores]
        yield f"| {' | '.join(cells)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--first", type=int, default=1, help="seeds count from here")
    parser.add_argument("--cases", type=int, default=5, help="of each kind")
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument("--how", default=",".join([*HOW, POLLING]))
    asked = parser.parse_args()
    found = [
        result
        for kind in asked.kinds.split(",")
        for seed in range(asked.first, asked.first + asked.cases)
        for result in results(kind, seed, asked.how.split(","))
    ]
    print("\n".join(table(found)))
    own = [each.cpu_us_a_sample for each in found if each.how == "adaptive"]
    print(f"adaptive: {sum(own) / len(own):.2f} us of CPU a sample")


if __name__ == "__main__":
    main()
