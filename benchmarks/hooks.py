"""What the hooks cost: CPU ns a NCCL call, hooked less not, and a profiler event, without and with
another plugin behind ours.

    python benchmarks/hooks.py [--rounds 31]

Prints Markdown. Needs a C compiler and the hooks as they are installed (`make native`). NCCL is
replaced by a library whose functions return at once. Unhooked and hooked calls take turns within
one process, so that the machine's load cancels out in their difference; medians over rounds.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import tempfile
from pathlib import Path
from statistics import median, quantiles

from oncall import native

REPOSITORY = Path(__file__).parents[1]
THREADS = (1, 2, 8)
CALLS = 20_000
RECORDS = 1 << 20
TARGETS_NS = {1: 150, 8: 400}
EVENTS_A_STEP = 5  # begun, three waits, over


def main() -> None:
    """Build, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=31)
    rounds = parser.parse_args().rounds
    with tempfile.TemporaryDirectory() as folder:
        program = build(Path(folder))
        measured = {threads: measure(program, threads, rounds) for threads in THREADS}
        chained = measure(program, 1, rounds, str(program.parent / "other.so"))
    print("| threads | call | hooked call | the hook, median (quartiles) | target |")
    print("|---|---|---|---|---|")
    for threads, lines in measured.items():
        bare, hooked = (median(line[at] for line in lines) for at in (0, 1))
        low, middle, high = quantiles((line[1] - line[0] for line in lines), n=4)
        target = f"{TARGETS_NS[threads]} ns" if threads in TARGETS_NS else ""
        print(
            f"| {threads} | {bare:.1f} ns | {hooked:.1f} ns "
            f"| {middle:.0f} ns ({low:.0f} to {high:.0f}) | {target} |"
        )
    events = [
        [median(line[at] for line in lines) for at in (2, 3)] for lines in (measured[1], chained)
    ]
    steps, operations = zip(*events, strict=True)
    columns: dict[str, list[float]] = {
        f"a step of a transfer, {EVENTS_A_STEP} events": list(steps),
        "one event of a step": [step / EVENTS_A_STEP for step in steps],
        "an operation from call to end, two channels, no transfers": list(operations),
    }
    print("\n| what the plugin receives | CPU time | with another plugin chained |\n|---|---|---|")
    for what, (alone, both) in columns.items():
        print(f"| {what} | {alone:.0f} ns | {both:.0f} ns |")


def build(folder: Path) -> Path:
    """The program that measures, and the NCCL it is linked with, in `folder`."""
    source, include = REPOSITORY / "benchmarks/hooks_cost.c", f"-I{REPOSITORY / 'hooks'}"
    library, program = folder / "libnccl.so.2", folder / "hooks_cost"
    compile_: list[str | Path] = ["cc", "-std=gnu11", "-O2", include, source]
    shared: list[str | Path] = [
        "-DLIBRARY",
        "-shared",
        "-fPIC",
        "-Wl,-soname,libnccl.so.2",
        "-o",
        library,
    ]
    subprocess.run([*compile_, *shared], check=True)
    other: list[str | Path] = ["-DOTHER", "-shared", "-fPIC", "-o", folder / "other.so"]
    subprocess.run([*compile_, *other], check=True)
    subprocess.run([*compile_, library, "-ldl", "-pthread", "-o", program], check=True)
    return program


def measure(program: Path, threads: int, rounds: int, other: str = "") -> list[tuple[float, ...]]:
    """Each round's figures; the first, in which everything is cold, is left out. `other`: a plugin
    that is chained."""
    hooks = str(native.hooks_library())
    with tempfile.TemporaryDirectory() as run_dir:
        said = subprocess.run(
            [program, hooks, str(threads), str(CALLS // threads), str(rounds + 1)],
            env={
                **os.environ,
                "LD_PRELOAD": hooks,
                "LD_LIBRARY_PATH": str(program.parent),
                "ONCALL_RUN_DIR": run_dir,
                "ONCALL_RUN_DIR_ON_DISK": "1",
                "ONCALL_RING_RECORDS": str(RECORDS),
                "ONCALL_CHAIN_PROFILER": other,
            },
            capture_output=True,
            text=True,
            check=True,
        ).stdout
    lines = [tuple(map(float, line.split())) for line in said.splitlines()]
    return lines[1:]


if __name__ == "__main__":
    main()
