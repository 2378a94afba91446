"""What the collector's source `gpus` reads of GPUs, idle and busy, beside `nvidia-smi`."""

from __future__ import annotations

import json
import platform
import subprocess
import threading
import time
from pathlib import Path
from statistics import median

from ranks import Worker
from steps import arguments

from oncall.core.units import NS_PER_S
from oncall.node.common.source import Collected, read_clock
from oncall.node.gpu.gpus import GpuSource

SECONDS = 20
SMI = "index,clocks.sm,power.draw,temperature.gpu,utilization.gpu,memory.used"
OURS = ("sm_clock_mhz", "power_w", "temp_c", "utilisation", "memory_used_bytes")


def look(source: GpuSource, out: Path, state: str) -> str:
    """Readings once a second, all stored: our medians, and what nvidia-smi says meanwhile."""
    read: list[Collected] = []
    for _ in range(SECONDS):
        read.append(source.collect(read_clock()))
        time.sleep(1)
    asked = (["nvidia-smi", f"--query-gpu={SMI}", "--format=csv"], ["nvidia-smi", "-q"])
    said = [subprocess.run(one, capture_output=True, check=False, text=True) for one in asked]
    (out / f"nvidia_smi_{state}.txt").write_text("\n".join(one.stdout for one in said))
    (out / f"{state}.json").write_text(json.dumps(read, default=vars, indent=1) + "\n")
    values: dict[tuple[int, str], list[float]] = {}
    for table in (one.columns for each in read for one in each.batches if one.table == "gpus"):
        for column in OURS:
            for gpu, value in zip(table["gpu"], table[column], strict=True):
                values.setdefault((gpu, column), []).extend([] if value is None else [value])
    lines = [
        f"    GPU {gpu}: {column} {f'{median(some):g}' if some else 'not reported'}"
        for (gpu, column), some in sorted(values.items())
    ]
    smi = ["    " + line for line in said[0].stdout.splitlines()]
    return "\n".join([f"{state}, oncall:", "", *lines, "", f"{state}, nvidia-smi:", "", *smi, ""])


def main() -> None:
    asked = arguments()
    source = GpuSource(Path("/"), platform.node(), NS_PER_S)
    section = asked.out / "section.md"
    if not asked.gpus:
        now = source.collect(read_clock())
        said = now.notes + now.problems or ("it reads GPUs here, which a dry run does not show",)
        section.write_text(f"NO GPU IS READ. The source says: {' '.join(said)}\n")
        return
    section.write_text(look(source, asked.out, "idle"))
    with (asked.out / "load.log").open("wb") as log:
        job = Worker(asked.python, asked.gpus, {}, log)
    try:
        job.ask("transformer", 50)  # the first loads what it needs
        over = threading.Event()

        def train() -> None:
            while not over.is_set():
                job.ask("transformer", 50)

        load = threading.Thread(target=train)
        load.start()
        section.write_text(f"{section.read_text()}\n{look(source, asked.out, 'busy')}")
        over.set()
        load.join()
    finally:
        job.end()
        source.close()


if __name__ == "__main__":
    main()
