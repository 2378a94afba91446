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

from guest_sizes import MIX, RANKS, ROUNDS
from wire import Wire

from oncall.core.units import NS_PER_S
from oncall.node.agent.agent import Agent
from oncall.node.agent.recorder import Recorder
from oncall.node.agent.service import make_folders, make_sources
from oncall.node.common.config import Configuration
from oncall.node.common.log import Log
from oncall.node.common.own_thread import OwnThread
from oncall.node.store.shard_digest import ShardDigests
from oncall.node.traffic.segmenting import LEARN_NS, SETTLE_NS

CONTROL = Path("/control")
PATIENCE_S = 120.0
# Until a node knows whose its queue pairs are, and all epochs of an operation are there.
SETTLED_S = (LEARN_NS + SETTLE_NS) / NS_PER_S


@dataclass(frozen=True)
class Case:
    """A program of the stand-in, and what is broken: in it, or on the way to the switch. It runs
    to its end, or for so long."""

    command: Sequence[str]
    fault: str = ""
    disturb: str = ""  # a queueing discipline of nic1, as tc has it
    for_s: float | None = None


CHECKED = tuple(f"{name}:{count}" for _ in range(ROUNDS) for name, count in MIX.items())
TRAIN = (
    *("train", "--dp", "4", "--layers", "1", "--micro-batches", "1", "--distributed-optimizer"),
    *("--compute-us", "20000", "--gradient-bytes", "262144", "--quiet"),
)
CASES = {
    "collectives": Case(("collectives", *CHECKED)),
    "slow_receiver": Case((*TRAIN, "--steps", "16"), "slow-gpu,rank=2,op=13,delay_us=100000"),
    "slow_network": Case((*TRAIN, "--steps", "16"), disturb="netem rate 4mbit limit 1000"),
    "stalled_rank": Case(TRAIN, "stall-gpu,rank=2,comm=dp,op=21,channel=0,step=3", for_s=20),
}


def main() -> None:
    wanted = sys.argv[1:] or list(CASES)
    results = {name: run(CONTROL / name, CASES[name]) for name in wanted}
    (CONTROL / "results.json").write_text(json.dumps(results))


def run(folder: Path, case: Case) -> dict[str, Any]:
    began = time.monotonic()
    collectors = [Collector(folder, rank) for rank in range(RANKS)]
    wires = [Wire(f"nic{rank}") for rank in range(RANKS)]
    if case.disturb:
        subprocess.run(f"tc qdisc add dev nic1 root {case.disturb}".split(), check=True)
    processes = [start(folder, case, rank) for rank in range(RANKS)]
    collect(
        collectors,
        lambda: all(process.poll() is not None for process in processes),
        case.for_s or PATIENCE_S,
    )
    ran_s = time.monotonic() - began
    for rank, wire in enumerate(wires):
        wire.save(folder / f"wire{rank}.npz")
    collect(collectors, lambda: False, SETTLED_S)
    for collector in collectors:
        collector.finish()
    for process in processes:
        process.kill()
        process.wait()
    if case.disturb:
        subprocess.run(["tc", "qdisc", "del", "dev", "nic1", "root"], check=True)
    ended = [process.returncode for process in processes]
    return {"ended": ended, "ran_s": ran_s, "took_s": time.monotonic() - began}


class Collector:
    """The collector of a node, asked here and not by threads of its own: nothing is still on its
    way when it has to finish."""

    def __init__(self, folder: Path, rank: int) -> None:
        node = f"node{rank}"
        config = replace(
            Configuration(node=node, data_dir=folder / node, run_dir=run_dir(folder, rank)),
            sources=("rings", "verbs", "traffic"),
            seal_every_ns=3600 * NS_PER_S,
            keep_free_bytes=0,
        ).with_source("traffic", every_ns=3 * NS_PER_S)
        make_folders(config)
        sources = make_sources(config, {})
        bare = [each._source if isinstance(each, OwnThread) else each for each in sources]
        rings: Any = bare[0]
        rings._recent = None  # posts tell every byte: what proxies tell of the same is left out
        self._traffic: Any = bare[-1]
        self._recorder = Recorder(config, Log(), ShardDigests().prepare)
        self.agent = Agent(config, bare, self._recorder, Log())

    def finish(self) -> None:
        """Seal what was recorded, with every epoch of the last minute."""
        self.agent.step()
        self._traffic._round_at_ns = 0  # what is over has settled
        self.agent.step()
        self._recorder.add([self._traffic._recent.between(0, time.time_ns())])
        self.agent.finish()


def collect(collectors: Sequence[Collector], is_over: Callable[[], bool], most_s: float) -> None:
    """Have the collectors work until it is over."""
    began = time.monotonic()
    while not is_over() and time.monotonic() - began < most_s:
        for collector in collectors:
            collector.agent.step()
        time.sleep(0.2)


def run_dir(folder: Path, rank: int) -> Path:
    return Path("/tmp", folder.name, f"node{rank}")


def start(folder: Path, case: Case, rank: int) -> subprocess.Popen[bytes]:
    program, *options = case.command
    hooks, verbs = CONTROL / "liboncall_hooks.so", CONTROL / "liboncall_verbs.so"
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
        "ONCALL_RUN_DIR_ON_DISK": "1",
        "ONCALL_NODE": f"node{rank}",
        "ONCALL_JOB": folder.name,
    }
    rendezvous = run_dir(folder, 0) / "id"
    return subprocess.Popen(
        [str(CONTROL / "standin" / program), "--unique-id-file", str(rendezvous), *options],
        env={**os.environ, **environment},
        stdout=sys.stderr,
    )


if __name__ == "__main__":
    main()
