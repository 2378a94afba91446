"""Simulate a job: its dumps and its truth, as files or as an incident."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from oncall.core.errors import UsageError
from oncall.evidence.incident import Incident
from oncall.importers import flight_recorder
from oncall_lab.jobs.fault import CLASSES
from oncall_lab.jobs.play import Played, Strike, play
from oncall_lab.jobs.record import dump_moments, earlier_calls, first_whole_step, write_dumps
from oncall_lab.jobs.scenario import PIPELINES, JobScenario
from oncall_lab.recording import STARTUP_NS
from oncall_lab.truth import FaultTruth, Truth, acted, truth_of

DUMPS = "fr"  # the folder beside truth.json


def played_job(scenario: JobScenario) -> Played:
    """The job, played. Raises UsageError if a hang asked for did not come to act."""
    played = play(scenario)
    if played.strike is None and any(fault.hangs for fault in scenario.faults):
        raise UsageError("scenario: no fault came to act; does its rank make such a call?")
    return played


def write_job(
    scenario: JobScenario, folder: Path, *, flavour: str = "", impact: float | None = None,
    played: Played | None = None,
) -> dict[str, Any]:  # fmt: skip
    """Write the dumps and truth.json of a job into `folder`; returns the truth.

    Raises UsageError if it cannot be written, or a hang did not come to act.
    """
    done = played or played_job(scenario)
    truth = truth_for_judges(scenario, done, flavour or scenario.program, impact)
    try:
        truth["entries"] = write_dumps(scenario, done, folder / DUMPS)
        text = json.dumps(truth, indent=1) + "\n"
        (folder / "truth.json").write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"cannot write to {folder}: {error}") from error
    return truth


def simulate_job(scenario: JobScenario) -> tuple[Incident, Truth]:
    """The dumps of a job, imported, and the truth; equal scenarios give equal evidence.

    Raises UsageError if a hang asked for did not come to act.
    """
    played = played_job(scenario)
    with tempfile.TemporaryDirectory() as folder:
        write_dumps(scenario, played, Path(folder))
        incident = Incident.empty()
        flight_recorder.read(sorted(Path(folder).iterdir()), incident, scenario.job)
    return incident, truth_of_job(scenario, played)


_STALLS = 3  # fewer are an event


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


def shown(scenario: JobScenario, played: Played) -> str:
    """How much of a fault the dumps show: full; group (not which member of it); or weak.

    Weak is a hang whose dumps nothing dates, so that it looks like a moment of a running job; and
    slowness with nothing to compare with: no earlier step in the ring, and no rank or group that
    does the same without the fault, or less than three of the stalls.
    """
    if not scenario.faults:
        return "full"
    (fault,) = scenario.faults
    ranks, layout = culprits(scenario), played.layout
    if fault.hangs:
        dated = scenario.timing or scenario.dump == "aborted" or fault.kind == "mismatch"
        return "weak" if not dated else "group" if fault.kind == "never_ends" else "full"
    first = max(first_whole_step(scenario, played, rank) for rank in ranks)
    if fault.kind == "stalls":
        ended = np.searchsorted(played.steps[:, ranks[0]], dump_moments(scenario, played)[ranks[0]])
        seen = [step for step in range(first, int(ended)) if step >= fault.step]
        return "full" if len(seen[:: fault.every]) >= _STALLS else "weak"
    if not scenario.timing and fault.kind in ("slow_compute", "slow_link"):
        return "weak"  # no durations, and hosts do not wait for their devices
    if fault.step > first:
        return "full"
    if fault.kind == "slow_link":
        mine = {
            group.role for group in layout.groups if group.crosses and ranks[0] in group.members
        }
        sound = [g for g in layout.groups if g.role in mine and ranks[0] not in g.members]
        return "full" if sound else "weak"
    stages = [g.members for g in layout.groups if g.role == "data"]
    if scenario.program not in PIPELINES:
        stages = [tuple(range(scenario.ranks))]
    alone = any(set(ranks) >= set(stage) for stage in stages)
    return "weak" if alone else "full"


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
    truth: dict[str, Any] = {
        "schema": 1, "kind": kind, "family": family, "class": of_class, "class_ok": [of_class],
        "culprits": list(culprits(scenario)), "acceptable": [], "equivalents": [],
        "seed": scenario.seed, "program": scenario.program, "impact": impact,
        "observable": {"fr": shown(scenario, played)},
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
        host_of = np.arange(scenario.ranks) // scenario.gpus_per_host
        at_ns = float(played.steps[max(0, fault.step - 1)].min())
        if strike is not None:
            at_ns = strike.at_ns
        found.append(None if fault.hangs and strike is None else FaultTruth(
            kind=CLASSES[fault.kind],
            how=fault.kind,
            **acted(ranks, host_of, STARTUP_NS + at_ns),
            role=strike.group.role if strike else "",
            comms=(strike.group.name,) if strike else (),
            seq=_sequence(scenario, played, strike) if strike else None,
            severity=None if fault.hangs else fault.factor,
        ))  # fmt: skip
    return truth_of(scenario, found)


def _sequence(scenario: JobScenario, played: Played, strike: Strike) -> int:
    """The number of the call in its group, as the dumps have it."""
    p2p = strike.name in ("send", "recv")
    return strike.number + (0 if p2p else earlier_calls(scenario, played)[strike.group.name])
