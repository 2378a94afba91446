"""What the ring costs: the writer in CPU ns a record, the reader in records a second.

    python benchmarks/ring.py [--rounds 21]

Prints Markdown. Needs a C compiler; both sides are the shipped code. The writer's loop runs beside
an empty loop and one that only reads the clock, in the same process and round, so that the
machine's load cancels out in the ratios.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

from oncall.node.rings.ring import RingReader
from oncall.node.rings.ring_layout import HEADER

REPOSITORY = Path(__file__).parents[1]
TAIL_AT = HEADER.fields["tail"][1] if HEADER.fields else 0
SLOTS = 1 << 20
THREADS = (1, 2, 8)
DRAIN_SIZES = (100, 1000, 10_000, 65_536)


def main() -> None:
    """Build the writer, measure both sides, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=21)
    rounds = parser.parse_args().rounds
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder) / "ring_cost"
        hooks = REPOSITORY / "hooks"
        sources = [REPOSITORY / "benchmarks/ring_cost.c", *sorted(hooks.glob("ring*.c"))]
        command = ["cc", "-std=gnu11", "-O2", f"-I{hooks}", *sources, "-o", program, "-pthread"]
        subprocess.run(command, check=True)
        print_writer(program, Path(folder), rounds)
        print_reader(Path(folder), rounds)


def print_writer(program: Path, folder: Path, rounds: int) -> None:
    """CPU ns of a turn of each loop, the median over rounds."""
    print("| threads | empty loop | with the clock | with a record | record less clock |")
    print("|---|---|---|---|---|")
    for threads in THREADS:
        said = subprocess.run(
            [program, str(threads), str(SLOTS // threads), str(rounds)],
            env={
                "ONCALL_RUN_DIR": str(folder),
                "ONCALL_RUN_DIR_ON_DISK": "1",
                "ONCALL_RING_RECORDS": str(SLOTS),
            },
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        loops = zip(*(map(float, line.split()) for line in said.splitlines()), strict=True)
        empty, clock, record = (median(loop) for loop in loops)
        print(
            f"| {threads} | {empty:.2f} ns | {clock:.1f} ns | {record:.1f} ns "
            f"| {record - clock:.1f} ns |"
        )


def print_reader(folder: Path, rounds: int) -> None:
    """Drains of what the writer left, several sizes: the header's tail is put back each time."""
    [path, *_] = sorted((folder / "rings").iterdir())
    print("\n| records a drain | a drain, median | records a second |")
    print("|---|---|---|")
    with RingReader.open(path) as ring, path.open("r+b", buffering=0) as file:
        head = ring.head
        for size in DRAIN_SIZES:
            seconds = []
            for _ in range(rounds):
                os.pwrite(file.fileno(), (head - size).to_bytes(8, "little"), TAIL_AT)
                start = time.perf_counter()
                assert len(ring.drain(size)) == size
                seconds.append(time.perf_counter() - start)
            typical = median(seconds)
            print(f"| {size:,} | {typical * 1e6:,.0f} µs | {size / typical / 1e6:.1f} million |")
        boards = [timed(ring.communicators), timed(ring.transfers)]
    print(
        f"\nBoards of 1,024 communicators and 4,096 transfers: {boards[0]:.0f} µs and "
        f"{boards[1]:.0f} µs a look. Load {os.getloadavg()[0]:.1f}, {os.cpu_count()} cores."
    )


def timed(read: Callable[[], object], times: int = 21) -> float:
    """The median time of a call, in µs."""
    taken = []
    for _ in range(times):
        start = time.perf_counter()
        read()
        taken.append((time.perf_counter() - start) * 1e6)
    return median(taken)


if __name__ == "__main__":
    main()
