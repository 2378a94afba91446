"""Torchelastic's agents: which process failed and how, restarts, signals from outside."""

from __future__ import annotations

import re
from collections.abc import Sequence

from oncall.importers.logs.clock import Clock
from oncall.importers.logs.line import Found, Line, Recogniser, event

_FAILED = re.compile(r"failed \(exitcode: (-?\d+)\) local_rank: (\d+) \(pid: (\d+)\)")
_EXIT = re.compile(r"^\s*exitcode\s*: (-?\d+|N/A) \(pid: (\d+)\)")
_RANK = re.compile(r"^\s*rank\s*: (\d+) \(local_rank: (\d+)\)")
_HOST = re.compile(r"^\s*host\s*: (\S+)")
# When the agent saw it end, by its host's clock.
_TIME = re.compile(r"^\s*time\s*: (\d{4}-\d\d-\d\d_\d\d:\d\d:\d\d)")
_ROOT = re.compile(r"Root Cause \(first observed failure\)")
_RECEIVED = re.compile(r"Received (?:Signals\.SIG\w+|(\d+)) death signal|got signal: ?(\d+)")
_ATTEMPT = re.compile(
    r"Worker group FAILED\. (\d+)/(\d+) attempts left|[Rr]estart(?:ing|ed) worker group"
)
_STOPS = {"1": "SIGHUP", "2": "SIGINT", "15": "SIGTERM"}


def _summary(line: Line, code: str, pid: str) -> list[Found]:
    """The block of one failed process: its rank and host are in the lines above."""
    above = line.above(8)
    rank = next((found for text in above if (found := _RANK.search(text))), None)
    host = next((found for text in above if (found := _HOST.search(text))), None)
    time = next((found for text in above if (found := _TIME.search(text))), None)
    first = any(_ROOT.search(text) for text in above)
    return [
        event(
            "exit",
            code,
            rank=int(rank[1]) if rank else None,
            local_rank=int(rank[2]) if rank else None,
            node=host[1] if host else line.node,
            pid=int(pid),
            at_ns=Clock(None).iso(time[1]) if time else line.at_ns,
            number=1 if first else 0,
            text=f"exit code {code}",
        )
    ]


def read(line: Line) -> Sequence[Found]:
    """What an agent says in one line."""
    text = line.text
    if found := _FAILED.search(text):
        return [
            event(
                "exit",
                found[1],
                local_rank=int(found[2]),
                pid=int(found[3]),
                text=f"exit code {found[1]}",
            )
        ]
    if found := _EXIT.search(text):
        return _summary(line, found[1], found[2])
    if found := _RECEIVED.search(text):
        number = found[1] or found[2] or ""
        name = _STOPS.get(number) or (re.search(r"SIG[A-Z]+", text) or ["signal " + number])[0]
        return [event("signal", "agent", text=f"{name} received by an agent", pid=line.pid)]
    if _ATTEMPT.search(text):
        return [event("attempt", "restart", text=text)]
    return []


AGENTS = Recogniser(
    "agents",
    (
        "failed (exitcode",
        "exitcode ",
        "death signal",
        "got signal:",
        "Worker group FAILED",
        "estarting worker group",
        "estarted worker group",
    ),
    read,
)
