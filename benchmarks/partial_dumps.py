"""Flight Recorder dumps as they are brought: some missing, clocks apart, untimed, unequally long.

    python partial_dumps.py CASES OUT HOW [--seed N]

CASES is a suite of folders with `fr` and `truth.json`, as `../shared/judge/suite.py` makes; OUT
gets the same cases, changed, for its `score.py`. HOW:

- `one`: the dump of one rank that is no culprit is missing; `host`: those of all such ranks of a
  host without a culprit; `culprit`: those of the culprits of slow jobs, others are left out;
- `few`: only the dumps of one host, any, are there;
- `clocks`: the clock of each host is off by up to 0.8 s; `untimed`: no durations nor device times;
- `ragged`: each ring buffer holds only the last half, to all, of its entries.

A host has eight ranks in a row.
"""

from __future__ import annotations

import argparse
import json
import pickle
import random
import re
import shutil
from pathlib import Path
from typing import Any

HOST = 8
OFF_NS = 800_000_000
SHORTEST = 0.5
CLOCKS = ("time_created_ns", "time_discovered_started_ns", "time_discovered_completed_ns")

Dump = dict[str, Any]


def missing(how: str, ranks: set[int], culprits: set[int], dice: random.Random) -> set[int]:
    """The ranks whose dumps are missing."""
    others = sorted(ranks - culprits)
    if how == "culprit":
        return culprits
    if how == "few":
        host = dice.choice(sorted(ranks)) // HOST
        return {rank for rank in ranks if rank // HOST != host}
    if how == "one":
        return {dice.choice(others)}
    if how == "host":
        hosts = sorted({rank // HOST for rank in others} - {rank // HOST for rank in culprits})
        host = dice.choice(hosts) if hosts else None
        return {rank for rank in others if rank // HOST == host}
    return set()


def clocks(dump: Dump, off_ns: int) -> None:
    for entry in dump["entries"]:
        entry.update({name: entry[name] + off_ns for name in CLOCKS if entry.get(name)})


def untimed(dump: Dump) -> None:
    for entry in dump["entries"]:
        entry.pop("duration_ms", None)
        entry["time_discovered_started_ns"] = None
        if entry["state"] == "started":
            entry["state"] = "scheduled"


def changed(case: Path, out: Path, how: str, seed: int) -> None:
    truth = json.loads((case / "truth.json").read_text())
    dice, culprits = random.Random(f"{seed} {case.name}"), set(truth["culprits"])
    if how == "culprit" and truth["family"] != "slow":
        return
    (out / "fr").mkdir(parents=True)
    shutil.copy(case / "truth.json", out)
    files = {int(re.findall(r"\d+", path.name)[-1]): path for path in (case / "fr").iterdir()}
    gone = missing(how, set(files), culprits, dice)
    off_ns = [dice.randint(-OFF_NS, OFF_NS) for _ in range(max(files) // HOST + 1)]
    for rank in sorted(files.keys() - gone):
        dump = pickle.loads(files[rank].read_bytes())
        if how == "clocks":
            clocks(dump, off_ns[rank // HOST])
        elif how == "untimed":
            untimed(dump)
        elif how == "ragged":
            kept = int(len(dump["entries"]) * dice.uniform(SHORTEST, 1))
            dump["entries"] = dump["entries"][-kept:]
        (out / "fr" / files[rank].name).write_bytes(pickle.dumps(dump, protocol=2))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("cases", type=Path)
    parser.add_argument("out", type=Path)
    ways = ("one", "host", "few", "culprit", "clocks", "untimed", "ragged")
    parser.add_argument("how", choices=ways)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    for truth in sorted(asked.cases.glob("*/truth.json")):
        changed(truth.parent, asked.out / truth.parent.name, asked.how, asked.seed)


if __name__ == "__main__":
    main()
