"""A log larger than memory, through a pipe: MB/s and memory of `oncall diagnose -`.

    python benchmarks/logs_stream.py [--megabytes 10000] [--interesting 0.1]

The log of benchmarks/logs.py is written to the command's standard input, not to disk; `oncall`
itself keeps a copy there while it reads.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import logs


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=int, default=10_000)
    parser.add_argument("--interesting", type=float, default=0.1, help="per cent of the lines")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "block.log")
        logs.write(path, 1, given.interesting)  # one block, and the timeouts of the end
        block, _, rest = path.read_bytes().partition(b"[rank0]:[E816")
        end = b"[rank0]:[E816" + rest
    began = time.perf_counter()
    command = [str(Path(sys.executable).with_name("oncall")), "diagnose", "-"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None and process.stdout is not None
        written = 0
        while written < given.megabytes * 10**6:
            written += process.stdin.write(block)
        process.stdin.write(end)
        process.stdin.close()
        print(process.stdout.readline().decode().strip())
        process.stdout.read()
    wall_s = time.perf_counter() - began
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s = used.ru_utime + used.ru_stime
    print(f"{written / 1e6:,.0f} MB, {given.interesting} % of the lines of interest")
    print(
        f"{written / 1e6 / cpu_s:,.0f} MB/s of CPU time, {written / 1e6 / wall_s:,.0f} MB/s of time"
    )
    print(f"{used.ru_maxrss / 1024:,.0f} MiB at most; exit code {process.returncode}")


if __name__ == "__main__":
    main()
