"""Collectives of real processes over soft RoCE, a rank a node, recorded by hooks and collectors.

Each case leaves /control/<case>: a folder of shards a node, and what left its interface
(`wire<rank>.npz`). /control/results.json tells how the processes ended. The tests that judge it
run outside.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from wire import Wire

from oncall.collect.agent import Agent
from oncall.collect.config import Configuration
from oncall.collect.log import Log
from oncall.collect.own_thread import OwnThread
from oncall.collect.recorder import Recorder
from oncall.collect.service import make_folders
from oncall.collect.sources import make_sources
from oncall.shards.digest import prepare
from oncall.units import NS_PER_S

CONTROL = Path("/control")
NATIVE = CONTROL / "native"
RANKS = 4
PATIENCE_S = 120.0


@dataclass(frozen=True)
class Case:
    """A program of the stand-in, and what is broken. It runs to its end, or for so long."""

    command: Sequence[str]
    fault: str = ""
    for_s: float | None = None


# Values of four bytes: of the whole, of a rank's part of it, and to the next rank.
MIX = tuple(
    f"{operation}:{count}"
    for _ in range(3)
    for operation, count in (
        ("all_reduce", 131072),
        ("reduce_scatter", 32768),
        ("all_gather", 32768),
        ("neighbours", 65536),
    )
)
CASES = {
    "collectives": Case(("collectives", *MIX)),
}


def main() -> None:
    wanted = sys.argv[1:] or list(CASES)
    results = {name: run(CONTROL / name, CASES[name]) for name in wanted}
    (CONTROL / "results.json").write_text(json.dumps(results))


def run(folder: Path, case: Case) -> dict[str, Any]:
    began = time.monotonic()
    collectors = [Collector(folder, rank) for rank in range(RANKS)]
    wires = [Wire(f"nic{rank}") for rank in range(RANKS)]
    processes = [start(folder, case, rank) for rank in range(RANKS)]
    collect(collectors, lambda: all(process.poll() is not None for process in processes), case)
    ran_s = time.monotonic() - began
    for rank, wire in enumerate(wires):
        wire.save(folder / f"wire{rank}.npz")
    for collector in collectors:
        collector.finish()
    for process in processes:
        process.kill()
        process.wait()
    ended = [process.returncode for process in processes]
    return {"ended": ended, "ran_s": ran_s, "took_s": time.monotonic() - began}


class Collector:
    """The collector of a node, asked here and not by threads of its own: nothing is still on its
    way when it is told to finish."""

    def __init__(self, folder: Path, rank: int) -> None:
        node = f"node{rank}"
        config = replace(
            Configuration(node=node, data_dir=folder / node, run_dir=run_dir(folder, rank)),
            sources=("rings", "verbs"),
            seal_every_ns=3600 * NS_PER_S,
            keep_free_bytes=0,
        )
        make_folders(config)
        rings, verbs = make_sources(config, {})
        assert isinstance(verbs, OwnThread)
        self._verbs: Any = verbs._source
        self._recorder = Recorder(config, Log(), prepare)
        self.agent = Agent(config, [rings, self._verbs], self._recorder, Log())

    def finish(self) -> None:
        """Seal what was recorded, with every epoch of the last minute."""
        self.agent.step()
        self._recorder.add([self._verbs._recent.between(0, 1 << 60)])
        self.agent.finish()


def collect(collectors: Sequence[Collector], is_over: Callable[[], bool], case: Case) -> None:
    """Have the collectors work until it is over."""
    began = time.monotonic()
    while not is_over() and time.monotonic() - began < (case.for_s or PATIENCE_S):
        for collector in collectors:
            collector.agent.step()
        time.sleep(0.2)


def run_dir(folder: Path, rank: int) -> Path:
    return Path("/tmp", folder.name, f"node{rank}")


def start(folder: Path, case: Case, rank: int) -> subprocess.Popen[bytes]:
    program, *options = case.command
    hooks, verbs = NATIVE / "liboncall_hooks.so", NATIVE / "liboncall_verbs.so"
    environment = {
        "RANK": str(rank),
        "WORLD_SIZE": str(RANKS),
        "LD_PRELOAD": f"{hooks}:{verbs}",
        "NCCL_PROFILER_PLUGIN": str(hooks),
        "NCCL_NET": "IB",
        "NCCL_IB_HCA": f"rxe{rank}",
        "NCCL_IB_GID_INDEX": "1",
        "NCCL_DEBUG": "WARN",
        "STANDIN_NODE": f"node{rank}",
        "STANDIN_FAULT": case.fault,
        "ONCALL_RUN_DIR": str(run_dir(folder, rank)),
        "ONCALL_NODE": f"node{rank}",
        "ONCALL_JOB": folder.name,
    }
    rendezvous = run_dir(folder, 0) / "id"
    return subprocess.Popen(
        [str(NATIVE / "standin" / program), "--unique-id-file", str(rendezvous), *options],
        env={**os.environ, **environment},
        stdout=sys.stderr,
    )


if __name__ == "__main__":
    main()
