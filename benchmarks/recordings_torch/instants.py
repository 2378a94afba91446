"""Dumps of recorded jobs as they would have been at other instants, running or stopped.

    python instants.py RECORDINGS OUT --seed N [--each N] [--apart-ms N]

A dump of a running job holds hundreds of calls of each rank with their times, so that what a dump
at any earlier instant would have held is known: the calls until then, of which those are over that
all members had made. From each sound or slow job in RECORDINGS (`record.py`) that many dumps are
made at random instants while it ran; and as many of the job as if, from a random instant, one rank
made no further call: the others go on until each waits for a call that is never made. The folders
are as those of `record.py`, without logs and stacks, and are judged by `score.py`.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import pickle
import random
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

MS, S = 10**6, 10**9
EARLIEST = 0.4  # of the recorded time: what is before that is the dump's history
WRITTEN_MS = (1, 40)  # a dump is on disk so long after it was taken
LOOKED_S = (6.0, 60.0)  # a stopped job is looked at so long after its last call

Entry = dict[str, Any]
Call = tuple[Any, ...]  # what all members of a group call together: group and number


class Recorded:
    """The dumps of one job, and when each rank made each call."""

    def __init__(self, folder: Path) -> None:
        self.dumps = {
            int(path.name.rsplit("_", 1)[1]): pickle.loads(path.read_bytes())
            for path in sorted(folder.iterdir())
        }
        self.called: dict[Call, dict[int, int]] = defaultdict(dict)
        self.blocking: dict[tuple[int, int], bool] = {}
        for rank, dump in self.dumps.items():
            for entry in dump["entries"]:
                self.called[call_of(entry)].setdefault(rank, entry["time_created_ns"])
        members: dict[Any, set[int]] = defaultdict(set)
        for (group, *_), made in self.called.items():
            members[group] |= set(made)
        self.members = members
        for rank, dump in self.dumps.items():
            entries = dump["entries"]
            for entry, following in itertools.pairwise(entries):
                # A host that makes its next call only when all have made this one waits for it.
                self.blocking[rank, entry["record_id"]] = following[
                    "time_created_ns"
                ] >= self.over_ns(call_of(entry))
        times = [[e["time_created_ns"] for e in d["entries"]] for d in self.dumps.values()]
        self.since_ns, self.until_ns = max(map(min, times)), min(map(max, times))

    def over_ns(self, call: Call) -> float:
        """When the last member made it; never, where one is not recorded with it."""
        made = self.called[call]
        return max(made.values()) if set(made) == self.members[call[0]] else float("inf")

    def at(self, limits: Mapping[int, float], looked_ns: Mapping[int, float]) -> Iterator[Entry]:
        """Each rank's dump, looked at then, if no rank made a call after its limit."""
        for rank, dump in self.dumps.items():
            kept = []
            for entry in dump["entries"]:
                if entry["time_created_ns"] > min(limits[rank], looked_ns[rank]):
                    break
                call = call_of(entry)
                made = self.called[call]
                all_made = set(made) == self.members[call[0]] and all(
                    at <= limits[one] for one, at in made.items()
                )
                over = max(made.values()) <= looked_ns[rank] and all_made
                old = min(made.values()) <= self.since_ns  # of others the rings may have lost it
                kept.append(entry | {"retired": over or old})
            yield dump | {"entries": kept, "pg_status": status_of(dump, kept)}

    def stopped(self, rank: int, from_ns: int) -> dict[int, float]:
        """After which instant each rank makes no call, if one makes none from then on."""
        limits: dict[int, float] = dict.fromkeys(self.dumps, float("inf"))
        limits[rank] = from_ns
        while True:
            before = dict(limits)
            for one, dump in self.dumps.items():
                for entry in dump["entries"]:
                    made = self.called[call_of(entry)]
                    if entry["time_created_ns"] > limits[one]:
                        break
                    never = any(at > limits[other] for other, at in made.items())
                    if never and self.blocking.get((one, entry["record_id"]), True):
                        limits[one] = entry["time_created_ns"]
                        break
            if limits == before:
                return limits


def call_of(entry: Entry) -> Call:
    return tuple(entry["process_group"]), entry["op_id"], entry["collective_seq_id"]


def status_of(dump: Entry, kept: list[Entry]) -> dict[str, Any]:
    """What gloo had counted by then: all calls of a group, and those that are over."""
    status = {group: dict(one) for group, one in dump["pg_status"].items()}
    for one in status.values():
        one["last_enqueued_collective"] = one["last_completed_collective"] = -1
    for entry in kept:
        one = status.get(str(entry["pg_id"]), {})
        one["last_enqueued_collective"] = entry["op_id"]
        if entry["retired"]:
            one["last_completed_collective"] = entry["op_id"]
    return {group: one for group, one in status.items() if one["last_enqueued_collective"] >= 0}


def write(
    place: Path,
    job: Recorded,
    limits: dict[int, float],
    looked: dict[int, float],
    truth: Entry,
) -> None:
    draw = random.Random(place.name)
    (place / "fr").mkdir(parents=True, exist_ok=True)
    for rank, dump in zip(job.dumps, job.at(limits, looked), strict=True):
        file = place / "fr" / f"comm_lib_trace_rank_{rank}"
        file.write_bytes(pickle.dumps(dump, protocol=2))
        written_ns = int(looked[rank] + draw.uniform(*WRITTEN_MS) * MS)
        os.utime(file, ns=(written_ns, written_ns))
    (place / "truth.json").write_text(json.dumps(truth, indent=1) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("recordings", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--each", type=int, default=6)
    # Ranks of PyTorch look every 20 ms whether a dump is wanted; what asks them may take longer.
    parser.add_argument("--apart-ms", type=float, default=20)
    chosen = parser.parse_args()
    for place in sorted(chosen.recordings.iterdir()):
        if not (place / "truth.json").exists():
            continue
        truth = json.loads((place / "truth.json").read_text())
        named = place / "fr"
        if truth["class"] not in ("none", "slow") or not named.is_dir():
            continue
        job = Recorded(named)
        draw = random.Random(f"{chosen.seed} {place.name}")
        first = job.since_ns + EARLIEST * (job.until_ns - job.since_ns)
        for number in range(chosen.each):
            at_ns = draw.uniform(first, job.until_ns)
            never = dict.fromkeys(job.dumps, float("inf"))
            looked = {one: at_ns + draw.uniform(0, chosen.apart_ms) * MS for one in job.dumps}
            write(chosen.out / f"{place.name}-runs{number}", job, never, looked, truth)
            rank = draw.choice(list(job.dumps))
            limits = job.stopped(rank, int(draw.uniform(first, job.until_ns)))
            last = max(min(at, job.until_ns) for at in limits.values())
            hang = truth | {"class": "hang", "fault": "no further call", "ranks": [rank]}
            if all(at < job.until_ns for at in limits.values()):
                at_ns = last + draw.uniform(*LOOKED_S) * S
                looked = {one: at_ns + draw.uniform(0, chosen.apart_ms) * MS for one in job.dumps}
                write(chosen.out / f"{place.name}-stops{number}", job, limits, looked, hang)


if __name__ == "__main__":
    main()
