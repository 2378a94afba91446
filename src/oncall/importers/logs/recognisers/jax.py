"""JAX's coordination service: tasks that a barrier lacks or whose heartbeats ended, and a
coordinator that does not answer."""

from __future__ import annotations

import re
from collections.abc import Sequence

from oncall.importers.logs.line import Found, Line, Recogniser, event

_TASKS = re.compile(r"/job:\w+(?:/replica:\d+)?/task:(\d{1,6})\b")
_REACHED = re.compile(r"tasks that reached the barrier: (\d{1,6})/(\d{1,6})")
_MISSING = re.compile(r"timed out task names:|stopped sending heartbeats|[Hh]eartbeat timeout")
_COORDINATOR = re.compile(
    r"JAX distributed service on (?P<peer>\[?[\w.:-]+?\]?):\d+\b|"
    r"distributed\.initialize\(\W?(?:coordinator_address=\W?)?(?P<given>[\w.-]+):\d+|"
    r"last error: .{0,200}?ipv[46]:%?(?P<last>[\w.-]+):\d+"
)
_MOST_ABOVE = 60  # lines: it says every half minute that it still waits
_MOST_TASKS = 12
_MOST_OF_MESSAGE = 3  # lines of it before its list
# The barrier that every process passes before the first computation.
_START = re.compile(r"^(?>.*?[Bb]arrier).*(?:PjRT_Client_Connect|cluster_register|[Ii]nit)")


def read(line: Line) -> Sequence[Found]:
    """What one line says of tasks and their coordinator."""
    text = line.text
    if reached := _REACHED.search(text):
        return [event("world", None, number=int(reached[2]))]
    if found := _MISSING.search(text):
        # Before a list of those that did not come it names the first that did.
        listed = found[0].endswith("names:")
        tasks = _TASKS.findall(text[found.end() :] if listed else text)
        for below in line.below(_MOST_TASKS):
            if not (named := _TASKS.findall(below)):
                break
            tasks += named
        if _START.search(" ".join([*reversed(line.above(_MOST_OF_MESSAGE)), text])):
            return [event("init", "absent", rank=int(task), text=text) for task in tasks]
        return [event("desync", "absent", rank=int(task), text=text) for task in tasks]
    if "RegisterTask" in text:
        lines = (text, *line.above(_MOST_ABOVE))
        known = next((found for one in lines if (found := _COORDINATOR.search(one))), None)
        peer = next(filter(None, known.groups())).strip("[]") if known else None
        said = f"no answer from the coordinator{f' {peer}' if peer else ''}"
        return [event("init", "connect", peer_host=peer, text=said)]
    return []


JAX = Recogniser(
    "jax",
    (
        "timed out task names:",
        "stopped sending heartbeats",
        "eartbeat timeout",
        "reached the barrier:",
        "CoordinationService/RegisterTask",
    ),
    read,
)
