"""What a task calls between its computations, layer by layer."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from oncall_lab.arrays import Bools, Floats, Ints
from oncall_lab.pipeline.layout import Layout
from oncall_lab.pipeline.scenario import PipelineScenario

BROADCAST_BYTES = 4 * 8192  # tokens and masks of a micro-batch, to the tensor-parallel ranks


@dataclass(frozen=True)
class Call:
    """A collective of a task: whose group, which operation, of how many bytes."""

    role: str
    op: str
    bytes: int


@dataclass(frozen=True)
class Pattern:
    """The calls of a task on one stage, in order, and what lies between them.

    weights (calls + 1,): shares of the task's computing time; transfer_ns (calls, lanes, tp);
    comm likewise.
    """

    calls: tuple[Call, ...]
    weights: Floats
    transfer_ns: Floats
    comm: np.ndarray[tuple[int, ...], np.dtype[np.uint64]]

    def of(self, role: str) -> Ints:
        """The places of one role's calls."""
        return np.flatnonzero([call.role == role for call in self.calls])

    @cached_property
    def roles(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(call.role for call in self.calls))


def pattern(
    scenario: PipelineScenario, layout: Layout, stage: int, chunk: int, task: str
) -> Pattern:
    """The calls of a forward or backward of this chunk on this stage."""
    s = scenario
    virtual, last = chunk * s.pp + stage, s.pp * s.chunks - 1
    calls: list[Call] = []
    weights = [0.0]
    forward = task == "forward"
    if forward and virtual in (0, last):
        # The first tensor-parallel rank has read the batch; the others get it from there.
        calls += [Call("tp", "Broadcast", BROADCAST_BYTES)] * 2
        weights += [0.01, 0.01]
    for _ in range(s.layers // (s.pp * s.chunks)):
        one = _layer(s, forward=forward)
        calls += one
        weights += [1 / len(one)] * len(one) if one else []
        if not one:
            weights[-1] += 1.0
    if virtual == last:
        # Vocabulary and loss.
        calls.append(Call("tp", "AllReduce", max(4, s.tp_bytes // 64)))
        weights.append(0.2)
    there = [number for number, call in enumerate(calls) if call.role in layout.groups]
    merged = _merge(weights, there)
    kept = tuple(calls[number] for number in there)
    shape = (len(kept), s.lanes, s.tp)
    took, comm = np.zeros(shape), np.zeros(shape, dtype=np.uint64)
    for number, call in enumerate(kept):
        groups = layout.groups[call.role]
        comm[number] = groups.comm[stage]
        took[number] = transfer_ns(s, call, len(groups.members[0]), groups.crosses[stage])
    return Pattern(kept, merged / merged.sum(), took, comm)


def _layer(s: PipelineScenario, *, forward: bool) -> list[Call]:
    """Attention and then an MLP or experts (Korthikanti et al. 2022, Figures 4 and 5)."""
    shared = s.tp_bytes // s.tp
    if s.sequence_parallel:
        gather, scatter = Call("tp", "AllGather", shared), Call("tp", "ReduceScatter", shared)
        # Backward gathers its input once more for the gradient of the weights.
        block = [gather, scatter] if forward else [gather, gather, scatter]
    else:
        block = [Call("tp", "AllReduce", s.tp_bytes)]
    context = [Call("cp", "AllGather", s.cp_bytes)]
    experts = [Call("ep", "AllToAll", s.ep_bytes)] * 2
    return [*context, *block, *experts, *block]


def _merge(weights: list[float], kept: list[int]) -> Floats:
    """Computations that no call parts are one: weights (calls + 1,) of the calls kept."""
    bounds = np.array([-1, *kept])
    sums = np.add.reduceat(np.array(weights), bounds + 1)
    return np.maximum(sums, 1e-3)


def transfer_ns(s: PipelineScenario, call: Call, size: int, crosses: Bools) -> Floats:
    """How long the data takes once all are there (ring algorithms)."""
    rate = np.where(crosses, s.network_bytes_per_s, s.nvlink_bytes_per_s) / 1e9
    share = {"AllReduce": 2 * (size - 1) / size, "AllToAll": (size - 1) / size}
    passed = share.get(call.op, size - 1 if call.op != "Broadcast" else 1)
    return s.latency_ns + call.bytes * passed / rate
