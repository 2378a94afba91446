"""Metrics of DLRover's xpu_timer, as its port 18889 prints them: which ranks' kernels do not end.

    XPU_TIMER_COMMON_HANG{ip="10.0.0.1",job_name="j",local_rank="1",pod_name="p",rank="1"} 1

A rank that waits for others has a kernel that does not end, and is said to hang; one that never
launched it is not. So they are timeouts, and the ranks without are those that did not join.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from oncall.core.errors import Unreadable
from oncall.evidence.incident import Incident
from oncall.importers import files
from oncall.importers.bounds import metered
from oncall.importers.recordings import append_recording

KIND = "xpu_timer"
OF_ONE_JOB = True  # in several folders: one a pod

_MARK = b"XPU_TIMER_COMMON_HANG{"
_METRIC = re.compile(r"XPU_TIMER_COMMON_HANG\{(?P<labels>[^{}]{1,2000})\} (?P<value>\d)")
_LABEL = re.compile(r'(?P<name>\b[a-z_]{1,30})="(?P<value>[^"]{0,200})"')
_FACTOR = 10.0  # bytes of memory for each of the text
_LARGEST_RANK = 1 << 17


def recognises(path: Path, head: bytes) -> bool:  # noqa: ARG001 - content alone decides
    """Whether `head` holds metrics of xpu_timer: that of hangs may come after many others."""
    return _MARK in head or b"# TYPE XPU_TIMER_" in head


def read(paths: Sequence[Path], incident: Incident, job: str) -> None:
    """Add the ranks that hang as timeouts, and all ranks with their hosts."""
    ranks: dict[int, str | None] = {}
    for path in sorted(paths):
        hung: list[tuple[int, int]] = []
        problem, written_ns = None, None
        try:
            written_ns = files.modified_ns(path)
            text = files.text(path, _FACTOR)
            for place, line in enumerate(metered(text.splitlines()), start=1):
                if found := _METRIC.match(line):
                    labels = {one["name"]: one["value"] for one in _LABEL.finditer(found["labels"])}
                    number = labels.get("rank", "")
                    if number.isdecimal() and int(number[:9]) < _LARGEST_RANK:
                        ranks[int(number[:9])] = _host(labels)
                        hung += [(place, int(number[:9]))] * (found["value"] != "0")
        except Unreadable as error:
            problem = str(error)
        said = {"job": job, "path": str(path), "attempt": 1, "kind": "timeout", "op": "a kernel"}
        rows = ({"line": place, "rank": rank} for place, rank in hung)
        incident.append_rows("watchdog_reports", rows, **said)
        note = None if hung or problem else "xpu_timer says of no rank that it hangs"
        append_recording(
            incident, job, KIND, path, len(hung), problem, [note], written_ns=written_ns
        )
    if ranks:
        known = sorted(ranks)
        # Of a job whose ranks are listed without a gap, all are.
        if known == list(range(len(known))):
            incident.append("jobs", {"job": job, "world_size": [len(known)]})
        hosts = [ranks[rank] and str(ranks[rank]) for rank in known]
        incident.append("ranks", {"job": job, "rank": known, "node": hosts})


def _host(labels: dict[str, str]) -> str | None:
    named = (labels.get("ip"), labels.get("pod_name"))
    return next((name for name in named if name and name != "NOT_SET"), None)
