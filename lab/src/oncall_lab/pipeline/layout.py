"""Who is in which group: ranks by stage, lane and place in the tensor-parallel group.

A lane is one pipeline: replica `lane // cp`, context-parallel place `lane % cp`. Ranks count
tensor first, then lanes, then stages: Megatron-LM's default order tp-cp-ep-dp-pp.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from oncall_lab.arrays import Bools, Floats, Ints
from oncall_lab.pipeline.scenario import PipelineScenario
from oncall_lab.recording import comm_hash

# Each role of a group with the axes of (stage, lane, tensor) that its members differ in.
ROLES = ("tp", "cp", "ep", "dp", "pp", "embedding", "model", "world")


@dataclass(frozen=True)
class Groups:
    """Groups of one role. comm: (pp, lanes, tp), 0 where a rank is in none.
    crosses: does a group go over the network?"""

    role: str
    members: Ints  # (groups, size) global ranks
    comms: NDArray[np.uint64]  # (groups,)
    comm: NDArray[np.uint64]
    crosses: Bools


@dataclass(frozen=True)
class Layout:
    """All ranks and groups of two members and more."""

    grid: Ints  # (pp, lanes, tp) global ranks
    nodes: Ints  # (ranks,)
    groups: dict[str, Groups]
    cp: int
    ep: int

    def together(self, role: str, moments: Floats) -> Floats:
        """(..., lanes, tp): the latest moment in each rank's group among ranks of one stage."""
        lanes, tp = moments.shape[-2:]
        match role:
            case "tp":
                return np.broadcast_to(moments.max(axis=-1, keepdims=True), moments.shape)
            case "dp":
                return np.broadcast_to(moments.max(axis=-2, keepdims=True), moments.shape)
            case "cp" | "ep":
                size = self.cp if role == "cp" else self.ep
                split = moments.reshape(*moments.shape[:-2], lanes // size, size, tp)
                latest = np.broadcast_to(split.max(axis=-2, keepdims=True), split.shape)
                return latest.reshape(moments.shape)
        raise ValueError(role)


def lay_out(scenario: PipelineScenario) -> Layout:
    """Number the ranks and name their groups."""
    s = scenario
    grid = np.arange(s.world_size, dtype=np.int64).reshape(s.pp, s.lanes, s.tp)
    nodes = np.arange(s.world_size) // s.gpus_per_node
    by_lane = grid.transpose(1, 2, 0)  # (lanes, tp, pp)
    found = {
        "tp": grid.reshape(-1, s.tp),
        "cp": grid.reshape(-1, s.cp, s.tp).transpose(0, 2, 1).reshape(-1, s.cp),
        "ep": grid.reshape(-1, s.ep, s.tp).transpose(0, 2, 1).reshape(-1, s.ep),
        "dp": grid.transpose(0, 2, 1).reshape(-1, s.lanes),
        "pp": by_lane.reshape(-1, s.pp),
        "embedding": by_lane[:, :, [0, -1]].reshape(-1, 2) if s.pp > 1 else np.empty((0, 2), int),
        "model": grid.transpose(1, 0, 2).reshape(s.lanes, -1),
        "world": grid.reshape(1, -1),
    }
    groups = {
        role: _name(s, role, members, nodes)
        for role, members in found.items()
        if members.shape[1] > 1 and len(members)
    }
    return Layout(grid, nodes, groups, s.cp, s.ep)


def _name(s: PipelineScenario, role: str, members: Ints, nodes: Ints) -> Groups:
    comms = np.array(
        [comm_hash(f"{s.job}/{s.seed}/{role}/{i}") for i in range(len(members))], np.uint64
    )
    comm = np.zeros(s.world_size, dtype=np.uint64)
    comm[members] = comms[:, np.newaxis]
    crosses = np.zeros(s.world_size, dtype=np.bool_)
    crosses[members] = (nodes[members] != nodes[members[:, :1]]).any(axis=1, keepdims=True)
    shape = s.pp, s.lanes, s.tp
    return Groups(role, members, comms, comm.reshape(shape), crosses.reshape(shape))
