"""Collectives of real processes over soft RoCE, a rank a node, recorded by hooks and collectors.

Each case leaves /control/<case>: a folder of shards a node, and what left its interface
(`wire<node>.npz`). /control/results.json tells how the processes ended. The tests that judge it
run outside.
"""

from __future__ import annotations

import json
import os
import signal
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
from oncall.collect.service import build, make_folders
from oncall.units import NS_PER_S

CONTROL = Path("/control")
NATIVE = CONTROL / "native"
RANKS = 4
PATIENCE_S = 60.0


@dataclass(frozen=True)
class Case:
    """A program of the stand-in, and what is broken."""

    command: Sequence[str]
    fault: str = ""
    stop: int | None = None  # the rank that is stopped once traffic flows
    for_s: float | None = None  # to its end, or for so long


SIZES = (262144, 262144, 65536, 262144)  # values of four bytes
MIX = [
    f"{name}:{count}"
    for count in SIZES
    for name in ("all_reduce", "reduce_scatter", "all_gather", "neighbours")
]
CASES = {
    "collectives": Case(("collectives", *MIX)),
}


def main() -> None:
    results: dict[str, Any] = {}
    for name, case in CASES.items():
        began = time.monotonic()
        results[name] = run(CONTROL / name, case) | {"took_s": time.monotonic() - began}
    (CONTROL / "results.json").write_text(json.dumps(results))


def run(folder: Path, case: Case) -> dict[str, Any]:
    folder.mkdir()
    agents = [collector(folder, rank) for rank in range(RANKS)]
    wires = [Wire(f"nic{rank}") for rank in range(RANKS)]
    processes = [start(folder, case, rank) for rank in range(RANKS)]
    step(agents, lambda: all(process.poll() is not None for process in processes), case.for_s)
    for process in processes:
        process.kill()
        process.wait()
    for rank, wire in enumerate(wires):
        wire.save(folder / f"wire{rank}.npz")
    for agent in agents:
        agent.step()
        agent.finish()
    return {"ended": [process.returncode for process in processes]}


def run_dir(folder: Path, rank: int) -> Path:
    return Path("/tmp", folder.name, f"node{rank}")


def collector(folder: Path, rank: int) -> Agent:
    """The collector of a node."""
    node = f"node{rank}"
    config = replace(
        Configuration(node=node, data_dir=folder / node, run_dir=run_dir(folder, rank)),
        sources=("rings", "verbs"),
        verbs_all_epochs=True,
        seal_every_ns=3600 * NS_PER_S,
        keep_free_bytes=0,
    )
    make_folders(config)
    agent, _ = build(config, Log())
    return agent


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


def step(agents: Sequence[Agent], is_over: Callable[[], bool], for_s: float | None) -> None:
    """Have the collectors work until it is over."""
    began = time.monotonic()
    while not is_over() and (for_s is None or time.monotonic() < began + for_s):
        if time.monotonic() > began + PATIENCE_S:
            print("waited in vain", file=sys.stderr)
            return
        for agent in agents:
            agent.step()
        time.sleep(0.2)


if __name__ == "__main__":
    main()
