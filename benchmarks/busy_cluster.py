"""Incidents of an independent generator amid the noise of a busy cluster.

    python benchmarks/busy_cluster.py IN OUT --seed S [--level LEVEL] [--only TEXT] [--step N]
    python benchmarks/busy_cluster.py sound OUT --seed S --count 50 [--level LEVEL]

A case is a folder with `incident.oncall` and `truth.json`. The first form copies cases of
IN and adds noise, to faults as well. The second has the generator make fault-free jobs and adds
noise; it needs ../shared/judge_machines, or the folder that JUDGE_MACHINES names.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import zlib
from importlib import import_module
from pathlib import Path
from typing import Any
from unittest.mock import patch

import duckdb
import numpy as np
from busy_noise import (
    PER_LEVEL,
    Draws,
    Readings,
    add_to_gpus,
    add_to_hosts,
    add_to_pings,
    add_to_ports,
    add_to_processes,
)
from busy_tables import Case, gain, say_nothing

PROJECT = Path(__file__).resolve().parent.parent
JUDGE = Path(os.environ.get("JUDGE_MACHINES", PROJECT.parent / "shared" / "judge_machines"))
# How likely a rank stalls in a task, and for what share of a forward pass: timers and monitoring
# of hosts, or garbage collection by turns. All stalls together cost less than 1 % of an iteration.
STALLS = ((2e-3, 0.1), (3e-4, 0.5))
STALLS_SIGMA = 0.8  # of the logarithm, over hosts


def add_noise(folder: Path, seed: int, level: str) -> None:
    """Adds noise to the case in `folder`: the same for the same name, seed and level."""
    if level == "none":
        return
    truth = json.loads((folder / "truth.json").read_text())
    rng = np.random.default_rng([seed, zlib.crc32(folder.name.encode())])
    draws = Draws(rng, level)
    with duckdb.connect(str(folder / "incident.oncall")) as con:
        case = Case.of(con)
        gained = gain(case, truth["kind"], draws)
        corrected = say_nothing(case, draws)
        if nics := Readings(con, "nics", ("node", "nic", "port")):
            add_to_ports(nics, draws, corrected.nics)
            nics.write()
        if gpus := Readings(con, "gpus", ("node", "gpu")):
            add_to_gpus(gpus, draws, corrected.gpus)
            gpus.write()
        if hosts := Readings(con, "hosts", ("node",)):
            add_to_hosts(hosts, draws, corrected.hosts)
            hosts.write()
        if processes := Readings(con, "host_processes", ("job", "rank")):
            add_to_processes(processes, draws)
            processes.write()
        if pings := Readings(con, "pings", ("node", "nic", "target_node", "target_nic", "kind")):
            unprobed = add_to_pings(pings, draws)
            pings.write()
            con.execute("DELETE FROM pings WHERE list_contains(?, rowid)", [unprobed.tolist()])
    truth["noise"] = {"level": level, "seed": seed, "gained": gained}
    (folder / "truth.json").write_text(json.dumps(truth, indent=1))


def add_to_all(source: Path, out: Path, seed: int, level: str, only: str, step: int) -> None:
    """Copies each `step`-th case whose name contains `only`, with noise."""
    cases = sorted(path.parent for path in source.glob("*/truth.json"))
    for case in [c for c in cases if only in c.name][::step]:
        folder = out / case.name
        folder.mkdir(parents=True, exist_ok=True)
        for name in ("incident.oncall", "truth.json"):
            shutil.copyfile(case / name, folder / name)
        add_noise(folder, seed, level)
        print(folder, flush=True)


def _generator() -> list[tuple[Any, str]]:
    """The generator's modules of cases, and the class of jobs that each runs."""
    if not (JUDGE / "generate.py").exists():
        sys.exit(f"The generator is not in {JUDGE}. Set JUDGE_MACHINES to its folder.")
    os.environ.setdefault("ONCALL_PROJECT", str(PROJECT))
    sys.path.insert(0, str(JUDGE))
    return [(import_module("pulse_cases"), "Job"), (import_module("tfd_cases"), "Placed")]


def with_stalls(job: Any, rng: np.random.Generator) -> Any:
    """The class `job`, whose ranks stall for moments, those of some hosts more often."""
    chance, share = STALLS[int(rng.integers(len(STALLS)))]

    class Stalled(job):  # type: ignore[misc]
        def __init__(self, config: Any, faults: Any, job_rng: Any) -> None:
            ranks = range(config.N)
            often = chance * np.exp(STALLS_SIGMA * rng.standard_normal(config.N // config.gpn + 1))
            faults.stall = {r: (often[r // config.gpn], share * config.fwd) for r in ranks}
            super().__init__(config, faults, job_rng)

    return Stalled


def make_sound(out: Path, seed: int, count: int, level: str) -> None:
    """`count` fault-free jobs of all kinds in turn, each with a seed of its own."""
    rng = np.random.default_rng([seed, 1])
    kinds = [
        (module, job, n, experiment)
        for module, job in _generator()
        for n, experiment in enumerate(module.experiments(seed))
        if experiment[0] == "healthy"
    ]
    order = rng.permutation(len(kinds))
    for k in range(count):
        module, job, n, experiment = kinds[order[k % len(kinds)]]
        stalled = with_stalls(getattr(module, job), np.random.default_rng([seed, 2, k]))
        with patch.object(module, job, stalled):
            evidence, truth = module.build(n, experiment, seed * 1000 + k)
        truth["id"] = "-".join([truth["part"], f"{k:03d}", *(str(x) for x in experiment if x)])
        folder = out / truth["id"]
        folder.mkdir(parents=True, exist_ok=True)
        evidence.save(folder / "incident.oncall")
        (folder / "truth.json").write_text(json.dumps(truth, indent=1, default=float))
        add_noise(folder, seed, level)
        print(folder, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("source", help="a folder of cases, or `sound`: fault-free ones are made")
    parser.add_argument("out", type=Path)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--level", choices=["none", *PER_LEVEL], default="busy")
    parser.add_argument("--only", default="", help="cases whose name contains this")
    parser.add_argument("--step", type=int, default=1, help="each so many-th case")
    parser.add_argument("--count", type=int, default=50, help="how many are made")
    o = parser.parse_args()
    if o.source == "sound":
        make_sound(o.out, o.seed, o.count, o.level)
    else:
        add_to_all(Path(o.source), o.out, o.seed, o.level, o.only, o.step)


if __name__ == "__main__":
    main()
