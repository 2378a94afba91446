"""Simulate a scenario of a network: the evidence, and the truth."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import numpy as np

from oncall.core.errors import UsageError
from oncall.evidence.incident import Incident
from oncall_lab.network.flow import Injected
from oncall_lab.network.plan import plan
from oncall_lab.network.play import Played, play
from oncall_lab.network.record import COMM, flow_names, record
from oncall_lab.network.scenario import NetworkScenario
from oncall_lab.recording import EPOCH_NS
from oncall_lab.truth import FaultTruth, Truth, truth_of

LATE = 1.03  # times what the collective takes without the fault; a fault that does less is none
STOOD_NS = 4e6  # a cycle that does not open again; others open and close for a while
MAINLY = 0.5  # of what the collective lost: pauses that cost less come with contention


def simulate_network(scenario: NetworkScenario) -> tuple[Incident, Truth]:
    """The incident and its truth; equal scenarios give equal rows.

    Raises UsageError if none of the faults asked for delays the collective.
    """
    played = play(scenario, plan(scenario))
    truth = truth_of_network(played)
    if scenario.faults and not truth.faults:
        raise UsageError(
            "scenario: no fault delays the collective; let it come earlier, or use another seed"
        )
    return record(played), truth


def truth_of_network(played: Played) -> Truth:
    """What delayed the collective, beside what it takes with the same dice and no fault."""
    scenario = played.scenario
    if not scenario.faults:
        return truth_of(scenario, ())
    sound = dataclasses.replace(scenario, faults=())
    alone_ns = _took_ns(play(sound, plan(sound)))
    slowdown = _took_ns(played) / alone_ns
    found = [
        _fault(played, injected, slowdown)
        for injected in played.plan.injected
        if slowdown >= LATE and _came(played, injected, alone_ns)
    ]
    return truth_of(scenario, found)


def _took_ns(played: Played) -> float:
    progress = played.progress
    end = float(progress.ended_ns.max()) if progress.over else played.until_ns
    return end - float(np.nanmin(progress.started_ns))


def _came(played: Played, injected: Injected, alone_ns: float) -> bool:
    """Whether what was injected took the form that it is named for."""
    if injected.kind == "PFC_LOOP_DEADLOCK":
        last = {port: at_ns if paused else np.inf for at_ns, port, paused in played.pauses}
        stood_ns = [played.until_ns - last.get(port, np.inf) for port in injected.ports]
        return not played.progress.over and min(stood_ns) >= STOOD_NS
    if injected.kind == "PFC_BACKPRESSURE":
        relieved_ns = _took_ns(play(played.scenario, played.plan, injected.ports))
        took_ns = _took_ns(played)
        return took_ns - relieved_ns >= MAINLY * (took_ns - alone_ns)
    return True


def steps_longer_ns(played: Played, name: str) -> float:
    """By how much some step of the collective is longer than it would be without a flow."""
    other = flow_names(played).index(name) - played.members
    injected = tuple(
        dataclasses.replace(
            fault, flows=tuple(f for f in fault.flows if f is not played.plan.flows[other])
        )
        for fault in played.plan.injected
    )
    innocent = tuple(f for f in played.plan.innocent if f is not played.plan.flows[other])
    fewer = dataclasses.replace(played.plan, injected=injected, innocent=innocent)
    without = play(played.scenario, fewer).progress
    took = [p.ended_ns - p.started_ns for p in (played.progress, without)]
    return float(np.nanmax(took[0] - took[1]))


def _fault(played: Played, injected: Injected, slowdown: float) -> FaultTruth:
    tree = played.plan.tree
    senders = dict.fromkeys(tree.name(flow.src) for flow in injected.flows)
    return FaultTruth(
        kind=injected.kind,
        nodes=tuple(senders),
        comms=(f"0x{COMM:016x}",),
        seq=0,
        started_ns=EPOCH_NS + round(injected.at_ns),
        slowdown=round(slowdown, 4),
        blame=(*_flows(played, injected), *({"port": tree.label(p)} for p in injected.ports)),
    )


def _flows(played: Played, injected: Injected) -> list[Mapping[str, str | int]]:
    """The fault's flows, and for how long ports served them while the collective waited there."""
    names, legs = flow_names(played), played.legs
    stolen = np.bincount(legs.flow, played.stolen)
    lost_ns = stolen / played.scenario.network_bytes_per_s * 1e9
    numbers = {id(flow): played.members + n for n, flow in enumerate(played.plan.flows)}
    mine = [numbers[id(flow)] for flow in injected.flows]
    return [{"flow": names[flow], "lost_ns": round(float(lost_ns[flow]))} for flow in mine]
