"""How fast profiler traces are read, in CPU time, and in how much memory.

    python benchmarks/profiler_traces.py [megabytes] [ranks]

Each trace has the layout of libkineto and, for each NCCL call and its kernel, 60 events of other
kinds: operators, Python frames, launches and kernels.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import tempfile
from pathlib import Path
from typing import IO, Any

_OTHERS = (
    ("cpu_op", "aten::mm", 25),
    ("python_function", "megatron/core/transformer/attention.py(123): forward", 15),
    ("cuda_runtime", "cudaLaunchKernel", 10),
    ("kernel", "void at::native::vectorized_elementwise_kernel<4, CUDAFunctor_add<float>>", 10),
)


def main(megabytes: int, ranks: int) -> None:
    from oncall.evidence.incident import Incident
    from oncall.importers.detect import load

    with tempfile.TemporaryDirectory() as folder:
        for rank in range(ranks):
            with Path(folder, f"rank{rank}.json").open("w") as out:
                calls = write(out, rank, ranks, megabytes * 10**6)
        before_s = _cpu_s()
        with Incident.empty() as incident:
            load([Path(folder)], incident)
            assert incident.rows("ops") == calls * ranks
        spent_s = _cpu_s() - before_s
    who = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    most_mib = max(resource.getrusage(one).ru_maxrss >> 10 for one in who)
    print(
        f"{ranks} traces of {megabytes} MB, {calls:,} calls each: {spent_s:.1f} s CPU, "
        f"{ranks * megabytes / spent_s:.0f} MB/s, {most_mib} MiB in the largest process "
        f"(load {os.getloadavg()[0]:.0f})"
    )


def write(out: IO[str], rank: int, ranks: int, size: int) -> int:
    """Write a trace of about `size` bytes; returns its calls."""
    members = list(range(ranks))
    group = {"pg_name": "0", "pg_desc": "default_pg", "pg_size": ranks, "ranks": members}
    columns = {"backend": "nccl", "rank": rank, "world_size": ranks, "pg_config": [group]}
    out.write(
        f'{{\n  "schemaVersion": 1,\n  "distributedInfo": {json.dumps(columns)},\n'
        '  "baseTimeNanoseconds": 1759968000000000000,\n  "traceEvents": [\n'
    )
    calls = 0
    while out.tell() < size:
        calls += 1
        at_us = calls * 1000
        for category, name, times in _OTHERS:
            for place in range(times):
                number = calls * 100 + place
                said = {"External id": number, "correlation": number, "stream": 7, "device": 0}
                out.write(_event(category, name, at_us + 10 * place, 8.125, said))
        said = {
            "External id": calls * 100 + 90,
            "Collective name": "allreduce",
            "dtype": "BFloat16",
            "In msg nelems": 1024,
            "Group size": ranks,
            "Process Group Name": "0",
            "Process Group Description": "default_pg",
            "Process Group Ranks": str(members),
            "Seq": calls,
        }
        out.write(_event("cpu_op", "record_param_comms", at_us + 300, 20, said))
        said = {"External id": calls * 100 + 90, "stream": 20, "device": 0}
        out.write(_event("kernel", "ncclDevKernel_AllReduce_Sum_bf16", at_us + 400, 90.5, said))
    out.write('  {"ph": "i", "name": "Record Window End", "ts": 1.0}\n  ],"traceName": "x" }')
    return calls


def _event(category: str, name: str, at_us: float, for_us: float, said: dict[str, Any]) -> str:
    return (
        f'  {{\n    "ph": "X", "cat": "{category}", "name": "{name}", "pid": 7, "tid": 1,\n'
        f'    "ts": {at_us:.3f}, "dur": {for_us:.3f},\n    "args": {{\n      '
        f"{json.dumps(said)[1:-1]}\n    }}\n  }},\n"
    )


def _cpu_s() -> float:
    """CPU time of this process and of those that it waited for."""
    who = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    spent = [resource.getrusage(one) for one in who]
    return sum(one.ru_utime + one.ru_stime for one in spent)


if __name__ == "__main__":
    given = [int(word) for word in sys.argv[1:3]]
    main(*(given + [100, 2][len(given) :]))
