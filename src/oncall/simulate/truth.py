"""The ground truth of a simulated incident. It lies beside the evidence, never in it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from oncall.simulate.cluster import Cluster, node_name
from oncall.simulate.fault import Fault
from oncall.simulate.scenario import Scenario
from oncall.simulate.training import Played


@dataclass(frozen=True)
class FaultTruth:
    """One fault that came to act. `started_ns` is Unix time on a clock without error.

    `comms` are the communicators it acts on itself (hexadecimal; not its victims'), `seq` the
    operation a hang began in. `severity` is the factor of a slow fault (pauses: how much longer
    a period takes), or 1 to 3; `slowdown` the length of a training step against one before it.
    """

    kind: str
    how: str
    ranks: tuple[int, ...]
    nodes: tuple[str, ...]
    role: str
    comms: tuple[str, ...]
    seq: int | None
    started_ns: int
    severity: float | None = None
    slowdown: float | None = None
    blame: tuple[Mapping[str, str | int], ...] = ()  # devices by node, nic, gpu, rank, comm


@dataclass(frozen=True)
class Truth:
    """What really happened. `unstruck`: faults asked for that never came to act."""

    job: str
    seed: int
    faults: tuple[FaultTruth, ...]
    missing_nodes: tuple[str, ...] = ()
    unstruck: int = 0

    @property
    def healthy(self) -> bool:
        return not self.faults

    def to_json(self) -> dict[str, object]:
        return {"healthy": self.healthy, **dataclasses.asdict(self)}


def truth_of(
    scenario: Scenario,
    cluster: Cluster,
    played: Played,
    epoch_ns: int,
    blame: Mapping[Fault, tuple[Mapping[str, str | int], ...]] | None = None,
) -> Truth:
    """Read the truth off what was played; `blame` are the devices at fault."""
    known = [_fault_truth(fault, cluster, played, epoch_ns) for fault in scenario.faults]
    known = [
        fault and dataclasses.replace(fault, blame=(blame or {}).get(cause, ()))
        for cause, fault in zip(scenario.faults, known, strict=True)
    ]
    struck = tuple(fault for fault in known if fault is not None)
    missing = tuple(node_name(node) for node in scenario.missing_nodes)
    return Truth(scenario.job, scenario.seed, struck, missing, len(known) - len(struck))


def _fault_truth(
    fault: Fault, cluster: Cluster, played: Played, epoch_ns: int
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
        started_ns=epoch_ns + round(first.at_ns),
        severity=None if fault.hangs else _severity(fault),
        slowdown=None if fault.hangs else _slowdown(fault, played),
    )


def _severity(fault: Fault) -> float:
    if fault.is_measured:
        return fault.severity
    if fault.how == "pauses":
        return 1 + fault.pause_ns / fault.period_ns
    return max(fault.factor, fault.link_factor) if fault.kind == "S3" else fault.factor


def _slowdown(fault: Fault, played: Played) -> float | None:
    """Mean step under the fault against the median step before it; None without three of each."""
    begin, end = np.array(played.steps).reshape(-1, 2).T
    length = end - begin
    under = length[(begin >= fault.at_ns) & [fault.active(moment) for moment in begin]]
    before = length[end < fault.at_ns]
    if len(under) < 3 or len(before) < 3:
        return None
    return round(float(under.mean() / np.median(before)), 4)
