"""What really happened to a job, as a judge of diagnoses reads it."""

from __future__ import annotations

from typing import Any

import numpy as np

from oncall_lab.jobs.fault import CLASSES
from oncall_lab.jobs.play import Played, Strike
from oncall_lab.jobs.recorder import earlier_calls
from oncall_lab.jobs.scenario import JobScenario
from oncall_lab.recording import EPOCH_NS, STARTUP_NS, node_name
from oncall_lab.truth import FaultTruth, Truth, truth_of


def culprits(scenario: JobScenario) -> tuple[int, ...]:
    """The ranks at fault; none in a job without a fault."""
    if not scenario.faults:
        return ()
    (fault,) = scenario.faults
    if fault.kind == "slow_host":
        return tuple(sorted({r for rank in fault.ranks for r in scenario.host_ranks(rank)}))
    return tuple(sorted(fault.ranks))


def lengthened(scenario: JobScenario, played: Played, sound: Played) -> float:
    """How many times as long the steps of a slow job are from its fault on, as its culprits see
    them: the mean against that of the same job without the fault (`sound`)."""
    (fault,) = scenario.faults

    def mean(one: Played) -> float:
        ends = one.steps[:, list(culprits(scenario))].max(axis=1)
        return float(np.diff(ends)[max(0, fault.step - 1) :].mean())

    return mean(played) / mean(sound)


def truth_for_judges(
    scenario: JobScenario, played: Played, flavour: str, impact: float | None = None
) -> dict[str, Any]:
    """The truth of one recording: family, class, culprits and where a hang began.

    `acceptable` are other sets of ranks that the dumps cannot distinguish from the culprits:
    of two members with calls that differ, either; of a collective that never ends, its group.
    """
    fault = scenario.faults[0] if scenario.faults else None
    kind = fault.kind if fault else f"none_{flavour}"
    of_class = CLASSES[fault.kind] if fault else "none"
    family = {"H": "hang", "S": "slow", "n": "none"}[of_class[0]]
    timed = kind in ("slow_compute", "slow_link")
    truth: dict[str, Any] = {
        "schema": 1, "kind": kind, "family": family, "class": of_class, "class_ok": [of_class],
        "culprits": list(culprits(scenario)), "acceptable": [], "equivalents": [],
        "seed": scenario.seed, "program": scenario.program, "impact": impact,
        # Without timing the dumps have no durations, only when calls were made.
        "observable": {"fr": "weak" if timed and not scenario.timing else "full"},
        "job": {"ranks": scenario.ranks, "group": scenario.group, "steps": scenario.steps},
        "recording": {"dump": scenario.dump, "timing": scenario.timing,
                      "ring_entries": scenario.ring_entries},
    }  # fmt: skip
    strike = played.strike
    if strike is not None:
        members = list(strike.group.members)
        truth["comm"] = {"name": strike.group.name, "ranks": members}
        truth |= {"seq": _sequence(scenario, played, strike), "op": strike.name}
        truth |= {"step": strike.step}
        if of_class == "H3":
            truth["acceptable"] = [members]
            truth["observable"] = {"fr": "group"}
        elif of_class == "H2" and len(members) == 2:
            truth["acceptable"] = [[r] for r in members if r != strike.rank] + [members]
    if of_class == "S2" and fault is not None:
        crossing = [g for g in played.layout.groups if g.crosses and fault.ranks[0] in g.members]
        smallest = min(crossing, key=lambda g: len(g.members), default=None)
        truth["equivalents"] = list(smallest.members) if smallest else []
    return truth


def truth_of_job(scenario: JobScenario, played: Played) -> Truth:
    """The truth in the form that all simulations share."""
    found: list[FaultTruth | None] = []
    strike = played.strike
    for fault in scenario.faults:
        ranks = culprits(scenario)
        at_ns = float(played.steps[max(0, fault.step - 1)].min())
        if strike is not None:
            at_ns = strike.at_ns
        found.append(None if fault.hangs and strike is None else FaultTruth(
            kind=CLASSES[fault.kind],
            how=fault.kind,
            ranks=ranks,
            nodes=tuple(dict.fromkeys(node_name(r // scenario.gpus_per_host) for r in ranks)),
            role=strike.group.role if strike else "",
            comms=(strike.group.name,) if strike else (),
            seq=_sequence(scenario, played, strike) if strike else None,
            started_ns=EPOCH_NS + round(STARTUP_NS + at_ns),
            severity=None if fault.hangs else fault.factor,
        ))  # fmt: skip
    return truth_of(scenario, found)


def _sequence(scenario: JobScenario, played: Played, strike: Strike) -> int:
    """The number of the call in its group, as the dumps have it."""
    p2p = strike.name in ("send", "recv")
    return strike.number + (0 if p2p else earlier_calls(scenario, played)[strike.group.name])
