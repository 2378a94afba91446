"""Small made-up profiles: a job of four ranks as torch.profiler would have recorded it."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

RANKS = 4
BASE_NS = 1_760_000_000_000_000_000
MATRIX_KERNEL = "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n"


@dataclass(frozen=True)
class Spent:
    """What one rank spends on one step, microseconds; `jitter` is the spread of all of it."""

    loader: float = 0
    garbage: float = 0
    python: float = 0  # on what no profile names
    launch: float = 10  # a kernel
    kernel: float = 8_000  # each of eight
    jitter: float = 0.03


@dataclass
class Timeline:
    """The events of one rank; `host_us` and `device_us` are how far either has come."""

    events: list[dict[str, Any]] = field(default_factory=list)
    host_us: float = 0
    device_us: float = 0

    def add(self, category: str, name: str, at_us: float, for_us: float, **said: Any) -> None:
        named = {key.replace("_", " "): value for key, value in said.items()}
        self.events.append(
            {"ph": "X", "cat": category, "name": name, "pid": 1, "tid": 1}
            | {"ts": round(at_us, 3), "dur": round(for_us, 3), "args": named}
        )

    def named(self, name: str, for_us: float) -> None:
        """Something on the host, while nothing is launched."""
        if for_us:
            self.add("user_annotation", name, self.host_us, for_us, External_id=0)
            self.host_us += for_us


def write_job(
    folder: Path, slow: Mapping[int, Spent], steps: int = 10, *, devices: bool = True
) -> Path:
    """The traces of a job, on GPUs or (gloo) on CPUs; ranks that are not `slow` are alike."""
    lines = [Timeline() for _ in range(RANKS)]
    noise = random.Random(7)
    step = _device_step if devices else _host_step
    for number in range(steps):
        arrived = []
        for rank, line in enumerate(lines):
            spent = slow.get(rank, Spent())
            factor = 1 + spent.jitter * (noise.random() - 0.5)
            arrived.append((line.host_us, *step(line, number, spent, factor)))
        done_us = max(max(host, device) for _, host, device in arrived) + 500
        for line, (begin_us, called_us, came_us) in zip(lines, arrived, strict=True):
            _all_reduce(line, number, called_us, came_us, done_us, devices)
            mark = {"External_id": 10_000 + number}
            length_us = done_us + 20 - begin_us
            line.add("user_annotation", f"ProfilerStep#{number}", begin_us, length_us, **mark)
            line.host_us = line.device_us = done_us + 20
    for rank, line in enumerate(lines):
        (folder / f"rank{rank}.json").write_text(json.dumps(_document(rank, line.events, devices)))
    return folder


def _device_step(line: Timeline, number: int, spent: Spent, factor: float) -> tuple[float, float]:
    """When the host calls the collective of a step, and when its device comes to it."""
    line.named("enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", spent.loader)
    line.named("gc", spent.garbage)
    line.host_us += spent.python * factor
    for turn in range(8):
        linked = number * 100 + turn + 1
        line.add("cuda_runtime", "cudaLaunchKernel", line.host_us, spent.launch, correlation=linked)
        line.host_us += spent.launch
        began_us = max(line.device_us, line.host_us)
        name = MATRIX_KERNEL if turn % 4 else "elementwise_kernel"
        shape = {"grid": [132, turn % 4 + 1, 1], "block": [128, 1, 1], "stream": 7, "device": 0}
        line.add("kernel", name, began_us, spent.kernel * factor, correlation=linked, **shape)
        line.device_us = began_us + spent.kernel * factor
    return line.host_us, line.device_us


def _host_step(line: Timeline, number: int, spent: Spent, factor: float) -> tuple[float, float]:
    line.named("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", spent.loader)
    line.named("gc", spent.garbage)
    line.host_us += spent.python * factor
    for turn in range(8):
        for_us, shape = spent.kernel * factor, [[64, 64 * (turn + 1)], [64, 64]]
        linked = number * 100 + turn
        line.add("cpu_op", "aten::linear", line.host_us, for_us + 4, External_id=linked)
        line.add("cpu_op", "aten::mm", line.host_us + 2, for_us, Input_Dims=shape)
        line.host_us += for_us + 5
    return line.host_us, line.host_us


def _all_reduce(
    line: Timeline, number: int, called_us: float, came_us: float, done_us: float, devices: bool
) -> None:
    """The collective at the end of a step: all members leave it together."""
    if not devices:
        line.add("user_annotation", "gloo:all_reduce", called_us, done_us - called_us)
        return
    said = {"Collective_name": "allreduce", "dtype": "BFloat16", "In_msg_nelems": 1 << 20}
    said |= {"Group_size": RANKS, "Process_Group_Name": "0", "Seq": number + 1}
    said |= {"Process_Group_Ranks": str(list(range(RANKS))), "External_id": number * 100 + 99}
    line.add("cpu_op", "record_param_comms", called_us, 5, **said)
    name, linked = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL", number * 100 + 99
    line.add("kernel", name, came_us, done_us - came_us, External_id=linked, stream=20, device=0)


def _document(rank: int, events: list[dict[str, Any]], devices: bool) -> dict[str, Any]:
    group = {"pg_name": "0", "pg_desc": "default_pg", "pg_size": RANKS, "ranks": [*range(RANKS)]}
    backend = "nccl" if devices else "gloo"
    header = {"backend": backend, "rank": rank, "world_size": RANKS, "pg_config": [group]}
    return {
        "schemaVersion": 1,
        "distributedInfo": header,
        "baseTimeNanoseconds": BASE_NS,
        "traceEvents": events,
    }
