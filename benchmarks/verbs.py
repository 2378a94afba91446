"""What the verbs shim costs: CPU ns a call, hooked less not; and what its collector source takes.

    python benchmarks/verbs.py [--rounds 31]

Prints Markdown. Needs a C compiler and the hooks as they are installed (`make native`). libibverbs
is replaced by one whose device does nothing. Bare and hooked calls take turns within one process,
so that the machine's load cancels out in their difference; medians over rounds.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import tempfile
import time
from pathlib import Path
from statistics import median, quantiles

import numpy as np

from oncall import native
from oncall.node.traffic.epochs import EPOCH_NS, spans, spread
from oncall.node.traffic.recent_traffic import Flow, RecentTraffic
from oncall.node.verbs.windows import Runs, windows

REPOSITORY = Path(__file__).parents[1]
CALLS = 20_480
KINDS = (
    "a post of one request",
    "a post of a chain of four",
    "an empty poll",
    "a poll of one completion",
    "a request, posted and completed",
)
TARGET = {0: "50 ns"}
REQUESTS, FLOWS = 400_000, 64  # a second of 400 Gb/s in chunks of 128 KiB


def main() -> None:
    """Build, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=31)
    rounds = parser.parse_args().rounds
    with tempfile.TemporaryDirectory() as folder:
        lines = measure(build(Path(folder)), rounds)
    print("| call | bare | hooked | the shim, median (quartiles) | target |")
    print("|---|---|---|---|---|")
    for at, kind in enumerate(KINDS):
        bare, hooked = (median(line[2 * at + way] for line in lines) for way in (0, 1))
        low, middle, high = quantiles((line[2 * at + 1] - line[2 * at] for line in lines), n=4)
        print(
            f"| {kind} | {bare:.1f} ns | {hooked:.1f} ns "
            f"| {middle:.0f} ns ({low:.0f} to {high:.0f}) | {TARGET.get(at, '')} |"
        )
    print("\n| what the collector does of it | CPU time |\n|---|---|")
    for what, spent_ns in collector().items():
        print(f"| {what} | {spent_ns:.0f} ns a request |")


def build(folder: Path) -> Path:
    """The program that measures, and the libibverbs it is linked with, in `folder`."""
    source, include = REPOSITORY / "benchmarks/verbs_cost.c", f"-I{REPOSITORY / 'hooks'}"
    library, program = folder / "libibverbs.so.1", folder / "verbs_cost"
    compile_: list[str | Path] = ["cc", "-std=gnu11", "-O2", include, source]
    versions = folder / "versions"
    versions.write_text("IBVERBS_1.1 { global: ibv_*; bare_context; local: *; };\n")
    shared = ["-DLIBRARY", "-shared", "-fPIC", "-Wl,-soname,libibverbs.so.1", "-o", library]
    subprocess.run([*compile_, *shared, f"-Wl,--version-script={versions}"], check=True)
    subprocess.run([*compile_, library, "-o", program], check=True)
    return program


def measure(program: Path, rounds: int) -> list[tuple[float, ...]]:
    """Each round's figures; the first, in which everything is cold, is left out."""
    with tempfile.TemporaryDirectory() as run_dir:
        said = subprocess.run(
            [program, str(CALLS), str(rounds + 1)],
            env={
                **os.environ,
                "LD_PRELOAD": str(native.verbs_library()),
                "LD_LIBRARY_PATH": str(program.parent),
                "ONCALL_RUN_DIR": run_dir,
                "ONCALL_RUN_DIR_ON_DISK": "1",
                "ONCALL_VERBS_REQUESTS": str(1 << 22),
            },
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        ).stdout
    return [tuple(map(float, line.split())) for line in said.splitlines()][1:]


def collector() -> dict[str, float]:
    """CPU ns a request of turning records into epochs and windows."""
    generator = np.random.default_rng(1)
    each = REQUESTS // FLOWS
    flow = np.repeat(np.arange(FLOWS), each)
    took_ns = generator.integers(50_000, 270_000, (FLOWS, each))  # its share of the link
    completed = (time.time_ns() + np.cumsum(took_ns, axis=1)).ravel()
    posted = completed - 4 * took_ns.ravel()
    bytes_, none = np.full(len(flow), 131_072), np.zeros(len(flow), np.int64)
    began = time.process_time_ns()
    sent = spans(flow, posted, completed, bytes_, none)
    epochs = spread(sent)
    pairs = [Flow("wr", "n", "mlx5_0", qpn, "j", 0) for qpn in range(FLOWS)]
    RecentTraffic(2**24).add(pairs, epochs, int(completed.max()))
    spread_ns = time.process_time_ns() - began
    began = time.process_time_ns()
    ones = np.ones(len(flow), np.int64)
    windows(Runs(flow, posted, completed, ones, bytes_, 4 * ones))
    windows_ns = time.process_time_ns() - began
    per_epoch = len(epochs.flow) / len(flow)
    return {
        f"bytes an epoch of {EPOCH_NS // 1000} µs ({per_epoch:.1f} epochs a request)": spread_ns
        / len(flow),
        "windows of 50": windows_ns / len(flow),
    }


if __name__ == "__main__":
    main()
