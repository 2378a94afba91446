"""The answer to a greeting: the node's versions, the state of its collector, and its jobs."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import duckdb

from oncall import __version__
from oncall.core.errors import OncallError
from oncall.evidence.schema import SCHEMA_VERSION
from oncall.fleet.doctor_images import images_status
from oncall.fleet.endpoint.collector import ask_collector
from oncall.fleet.endpoint.node import LIMITS, MOST_SHARDS, Node, sealed_in_window
from oncall.fleet.endpoint.ring_states import ring_states
from oncall.node.store.answer import jobs_seen, shows
from oncall.node.store.database import reason
from oncall.node.store.reader import Shards, open_shards, read_shards
from oncall.node.store.shard_digest import CANDIDATES
from oncall.node.store.wire import OLDEST_PROTOCOL, PROTOCOL, Request

_NEWEST_SHARDS = 20  # searched for jobs if the request has no start time


def hello(node: Node, request: Request) -> dict[str, Any]:
    """The node's versions, the state of its collector, and its jobs."""
    collector, tail = ask_collector(node, Request("hello"))
    # Listed afterwards: what is sealed while the collector answers is in one of them at least.
    sealed, gaps = sealed_in_window(node, request.until_ns)
    wanted = [s for s in sealed if request.since_ns and s.end_ns >= request.since_ns]
    with open_shards(wanted[-MOST_SHARDS:] or sealed[-_NEWEST_SHARDS:], LIMITS) as shards:
        try:
            found = read_shards(shards, _jobs_in)
        except (OncallError, duckdb.Error) as error:
            # A greeting must succeed: unreadable shards become a gap in it.
            found, gaps = [], [*gaps, f"jobs of the shards: {reason(error)}"]
        gaps = [*map(str, shards.gaps), *gaps]
    jobs = _together(found)
    for job, seen in tail.get("jobs", {}).items() if isinstance(tail.get("jobs"), dict) else ():
        jobs[job] = seen
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
        "gaps": gaps,
        "free_bytes": _free_bytes(node.data),
        "rings": ring_states(node.run) if node.run is not None else None,
        **({"images": images_status()} if request.images and node.run is not None else {}),
        **{key: value for key, value in tail.items() if key == "problems"},
    }


def _jobs_in(shards: Shards) -> dict[str, Any]:
    source = CANDIDATES["ops"] if shows(shards.con, CANDIDATES["ops"]) else "ops"
    return jobs_seen(shards.con, source)


def _together(found: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Merge the jobs of several groups of shards."""
    jobs: dict[str, Any] = {}
    for seen in found:
        for job, new in seen.items():
            old = jobs.get(job, new)
            instants = [each["last_ns"] for each in (old, new) if each["last_ns"] is not None]
            ranks = {*old["ranks"], *new["ranks"]}
            jobs[job] = {
                "last_ns": max(instants, default=None),
                "ranks": sorted(rank for rank in ranks if rank is not None),
            }
    return jobs


def _free_bytes(folder: Path) -> int | None:
    try:
        return shutil.disk_usage(folder).free
    except OSError:
        return None
