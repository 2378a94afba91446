"""What the faults of a training really did: on whom, in which operations, at what cost."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from oncall_lab.recording import EPOCH_NS, node_name
from oncall_lab.training.cluster import Cluster
from oncall_lab.training.fault import TrainingFault
from oncall_lab.training.play import Played
from oncall_lab.training.scenario import TrainingScenario
from oncall_lab.truth import FaultTruth, Truth, truth_of

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
    ranks = tuple(sorted({rank for strike in strikes for rank in strike.ranks}))
    comms = dict.fromkeys(f"0x{comm:016x}" for strike in strikes for comm in strike.comms)
    return FaultTruth(
        kind=fault.kind,
        how=fault.how,
        ranks=ranks,
        nodes=tuple(dict.fromkeys(node_name(int(cluster.nodes[rank])) for rank in ranks)),
        role=first.role,
        comms=tuple(comms),
        seq=first.seq,
        started_ns=EPOCH_NS + round(first.at_ns),
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
