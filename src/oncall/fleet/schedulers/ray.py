"""The nodes of a Ray job, by Ray's own state command; they are then reached over SSH."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from oncall.core.errors import UsageError
from oncall.fleet.inventory import check_host
from oncall.fleet.schedulers.tool import run_json_tool

_ID = re.compile(r"[A-Za-z0-9_-]{1,128}")
_MOST_ROWS = "10000"  # the most that Ray's server returns; its own default is 100


def ray_hosts(job: str) -> tuple[str, ...]:
    """The addresses of the nodes on which the actors of a job run or ran.

    `job` is the job's id (01000000) or its submission id (raysubmit_...). Raises UsageError.
    """
    if not _ID.fullmatch(job):
        raise UsageError(f"ray:{job}: not the id of a Ray job, such as 01000000 or raysubmit_...")
    jobs = [one for one in _list("jobs") if job in (one.get("job_id"), one.get("submission_id"))]
    if not jobs:
        raise UsageError(f"ray:{job}: no such job on this Ray cluster (see `ray list jobs`)")
    job_id = jobs[0].get("job_id")
    if not job_id:
        raise UsageError(f"ray:{job}: it has not started: {jobs[0].get('status')}")
    actors = _list("actors", "--filter", f"job_id={job_id}")
    used = {one.get("node_id") for one in actors if one.get("node_id")}
    nodes = [one for one in _list("nodes") if one.get("node_id") in used]
    hosts = tuple(dict.fromkeys(str(one.get("node_ip")) for one in nodes if one.get("node_ip")))
    if not hosts:
        raise UsageError(f"ray:{job}: none of its actors is on a node that Ray still knows")
    for host in hosts:
        check_host(host)
    return hosts


def _list(what: str, *options: str) -> Iterable[Mapping[str, Any]]:
    words = ("ray", "list", what, "--format", "json", "--limit", _MOST_ROWS, *options)
    found = run_json_tool(words)
    return [one for one in found if isinstance(one, Mapping)] if isinstance(found, list) else []
