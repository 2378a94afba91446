"""What `ps` prints with the state of processes and what they wait in: `ps -eo pid,stat,wchan,cmd`.

A process that sleeps uninterruptibly (state D) waits for the kernel; where its call is that of a
file system, for storage. The processes blocked in one file system are one event.
"""

from __future__ import annotations

import re
from collections import defaultdict

from oncall.importers import files
from oncall.importers.bounds import metered
from oncall.importers.host_text.page import Page

_HEADING = re.compile(r"(?=.*\bPID\b)(?=.*\bS(?:TAT)?\b)(?=.*\bWCHAN\b).*\b(?:COMMAND|CMD)\s*$")
# How functions of file systems begin, in the kernel.
_FILE_SYSTEMS = {
    "NFS": re.compile(r"nfs|rpc_"),
    "Lustre": re.compile(r"ll_|cl_|lov_|osc_|ptlrpc|ldlm|mdc_"),
    "GPFS": re.compile(r"gpfs|cxi|mmfs"),
    "Ceph": re.compile(r"ceph"),
    "FUSE": re.compile(r"fuse|request_wait_answer"),
    "BeeGFS": re.compile(r"FhgfsOps|beegfs"),
    "the disk": re.compile(r"io_schedule|blk_|ext4|xfs|jbd2|wait_on_page|folio_wait|submit_bio"),
}
_MOST_NAMED = 4


def recognises(head: str) -> bool:
    """Whether it begins with the heading of such a list."""
    first = next((line for line in files.lines(head) if line.strip()), "")
    return len(first) < 200 and _HEADING.match(first) is not None


def read(lines: list[str], page: Page) -> None:
    """Add an event for each file system that processes wait in."""
    page.note = "no process of the list waits for storage"
    columns: list[str] = []
    waiting: dict[str, list[tuple[int, str, str]]] = defaultdict(list)
    for place, line in enumerate(metered(lines), start=1):
        if not columns:
            columns = line.split()
            continue
        row = dict(zip(columns, line.split(None, len(columns) - 1), strict=False))
        state, call = row.get("STAT") or row.get("S") or "", row.get("WCHAN", "")
        system = next((name for name, calls in _FILE_SYSTEMS.items() if calls.match(call)), None)
        if state.startswith("D") and system is not None:
            waiting[system].append((place, row.get("PID", ""), call))
    for system, found in waiting.items():
        calls = ", ".join(dict.fromkeys(call for _, _, call in found))
        pids = ", ".join(pid for _, pid, _ in found[:_MOST_NAMED])
        more = f" and {len(found) - _MOST_NAMED} more" if len(found) > _MOST_NAMED else ""
        named = f"process {pids}" if len(found) == 1 else f"{len(found)} processes ({pids}{more})"
        text = f"{named} in state D, in {calls}"
        page.event("ps", "storage_waits", system, text, found[0][0])
