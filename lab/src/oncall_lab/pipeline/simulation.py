"""Simulate a scenario of a pipeline: the evidence, and the truth."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from oncall.evidence.incident import Incident
from oncall_lab.pipeline.fault import PipelineFault
from oncall_lab.pipeline.play import Played, play, spans_with
from oncall_lab.pipeline.record import record
from oncall_lab.pipeline.scenario import PipelineScenario
from oncall_lab.truth import FaultTruth, Truth, acted, truth_of


def simulate_pipeline(scenario: PipelineScenario) -> tuple[Incident, Truth]:
    """The incident and its truth; equal scenarios give equal rows.

    A fault that comes after another one has stopped the job is `unstruck`.
    """
    played = play(scenario)
    return record(scenario, played), truth_of_pipeline(scenario, played)


@dataclass(frozen=True, kw_only=True)
class StageTruth(FaultTruth):
    """A fault with its place in the pipeline.

    `iteration` counts whole iterations of the recording from 0, or as the trainer counts them
    where it tells its tasks. `peers` are the other ends of a transmission. `lengthened_ns`: how
    much longer its longest iteration took than without it; `slowdown` is that iteration's length
    against the one without. `iterations_longer`: how many took a tenth longer or more. Unknown
    for a hang.
    """

    stage: int = 0
    chunk: int | None = None
    micro_batch: int | None = None
    task: str = ""
    iteration: int = 0
    peers: tuple[int, ...] = ()
    lengthened_ns: int | None = None
    iterations_longer: int | None = None


def truth_of_pipeline(scenario: PipelineScenario, played: Played) -> Truth:
    """The truth of what was played."""
    found = [_fault_truth(scenario, played, fault) for fault in scenario.faults]
    return truth_of(scenario, found, scenario.missing_nodes)


def _fault_truth(
    scenario: PipelineScenario, played: Played, fault: PipelineFault
) -> StageTruth | None:
    s = scenario
    if fault.strikes_once and fault not in played.struck_ns:
        return None
    stage = fault.rank // (s.tp * s.lanes)
    began = min(fault.iteration, len(played.spans) - 1)
    at_ns = played.struck_ns.get(fault, float(played.spans[began, 0]))
    struck = acted((fault.rank,), played.layout.nodes, at_ns)
    (node,) = struck["nodes"]
    truth = StageTruth(
        kind=fault.kind,
        how=fault.task if fault.strikes_once else "",
        **struck,
        role="pp" if fault.transmits else "",
        severity=float(fault.delay_ns) if fault.kind == "delay" else None,
        blame=({"rank": fault.rank, "node": node, "stage": stage},),
        stage=stage,
        chunk=fault.chunk if fault.strikes_once else None,
        micro_batch=fault.micro_batch if fault.strikes_once else None,
        task=fault.task if fault.strikes_once else "",
        iteration=fault.iteration - bool(s.starts_in and s.recorder != "tasks"),
        peers=_peers(scenario, fault, stage),
    )
    return truth if fault.hangs else _with_cost(scenario, played, fault, truth)


def _peers(s: PipelineScenario, fault: PipelineFault, stage: int) -> tuple[int, ...]:
    """To whom the rank sends what is slow or lost."""
    if not fault.transmits:
        return ()
    steps = {"forward_send": (1,), "backward_send": (-1,)}
    to = [stage + step for step in (steps[fault.task] if fault.strikes_once else (-1, 1))]
    if s.chunks == 1:
        to = [one for one in to if 0 <= one < s.pp]
    of_stage = s.tp * s.lanes
    return tuple(one % s.pp * of_stage + fault.rank % of_stage for one in to)


def _with_cost(
    scenario: PipelineScenario, played: Played, fault: PipelineFault, truth: StageTruth
) -> StageTruth:
    others = [other for other in scenario.faults if other is not fault]
    lasted = np.diff(played.spans, axis=1)[:, 0]
    without = np.diff(spans_with(scenario, others), axis=1)[: len(lasted), 0]
    with np.errstate(invalid="ignore"):
        longer = lasted - without
    if not np.isfinite(longer).all():
        return truth
    worst = int(longer.argmax())
    return replace(
        truth,
        severity=truth.severity if truth.severity is not None else fault.factor,
        slowdown=round(float(lasted[worst] / without[worst]), 4),
        lengthened_ns=round(float(longer[worst])),
        iterations_longer=int((lasted >= 1.1 * without).sum()),
    )
