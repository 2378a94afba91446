"""Simulate a scenario of traffic: the evidence, and the truth."""

from __future__ import annotations

from collections.abc import Mapping

from oncall.evidence.incident import Incident
from oncall_lab.recording import node_name
from oncall_lab.traffic.fault import TrafficFault
from oncall_lab.traffic.play import Played, play
from oncall_lab.traffic.record import record
from oncall_lab.traffic.scenario import TrafficScenario
from oncall_lab.truth import FaultTruth, Truth, acted, truth_of


def simulate_traffic(scenario: TrafficScenario) -> tuple[Incident, Truth]:
    """The incident and its truth; equal scenarios give equal rows.

    In the truth, `kind` is the failure, `how` Pulse's class of it. A failure that comes after
    another one has stopped the job is `unstruck`.
    """
    played = play(scenario)
    struck = played.conditions.since_ns
    found = [_truth(played, fault) if fault in struck else None for fault in scenario.faults]
    return record(scenario, played), truth_of(scenario, found, scenario.missing_nodes)


def _truth(played: Played, fault: TrafficFault) -> FaultTruth:
    cluster, conditions = played.cluster, played.conditions
    ranks = conditions.ranks_of(fault).tolist()
    of_the_nic = fault.kind in _ON_NICS
    blame: list[Mapping[str, str | int]] = [
        {
            "node": node_name(int(cluster.nodes[rank])),
            "rank": rank,
            **({"nic": f"mlx5_{cluster.local[rank]}"} if of_the_nic else {}),
        }
        for rank in ranks
    ]
    mine = [c for c in cluster.communicators if c.role != "tp" and set(ranks) & set(c.members)]
    return FaultTruth(
        kind=fault.kind,
        how=fault.pulse_class,
        **acted(ranks, cluster.nodes, conditions.since_ns[fault]),
        comms=tuple(f"0x{c.comm:016x}" for c in mine),
        severity=fault.severity,
        blame=tuple(blame),
    )


_ON_NICS = (
    "congestion", "nic_down", "pcie_contention", "pcie_downgrade", "cross_numa",
    "misaligned_memory",
)  # fmt: skip
