"""Simulate a training: evidence as the recorders of a real cluster leave it, and the truth."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from oncall.core.errors import UsageError
from oncall.evidence.incident import Incident
from oncall_lab.training.cluster import Cluster, build
from oncall_lab.training.fault import TrainingFault
from oncall_lab.training.measured.surroundings import Surroundings
from oncall_lab.training.play import Played, Training
from oncall_lab.training.record import record
from oncall_lab.training.scenario import TrainingScenario
from oncall_lab.truth import FaultTruth, Truth, acted, truth_of


def simulate_training(scenario: TrainingScenario) -> tuple[Incident, Truth]:
    """The incident and its truth; equal scenarios give equal evidence.

    Raises UsageError if none of the faults asked for comes to act, or nothing happens at all.
    """
    cluster = build(scenario)
    surroundings = Surroundings(scenario, cluster) if scenario.is_measured else None
    played = Training(scenario, cluster, surroundings.paces if surroundings else None).play()
    blame = surroundings.blame if surroundings else {}
    truth = truth_of_training(scenario, cluster, played, blame)
    if scenario.faults and not truth.faults:
        raise UsageError(
            "scenario: no fault came to act; is `at` within `duration`, "
            "and does the rank take part in the operation named by `in`?"
        )
    if not any((m.arrival_ns <= played.until_ns).any() for m in played.meetings):
        raise UsageError("scenario: `duration` ends before the first operation begins")
    incident, clocks = record(scenario, played)
    if surroundings:
        surroundings.write(played, clocks, incident)
    return incident, truth


Blame = tuple[Mapping[str, str | int], ...]


def truth_of_training(
    scenario: TrainingScenario,
    cluster: Cluster,
    played: Played,
    blame: Mapping[TrainingFault, Blame],
) -> Truth:
    """Read the truth off what was played; `blame` are the devices at fault."""
    found = [_truth(fault, cluster, played, blame.get(fault, ())) for fault in scenario.faults]
    return truth_of(scenario, found, scenario.missing_nodes)


def _truth(
    fault: TrainingFault, cluster: Cluster, played: Played, blame: Blame
) -> FaultTruth | None:
    strikes = [s for effect in played.effects if effect.fault is fault for s in effect.strikes]
    if not strikes:
        return None
    first = min(strikes, key=lambda strike: strike.at_ns)
    ranks = sorted({rank for strike in strikes for rank in strike.ranks})
    comms = dict.fromkeys(f"0x{comm:016x}" for strike in strikes for comm in strike.comms)
    return FaultTruth(
        kind=fault.kind,
        how=fault.how,
        **acted(ranks, cluster.nodes, first.at_ns),
        role=first.role,
        comms=tuple(comms),
        seq=first.seq,
        severity=None if fault.hangs else _severity(fault),
        slowdown=None if fault.hangs else _slowdown(fault, played),
        blame=blame,
    )


def _severity(fault: TrainingFault) -> float:
    if fault.is_measured:
        return fault.severity
    if fault.how == "pauses":
        return 1 + fault.pause_ns / fault.period_ns
    return max(fault.factor, fault.link_factor) if fault.kind == "S3" else fault.factor


def _slowdown(fault: TrainingFault, played: Played) -> float | None:
    """Mean step under the fault against the median step before it; None without three of each."""
    begin, end = np.array(played.steps).reshape(-1, 2).T
    length = end - begin
    under = length[(begin >= fault.at_ns) & [fault.active(moment) for moment in begin]]
    before = length[end < fault.at_ns]
    if len(under) < 3 or len(before) < 3:
        return None
    return round(float(under.mean() / np.median(before)), 4)
