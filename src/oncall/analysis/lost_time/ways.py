"""The ways to find who costs a job time, in the order in which they are tried."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from oncall.analysis.lost_time.causes import gains_of_own
from oncall.analysis.lost_time.changes import changed
from oncall.analysis.lost_time.evidence import Evidence
from oncall.analysis.lost_time.host_delays import host_delays
from oncall.analysis.lost_time.judgement import Answer, Declined, Entry
from oncall.analysis.lost_time.late_hosts import late_hosts
from oncall.analysis.lost_time.latecomers import latecomers, suspected
from oncall.analysis.lost_time.replay import replay


@dataclass(frozen=True)
class Way:
    """One way: what evidence it `lacks` (empty if it has all it needs), and whom it finds. What it
    shows is `replayed`, too: where replays have all that happened it has nothing to add."""

    name: str
    lacks: Callable[[Evidence], str]
    find: Callable[[Evidence], Answer]
    replayed: bool = False

    def ask(self, evidence: Evidence) -> Answer:
        """Whom it finds, but for ranks off the critical path: waits for them cost nothing."""
        if self.replayed and evidence.replayed:
            return Declined("replays show that nobody else costs anything")
        if lacks := self.lacks(evidence):
            return Declined(lacks)
        answer = self.find(evidence)
        few = evidence.few
        if isinstance(answer, Entry) and answer.shown_by in ("waits", "delays") and few is not None:
            ranks, limits = np.array(answer.ranks), evidence.limits
            gains = partial(gains_of_own, sets=[ranks], removed=(), limits=limits)
            if few.shares(gains).max() < limits.least_gain:
                return Declined("whom others wait for is off the critical path")
        return answer


@dataclass(frozen=True)
class Outcome:
    """What all ways found: the `entries` of one `way`, proven or a suspicion, and why the others
    `declined`, by name."""

    entries: tuple[Entry, ...]
    declined: dict[str, str]
    way: str = ""

    @property
    def proven(self) -> bool:
        return any(entry.proven for entry in self.entries)


def outcome_of(evidence: Evidence, ways: tuple[Way, ...]) -> Outcome:
    """The entries of the first way that proves any; else the first suspicion."""
    suspicion: tuple[Entry, ...] = ()
    declined: dict[str, str] = {}
    first = ""
    for way in ways:
        answer = way.ask(evidence)
        if isinstance(answer, Declined):
            declined[way.name] = answer.reason
            continue
        entries = (answer,) if isinstance(answer, Entry) else answer
        if any(entry.proven for entry in entries):
            return Outcome(entries, declined, way.name)
        if not suspicion:
            suspicion, first = entries, way.name
        declined[way.name] = "no more than a suspicion"
    return Outcome(suspicion, declined, first)


def _profile(evidence: Evidence) -> Answer:
    """The rank of a profiled job that waits less than all others, not only in a few long waits.
    Where none does, its operations may still show something else: slow transfers."""
    limits, lateness = evidence.limits, evidence.exposed
    if lateness is None:
        return Declined("not all ranks were profiled at the same time")
    entry = latecomers(lateness, limits)
    rest = evidence.exposure(but=limits.few - 1)
    again = latecomers(rest, limits) if rest is not None else None
    if isinstance(entry, Declined) or (isinstance(again, Entry) and again.ranks == entry.ranks):
        return entry
    part = entry.gain_ns / float(lateness.iterations.length_ns.sum())
    return replace(entry, cause="perhaps", share=part, low=0.0)


def _waits(evidence: Evidence) -> str:
    """What is lacking to compare by how much ranks made others wait."""
    lateness = evidence.lateness
    if lateness is None:
        return "hosts show no iterations"
    if evidence.programs.on_device:
        return "devices' times alone do not show who waits"
    if not lateness.of_all and (evidence.stages or evidence.in_larger):
        return "who is late in its group may have waited for someone outside"
    return ""


def _late(evidence: Evidence) -> Answer:
    lateness, limits = evidence.lateness, evidence.limits
    assert lateness is not None
    answer = latecomers(lateness, limits)
    # Stages differ by design, and no iteration shows which calls are alike.
    unlike = lateness.iterations.stretches and evidence.stages
    if unlike and isinstance(answer, Entry) and answer.share < limits.large:
        return Declined("stages differ by design")
    return answer


def _timed_waits(evidence: Evidence) -> str:
    if evidence.stages:
        return "all ranks of a host may be one stage, late by design"
    return _waits(evidence) or ("" if evidence.timed else "no durations")


def _hosts(evidence: Evidence) -> Answer:
    assert evidence.lateness is not None
    return late_hosts(evidence.lateness, evidence.limits)


def _calls_alone(evidence: Evidence) -> str:
    if evidence.timed or evidence.programs.on_device:
        return "durations show more than hosts' calls"
    return "" if evidence.lateness is not None else "hosts show no iterations"


def _delays(evidence: Evidence) -> Answer:
    lateness = evidence.lateness
    assert lateness is not None
    iterations = lateness.iterations
    moments = evidence.arrivals.moments(iterations.nth)
    late_ns = host_delays(evidence.programs, iterations, moments, evidence.limits)
    return latecomers(replace(lateness, late_ns=late_ns, by="delays"), evidence.limits)


def _like_iterations(evidence: Evidence) -> str:
    if evidence.programs.on_device and evidence.replay is None:
        return "devices' times alone do not show who waits"
    return ""


def _suspected(evidence: Evidence) -> Answer:
    if evidence.lateness is None:
        return Declined("hosts show no iterations")
    return suspected(evidence.lateness, evidence.limits)


def _nothing(_: Evidence) -> str:
    return ""


WAYS = (
    Way("profile", _nothing, _profile),
    Way("replay", _nothing, replay),
    Way("change", _like_iterations, changed),
    Way("waits", _waits, _late, replayed=True),
    Way("hosts", _timed_waits, _hosts, replayed=True),
    Way("delays", _calls_alone, _delays),
    Way("suspicion", _nothing, _suspected, replayed=True),
)
