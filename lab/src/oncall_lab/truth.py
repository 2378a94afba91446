"""The ground truth of a simulated incident. It lies beside the evidence, never in it."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from oncall_lab.arrays import Ints
from oncall_lab.recording import EPOCH_NS, node_name
from oncall_lab.scenario import Scenario


@dataclass(frozen=True, kw_only=True)
class FaultTruth:
    """One fault that came to act. `started_ns` is Unix time on a clock without error.

    `comms` are the communicators it acts on itself (hexadecimal; not its victims'), `seq` the
    operation a hang began in. `severity` is the factor of a slow fault (pauses: how much longer
    a period takes), or 1 to 3; `slowdown` the length of a training step against one before it.
    """

    kind: str
    how: str = ""
    ranks: tuple[int, ...] = ()
    nodes: tuple[str, ...] = ()
    role: str = ""
    comms: tuple[str, ...] = ()
    seq: int | None = None
    started_ns: int
    severity: float | None = None
    slowdown: float | None = None
    blame: tuple[Mapping[str, str | int], ...] = ()  # devices by node, nic, gpu, rank, comm


def acted(ranks: Iterable[int], node_of: Ints, at_ns: float) -> dict[str, Any]:
    """The fields of a FaultTruth that say on whom a fault acted, and since when; `node_of`
    (ranks,) the index of each rank's node, `at_ns` since the job began."""
    on = tuple(int(rank) for rank in ranks)
    nodes = tuple(dict.fromkeys(node_name(int(node_of[rank])) for rank in on))
    return {"ranks": on, "nodes": nodes, "started_ns": EPOCH_NS + round(at_ns)}


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
    scenario: Scenario, found: Sequence[FaultTruth | None], missing_nodes: Sequence[int] = ()
) -> Truth:
    """The truth of a scenario of which each fault is found, or None if it never came to act."""
    struck = tuple(fault for fault in found if fault is not None)
    unstruck = len(scenario.faults) - len(struck)
    missing = tuple(map(node_name, missing_nodes))
    return Truth(scenario.job, scenario.seed, struck, missing, unstruck)
