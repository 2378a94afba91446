"""How fast a large job log is read: MB/s of one core, and memory.

    python benchmarks/logs.py [--megabytes 1000] [--interesting 0.1]

The log is synthetic: ordinary lines of a training job, `--interesting` per cent of them lines that
a recogniser reads (steps, NCCL's setup, a timeout at the end).
"""

from __future__ import annotations

import argparse
import resource
import tempfile
import time
from pathlib import Path

from oncall.evidence.incident import Incident
from oncall.importers import detect

ORDINARY = (
    "2026-05-20 10:07:39,051 - root - DEBUG - loaded shard {n} of the index, {m} "
    "documents, cache hit\n",
    "[rank{r}]: ../lib/python3.12/site-packages/foo/bar.py:{n}: UserWarning: this op "
    "is slow on CPU\n",
    "{r}: INFO:filelock:Lock {m} released on /root/.triton/autotune/kernel_{n}.lock\n",
    "  {n} tokens packed into {m} sequences of 8192, padding 0.03, worker {r} of 64 is ready\n",
    "gpu{r}:2201:2260 [{r}] NCCL INFO Channel {r}/0 : {r}[0] -> 1[1] via P2P/CUMEM/read\n",
)
READ = (
    "[default7]: iteration {n}/ 100000 | consumed samples: {m} | elapsed time per "
    "iteration (ms): 2210.4 | lm loss: 2.1 |\n",
    "gpu{r}:2201:2260 [{r}] NCCL INFO NET/IB : Using [0]mlx5_0:1/IB [RO]; OOB eth0:10.0.0.{r}<0>\n",
)


def write(path: Path, megabytes: int, interesting: float) -> None:
    """A log of about that size; the same blocks over and over, as the reader keeps no line."""
    lines = []
    every = max(1, round(100 / interesting)) if interesting else 0
    for n in range(200_000):
        pattern = READ[n // every % 2] if every and n % every == 0 else ORDINARY[n % 5]
        lines.append(pattern.format(n=n, m=n * 7919, r=n % 64))
    block = "".join(lines).encode()
    with path.open("wb") as file:
        for _ in range(max(1, megabytes * 10**6 // len(block))):
            file.write(block)
        for rank in range(63):
            file.write(
                f"[rank{rank}]:[E816 01:45:40.183009389 ProcessGroupNCCL.cpp:607] [Rank {rank}] "
                "Watchdog caught collective operation timeout: WorkNCCL(SeqNum=44, "
                "OpType=ALLREDUCE, NumelIn=68, NumelOut=68, Timeout(ms)=600000) ran for 600012 "
                "milliseconds before timing out.\n".encode()
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=int, default=1000)
    parser.add_argument("--interesting", type=float, default=0.1, help="per cent of the lines")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "job.log")
        write(path, given.megabytes, given.interesting)
        size = path.stat().st_size
        with Incident.empty() as incident:
            began, cpu = time.perf_counter(), time.process_time()
            detect.load([path], incident, "job")
            wall_s, cpu_s = time.perf_counter() - began, time.process_time() - cpu
            rows = incident.rows("log_events") + incident.rows("watchdog_reports")
            steps = incident.rows("logged_steps")
    peak_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    megabytes = size / 1e6
    print(f"{megabytes:,.0f} MB, {given.interesting} % of the lines of interest")
    print(f"{megabytes / cpu_s:,.0f} MB/s of CPU time")
    print(
        f"{megabytes / wall_s:,.0f} MB/s of time; {rows} rows, {steps} steps; {peak_mib:,.0f} MiB"
    )


if __name__ == "__main__":
    main()
