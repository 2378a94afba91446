"""What the collector costs: CPU share, memory, rows lost, bytes an operation, time to seal.

    python benchmarks/collector.py [--seconds 30] [--load 4000 40000] [--transfers 0 2]
    python benchmarks/collector.py --sources default --ranks 2 8 --load 0 4000 --transfers 0

A driver in this process writes the rings of some ranks at the wanted pace, every operation with
the records of real life (entered, enqueued, described, started, ended, and its transfers); a real
`oncall collect` drains them, with the source `rings` alone or with all that are on by default.
Figures come from /proc and from the sealed shards; the CPU of each source is what the collector
says itself in table `collectors`. What is no source's is the store: commits and seals.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import IO

sys.path.insert(0, str(Path(__file__).parents[1] / "fixtures"))

from ring_writer import RingWriter, operations

from oncall.node.store.catalog import sealed_shards
from oncall.node.store.places import rings_dir, socket_path
from oncall.node.store.reader import Shards, open_shards

TICKS_A_SECOND = 20
WARM_UP_S = 3.0
TICK = os.sysconf("SC_CLK_TCK")


def cpu_s(pid: int) -> float:
    """CPU time of a process so far, user and system."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICK


def rss_mb(pid: int, what: str = "VmHWM") -> float:
    """Peak (VmHWM) or present (VmRSS) memory of a process, MB."""
    status = Path(f"/proc/{pid}/status").read_text()
    found = re.search(rf"{what}:\s+(\d+) kB", status)
    return int(found[1]) / 1000 if found else 0.0


def held(ring: Path) -> IO[bytes]:
    """The lock on its ring that tells that a process lives, as the hooks hold it: else the
    collector must read /proc to know."""
    file = ring.open("r+b")
    fcntl.lockf(file, fcntl.LOCK_EX)
    return file


def drive(rings: list[RingWriter], per_s: int, seconds: float, transfers: int) -> int:
    """Write at the pace of `per_s` operations a second in all; returns how many were written."""
    began = time.monotonic()
    done = [0] * len(rings)
    for tick in range(1, int(seconds * TICKS_A_SECOND) + 1):
        wanted = int(per_s * tick / TICKS_A_SECOND / len(rings))
        for number, ring in enumerate(rings):
            if wanted > done[number]:
                count = wanted - done[number]
                apart_ns = 10**9 // TICKS_A_SECOND // count
                began_ns = time.monotonic_ns() - count * apart_ns
                ring.append(
                    operations(
                        done[number] + 1,
                        count,
                        began_ns=began_ns,
                        apart_ns=apart_ns,
                        transfers=transfers,
                    )
                )
                done[number] = wanted
        time.sleep(max(0.0, began + tick / TICKS_A_SECOND - time.monotonic()))
    return sum(done)


def cpu_by_source(shards: Shards, seconds: float) -> dict[str, float]:
    """The share of one core that each source says it took between the first and the last time
    that it was asked; of the whole collector under `collector`."""
    rows = shards.con.execute(
        "SELECT source, (max(cpu_ns) - min(cpu_ns)) / greatest(max(at_ns) - min(at_ns), 1) "
        "FROM collectors WHERE cpu_ns IS NOT NULL AND at_ns IS NOT NULL GROUP BY source "
        "HAVING max(at_ns) - min(at_ns) > ? ORDER BY 2 DESC",
        [int(seconds * 10**9 / 4)],
    ).fetchall()
    return dict(rows)


def measure(
    per_s: int,
    seconds: float,
    transfers: int,
    every: Mapping[str, str],
    ranks: int,
    sources: str,
) -> None:
    """One run, printed as one line, and in one more where there are several sources."""
    with tempfile.TemporaryDirectory(prefix="oncall-bench-") as folder:
        run, data, log = Path(folder, "run"), Path(folder, "data"), Path(folder, "log")
        rings_dir(run).mkdir(parents=True)
        config = Path(folder, "collect.toml")
        options: dict[str, object] = {**every, "node": "bench"}
        if sources == "rings":
            options["sources"] = ["rings"]
        config.write_text(
            "".join(f"{key} = {json.dumps(value)}\n" for key, value in options.items())
        )
        rings, locks = [], []
        for rank in range(ranks):
            rings.append(RingWriter(rings_dir(run), rank, world_size=ranks))
            rings[-1].communicator(0, 0xBE4C, rank=rank, size=ranks)
            locks.append(held(rings[-1].path))
        with log.open("w") as stderr:
            collector = subprocess.Popen(
                [
                    *(sys.executable, "-m", "oncall.cli.main", "collect", "--config", config),
                    *("--run-dir", run, "--data-dir", data),
                ],
                stderr=stderr,
                env={**os.environ, "MALLOC_ARENA_MAX": "2"},  # as packaging/ runs it
            )
        try:
            while not socket_path(run).exists():
                time.sleep(0.05)
            time.sleep(WARM_UP_S)  # imports, and what is read once
            before_s, began = cpu_s(collector.pid), time.monotonic()
            written = drive(rings, per_s, seconds, transfers)
            share = (cpu_s(collector.pid) - before_s) / (time.monotonic() - began)
            peak = rss_mb(collector.pid)
        finally:
            collector.send_signal(signal.SIGTERM)
            collector.wait()
        text = log.read_text()
        print(*(line for line in text.splitlines() if " info: " not in line), sep="\n", end="")
        seals = [int(ms) for ms in re.findall(r"bytes in (\d+) ms", text)]
        dropped = sum(int(ring.header["dropped"][0]) for ring in rings)
        shards = sealed_shards(data)
        with open_shards(shards) as opened:
            rows = opened.con.execute("SELECT count(*) FROM ops WHERE ended_ns IS NOT NULL")
            ((stored,),) = rows.fetchall()
            by_source = cpu_by_source(opened, seconds)
        size = sum(shard.size_bytes for shard in shards)
        print(
            f"{ranks} ranks, {per_s:>6,} ops/s, {transfers} transfers each: "
            f"{share:6.2%} of one core, "
            f"{peak:4.0f} MB peak, {written - stored} of {written:,} operations lost "
            f"({dropped} records dropped), {size / max(stored, 1):5.1f} bytes an operation, "
            f"seal {max(seals, default=0)} ms at most of {len(seals)}",
            flush=True,
        )
        if sources != "rings":
            each = {name: part for name, part in by_source.items() if name != "collector"}
            store = by_source.get("collector", 0.0) - sum(each.values())
            reported_each = ", ".join(f"{name} {part:.2%}" for name, part in each.items())
            print(f"    {reported_each}; the rest, commits and seals: {store:.2%}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("--load", type=int, nargs="+", default=[4_000, 40_000])
    parser.add_argument("--transfers", type=int, nargs="+", default=[0, 2])
    parser.add_argument("--ranks", type=int, nargs="+", default=[8])
    parser.add_argument("--sources", choices=("rings", "default"), default="rings")
    parser.add_argument("--seal-every", default="10 s")
    parser.add_argument("--commit-every", default=None)
    arguments = parser.parse_args()
    every = {"seal_every": arguments.seal_every}
    if arguments.commit_every:
        every["commit_every"] = arguments.commit_every
    print(f"load of this machine before: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    for transfers in arguments.transfers:
        for ranks in arguments.ranks:
            for per_s in arguments.load:
                measure(per_s, arguments.seconds, transfers, every, ranks, arguments.sources)
    print(f"load of this machine after: {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
