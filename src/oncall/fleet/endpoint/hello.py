"""The answer to a greeting: the node's versions, the state of its collector, and its jobs."""

from __future__ import annotations

import shutil
import time
from collections import Counter, defaultdict
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any

import duckdb

from oncall import __version__
from oncall.core.errors import OncallError
from oncall.evidence.schema import SCHEMA_VERSION
from oncall.fleet.doctor_images import images_status
from oncall.fleet.endpoint.node import (
    MOST_SHARDS,
    Node,
    greet_collector,
    sealed_in_window,
)
from oncall.fleet.endpoint.sealed import SealedAnswers
from oncall.node.rings.ring import RingReader
from oncall.node.rings.unrecorded import in_words, unrecorded
from oncall.node.store.places import rings_dir
from oncall.node.store.wire import OLDEST_PROTOCOL, PROTOCOL, Request

# The state of the rings on a node: which processes live, their jobs, and dropped records. Consumes
# no records.

_MOST_PROBLEMS = 4
_MOST_LOOKED_AT = 4_096  # anybody may create files there


def ring_states(run: Path) -> dict[str, Any]:
    """Counts of rings `alive`, `ended` and `died`, records `dropped` by those alive, the recording
    ranks by job, processes that are not recorded and why, and unreadable rings."""
    states: Counter[str] = Counter(alive=0, ended=0, died=0, dropped=0)
    jobs: dict[str, list[int]] = defaultdict(list)
    problems: list[str] = []
    for path in sorted(islice(rings_dir(run).glob("*.ring"), _MOST_LOOKED_AT)):
        try:
            with RingReader.open(path, consume=False) as ring:
                state = "alive" if ring.alive else "ended" if ring.closed else "died"
                states[state] += 1
                if state == "alive":
                    states["dropped"] += ring.dropped
                    rank = ring.header.rank
                    jobs[ring.header.job] += [] if rank is None else [rank]
        except (OncallError, OSError) as error:
            problems.append(str(error))
    more = len(problems) - _MOST_PROBLEMS
    shown = problems[:_MOST_PROBLEMS] + ([f"and {more} more rings"] if more > 0 else [])
    return {
        **states,
        "jobs": {job: sorted(ranks) for job, ranks in jobs.items()},
        "unrecorded": list(in_words(unrecorded(rings_dir(run))))[:_MOST_PROBLEMS],
        "problems": shown,
    }


def pulse(run: Path | None, job: str | None) -> int:
    """The records that the ranks of a job on this node have written so far, or lost."""
    records = 0
    for path in islice(rings_dir(run).glob("*.ring"), _MOST_LOOKED_AT) if run is not None else ():
        with suppress(OncallError, OSError), RingReader.open(path, consume=False) as ring:
            records += ring.head + ring.dropped if ring.header.job == job else 0
    return records


_NEWEST_SHARDS = 20  # searched for jobs if the request has no start time


def hello(node: Node, request: Request, kept: SealedAnswers) -> dict[str, Any]:
    """The node's versions, the state of its collector, and its jobs; `kept` is what sealed shards
    answered before."""
    collector, tail = greet_collector(node)
    rings = ring_states(node.run) if node.run is not None else None
    # Listed afterwards: what is sealed while the collector answers is in one of them at least.
    sealed, gaps = sealed_in_window(node, request.until_ns)
    wanted = [s for s in sealed if request.since_ns and s.end_ns >= request.since_ns]
    jobs, unread = kept.jobs(wanted[-MOST_SHARDS:] or sealed[-_NEWEST_SHARDS:])
    for job, seen in tail.get("jobs", {}).items() if isinstance(tail.get("jobs"), dict) else ():
        jobs[job] = seen
    for job, ranks in rings["jobs"].items() if rings else ():  # its processes live, and record
        ranks = sorted({*ranks, *jobs.get(job, {"ranks": []})["ranks"]})
        jobs[job] = {"last_ns": time.time_ns(), "ranks": ranks}
    return {
        "protocol": [OLDEST_PROTOCOL, PROTOCOL],
        "oncall_version": __version__,
        "duckdb_version": duckdb.__version__,
        "schema_version": SCHEMA_VERSION,
        "jobs": jobs,
        "collector": collector,
        "shards": {
            "count": len(sealed),
            "oldest_ns": min((shard.start_ns for shard in sealed), default=None),
            "newest_ns": max((shard.end_ns for shard in sealed), default=None),
        },
        "gaps": [*unread, *gaps],
        "free_bytes": _free_bytes(node.data),
        "rings": rings,
        **({"images": images_status()} if request.images and node.run is not None else {}),
        **{key: value for key, value in tail.items() if key == "problems"},
    }


def _free_bytes(folder: Path) -> int | None:
    try:
        return shutil.disk_usage(folder).free
    except OSError:
        return None
