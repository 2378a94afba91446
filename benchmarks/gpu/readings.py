"""What the collector's source `gpus` reads of GPUs, idle and busy, beside `nvidia-smi`.

readings.py OUT --python TORCH_PYTHON --gpus N
"""

from __future__ import annotations

import json
import platform
import subprocess
import threading
import time
from pathlib import Path
from statistics import median
from typing import Any

from ranks import Worker
from steps import arguments

from oncall.core.units import NS_PER_S
from oncall.node.common.source import read_clock
from oncall.node.gpu.gpus import GpuSource

SECONDS = 20
# Ours, and nvidia-smi's name (`nvidia-smi --help-query-gpu`) with what one of its units is of ours.
BOTH = {
    "sm_clock_mhz": ("clocks.sm", 1.0),
    "power_w": ("power.draw", 1.0),
    "temp_c": ("temperature.gpu", 1.0),
    "utilisation": ("utilization.gpu", 0.01),
    "memory_used_bytes": ("memory.used", float(1 << 20)),
}


def ours(source: GpuSource, seconds: int) -> list[dict[str, Any]]:
    """Everything that the source reports, once a second."""
    read: list[dict[str, Any]] = []
    for _ in range(seconds):
        now = source.collect(read_clock())
        tables = [{"table": one.table, **one.columns} for one in now.batches]
        read.append({"batches": tables, "problems": now.problems, "notes": now.notes})
        time.sleep(1 if seconds > 1 else 0)
    return read


def theirs() -> list[list[str]]:
    """A row a GPU in the order of BOTH, after its index."""
    names = ",".join(["index", *(name for name, _ in BOTH.values())])
    command = ["nvidia-smi", f"--query-gpu={names}", "--format=csv,noheader,nounits"]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return [[cell.strip() for cell in line.split(",")] for line in said.splitlines()]


def look(source: GpuSource, out: Path, name: str) -> list[str]:
    """Readings of both for a while; a row a GPU and value of their medians."""
    smi: list[list[list[str]]] = []
    over = threading.Event()

    def watch() -> None:
        while not over.is_set():
            smi.append(theirs())
            over.wait(1)

    watcher = threading.Thread(target=watch)
    watcher.start()
    read = ours(source, SECONDS)
    over.set()
    watcher.join()
    stored = {"oncall": read, "nvidia_smi": smi, "nvidia_smi_columns": BOTH}
    (out / f"{name}.json").write_text(json.dumps(stored, indent=1, default=str) + "\n")
    full = subprocess.run(["nvidia-smi", "-q"], capture_output=True, text=True, check=False)
    (out / f"nvidia_smi_{name}.txt").write_text(full.stdout)
    rows = [one for each in read for one in each["batches"] if one["table"] == "gpus"]
    return [
        f"| {name} | {gpu} | {column} | {of_ours(rows, gpu, column)} | {of_theirs(smi, gpu, at)} |"
        for gpu in rows[0]["gpu"]
        for at, column in enumerate(BOTH, 1)
    ]


def of_ours(rows: list[dict[str, Any]], gpu: int, column: str) -> str:
    values = [each[column][each["gpu"].index(gpu)] for each in rows]
    known = [value for value in values if value is not None]
    return f"{median(known):.6g}" if known else "not reported"


def of_theirs(smi: list[list[list[str]]], gpu: int, at: int) -> str:
    one = list(BOTH.values())[at - 1][1]
    values = [row[at] for each in smi for row in each if row[0] == str(gpu)]
    try:
        return f"{median(float(value) * one for value in values):.6g}"
    except ValueError:  # `[N/A]`
        return values[0]


def main() -> None:
    asked = arguments()
    source = GpuSource(Path("/"), platform.node(), NS_PER_S)
    if not asked.gpus:
        (now,) = ours(source, 1)
        said = " ".join([*now["notes"], *now["problems"]])
        section = f"NO GPU: the source `gpus` was asked once and says: {said}\n"
        (asked.out / "section.md").write_text(section)
        return
    lines = ["| state | GPU | value, median | oncall | nvidia-smi |", "|---|---|---|---|---|"]
    lines += look(source, asked.out, "idle")
    (asked.out / "section.md").write_text("\n".join(lines) + "\n")
    job = Worker(asked.python, asked.gpus, "nccl", {}, asked.out / "load.log")
    over = threading.Event()

    def load() -> None:
        while not over.is_set():
            job.ask("transformer", 50)

    try:
        job.ask("transformer", 50)
        loader = threading.Thread(target=load)
        loader.start()
        lines += look(source, asked.out, "busy")
        over.set()
        loader.join()
    finally:
        job.end()
        source.close()
    (asked.out / "section.md").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
