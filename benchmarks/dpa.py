"""What the measurement on the NIC costs: instructions an event, events a second, memory.

    python benchmarks/dpa.py [riscv] [host] [memory]

Prints Markdown. `riscv` needs `make riscv-packages`; it counts instructions one by one under qemu.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from statistics import median

REPOSITORY = Path(__file__).parents[1]
sys.path.insert(0, str(REPOSITORY / "tests/dpa"))  # the build for RISC-V is shared with its tests

import riscv  # noqa: E402

ROUNDS = 5
EVENTS = 4_000_000
PATTERNS = {  # of dpa/riscv/play.c: in words, and events to count instructions of
    "same": ("one queue pair", 1000),
    "interleaved": ("2,000 queue pairs in turn", 4000),
    "spanning": ("each event crosses from one epoch into the next", 1000),
    "batches": ("each event is the first of its millisecond", 1000),
    "opening": ("each event is its queue pair's first", 1000),
}
PULSE_EVENTS_PER_S = 800_000  # of a DPA thread (Pulse 4.3)
MIB = 2**20


def main() -> None:
    """Run the sections asked for, or all."""
    sections: dict[str, Callable[[Path], None]] = {
        "riscv": print_riscv,
        "host": print_host,
        "memory": print_memory,
    }
    with tempfile.TemporaryDirectory() as folder:
        for name in sys.argv[1:] or sections:
            sections[name](Path(folder))


def print_riscv(folder: Path) -> None:
    """Instructions an event, of RV64 built by gcc."""
    if why := riscv.missing(riscv.LINUX_GCC, riscv.QEMU):
        print(f"RISC-V skipped: {why}\n")
        return
    play = riscv.build_play(folder)
    print("| events | instructions an event | divisions | fences |")
    print("|---|---|---|---|")
    for pattern, (words, events) in PATTERNS.items():
        counted = riscv.count(play, pattern, events)
        print(
            f"| {words} | {counted.instructions:.0f} | {counted.divisions:.2g} "
            f"| {counted.fences:.2g} |",
            flush=True,
        )
    print()


def print_host(folder: Path) -> None:
    """Events a second on one core of this machine, CPU time, the median of several runs."""
    play = folder / "play_host"
    compile_c(play, REPOSITORY / "dpa/riscv/play.c", REPOSITORY / "dpa/measurement.c")
    print("| events | ns an event | million events/s |")
    print("|---|---|---|")
    for pattern in ("same", "interleaved", "spanning"):
        seconds = median(cpu_seconds(play, pattern) for _ in range(ROUNDS))
        ns = seconds / EVENTS * 1e9
        print(f"| {PATTERNS[pattern][0]} | {ns:.1f} | {1000 / ns:.0f} |", flush=True)
    print()


def cpu_seconds(play: Path, pattern: str) -> float:
    """CPU time of EVENTS events, start-up taken off."""
    return cpu_seconds_of(play, pattern, EVENTS + 1) - cpu_seconds_of(play, pattern, 1)


def cpu_seconds_of(play: Path, pattern: str, events: int) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([play, pattern, str(events)], check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime


def print_memory(folder: Path) -> None:
    """What the NIC must give, and what 2,000 flows fill of it in a second."""
    program, source = folder / "sizes", folder / "sizes.c"
    source.write_text(
        '#include <stdio.h>\n#include "measurement.h"\nint main(void) {\n'
        "struct measurement *m = 0;\n"
        'printf("%zu %zu %zu %zu %u %u\\n", sizeof *m, sizeof m->table, sizeof m->shards[0].batches'
        " * SHARDS, sizeof(struct batch), BATCH_EPOCHS, EPOCH_NS); }\n"
    )
    compile_c(program, source)
    said = subprocess.run([program], capture_output=True, text=True, check=True).stdout
    whole, table, batches, batch, epochs, epoch_ns = map(int, said.split())
    windows = 10**9 / (epochs * epoch_ns)
    filled = 2000 * windows * batch
    pulse = 2**24 * 4 + 2000 * 10**9 / epoch_ns * 2
    print("| of the NIC's memory | MiB |")
    print("|---|---|")
    print(f"| table of queue pair numbers | {table / MIB:.0f} |")
    print(f"| batches of epochs | {batches / MIB:.0f} |")
    print(f"| flows and the rest | {(whole - table - batches) / MIB:.1f} |")
    print(f"| together | {whole / MIB:.0f} |")
    print(
        f"| used by 2,000 flows that never pause for 1 s | {(whole - batches + filled) / MIB:.0f} |"
    )
    print(f"| Pulse, by its formula (4.3) | {pulse / MIB:.0f} |")


def compile_c(program: Path, *sources: Path) -> None:
    """An optimised program of this machine."""
    command = ["cc", "-std=gnu11", "-O2", *riscv.INCLUDES, *sources, "-o", program]
    subprocess.run(command, check=True)


if __name__ == "__main__":
    main()
