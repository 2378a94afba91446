"""PyTorch's watchdog: timeouts of one operation, the status of its process group, dump signals and
the heartbeat monitor. All forms since 1.10; source lines move with each release and are not read.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from math import prod
from typing import Any

from oncall.importers.logs.line import Found, Line, Recogniser, event

_NS_PER_MS = 10**6
_GROUP = re.compile(
    r"\[PG (?:ID (?P<id>\d+) PG GUID )?(?P<guid>[\w.-]+) ?(?:\((?P<name>[^)]{0,80})\))? ?"
    r"Rank (?P<rank>\d+)\]"
)
_GROUP_RANK = re.compile(r"\[Rank (\d+)\]")
_TIMEOUT = re.compile(
    r"Watchdog caught collective operation timeout: ?Work\w+\(\s?(?P<work>.{1,2000}?)\) "
    r"ran for (?P<ran>\d+) milliseconds"
)
_OF_WORK = {
    name: re.compile(pattern)
    for name, pattern in {
        "seq": r"SeqNum=\s?(\d+)",
        "op": r"OpType=\s?(\w+)",
        "elements_in": r"NumelIn=\s?(\d+)",
        "elements_out": r"NumelOut=\s?(\d+)",
        "shape": r"TensorShape=\s?\[([\d, ]*)\]",  # before 2.1, of the output
        "timeout_ms": r"Timeout\(ms\)=\s?(\d+)",
    }.items()
}
_AT_WORK = re.compile(
    r"(?:Timeout at NCCL work|detected by watchdog at work(?: sequence id)?): ?(?P<seq>\d+)"
)
_COUNT = {
    name: re.compile(rf"[Ll]ast {name} (?:NCCL )?work: ?(-?\d+)")
    for name in ("enqueued", "started", "completed")
}
_STARTED_OP = re.compile(r"last started (?:NCCL )?work: ?\d+ \((\w+)\)")
_DUMP = re.compile(
    r"Received a (?:dump|timeout|global timeout) signal (?:due to a collective timeout )?from "
    r"{1,2}(?:this local rank|rank (?P<other>\d+)|another rank)"
)
_STUCK = re.compile(r"watchdog got stuck for (\d+) seconds")
_WORKS = re.compile(r"workMetaList_\.size\(\) ?= ?(\d+)")
# The second closes a pair that another operation of this rank waits for as well.
_GLOO = re.compile(
    r"Timed out waiting (?P<waited_ms>\d+)ms for (?P<op>recv|send) operation to complete|"
    r"Application timeout caused pair closure"
)
_AS_LONG = ("ALLREDUCE", "BROADCAST", "REDUCE")  # what goes in is what comes out
_WHOLE = ("0", "default_pg", "")


def whose(line: Line, text: str) -> dict[str, Any]:
    """The rank, global where the prefix or the default group says so, and the process group."""
    found, alone = _GROUP.search(text), _GROUP_RANK.search(text)
    whole = found is not None and (found["name"] in ("default_pg",) or found["guid"] in _WHOLE)
    place = int(found["rank"]) if found else int(alone[1]) if alone else None
    name = None
    if found is not None:
        name = found["guid"] + (f" ({found['name']})" if found["name"] else "")
    rank = line.rank
    copied = text.lstrip().startswith("what():")
    if rank is None and (whole or found is None) and not copied:
        rank = place
    return {"rank": rank, "comm_rank": place, "process_group": name}


def _counts(text: str) -> dict[str, int | None]:
    """Operations enqueued, started and completed; -1: none yet. 2.3 prints a number without
    meaning where there is none, larger than what was enqueued."""
    counts = {
        name: int(found[1]) if (found := pattern.search(text)) else None
        for name, pattern in _COUNT.items()
    }
    enqueued = counts["enqueued"]
    if enqueued is not None:
        for name in ("started", "completed"):
            if (counts[name] or 0) > enqueued:
                counts[name] = -1
    if counts["started"] == -1:
        counts["started"] = None  # start events were not recorded
    return counts


def _report(line: Line, text: str, kind: str, **columns: Any) -> Found:
    return Found("watchdog_reports", {"kind": kind, **whose(line, text), **columns})


def _work(text: str) -> dict[str, Any]:
    """The operation as the watchdog prints it. 1.x and 2.0 state the shape of its first output."""
    said = {name: found[1] for name, one in _OF_WORK.items() if (found := one.search(text))}
    number = {name: int(said[name]) for name in said.keys() - {"op", "shape"}}
    if "shape" in said:
        elements = prod(int(size) for size in said["shape"].split(",") if size.strip())
        number.setdefault("elements_out", elements)
        if said.get("op") in _AS_LONG:
            number.setdefault("elements_in", elements)
    timeout_ms = number.pop("timeout_ms", None)
    timeout_ns = timeout_ms * _NS_PER_MS if timeout_ms is not None else None
    return {"op": said.get("op"), "timeout_ns": timeout_ns, **number}


def _timeout(line: Line, text: str) -> list[Found]:
    found = _TIMEOUT.search(text)
    if found is None:
        return []
    waited_ns = int(found["ran"]) * _NS_PER_MS
    return [_report(line, text, "timeout", waited_ns=waited_ns, **_work(found["work"]))]


def read(line: Line) -> Sequence[Found]:
    """What one line of the watchdog says."""
    text = line.text
    if "imeout:" in text and (found := _timeout(line, text) or _timeout(line, line.unwrapped)):
        return found
    if dump := _DUMP.search(text):
        whole = text if "completed" in text else line.unwrapped
        kind = "remote_dump" if dump["other"] else "local_dump"
        return [_report(line, text, kind, **_counts(whole))]
    if "work:" in text or "sequence id:" in text:
        whole = text if "completed" in text else line.unwrapped
        if at_work := _AT_WORK.search(whole):
            started = _STARTED_OP.search(whole)
            return [
                _report(
                    line,
                    whole,
                    "status",
                    seq=int(at_work["seq"]),
                    started_op=started[1] if started else None,
                    **_counts(whole),
                )
            ]
    if stuck := _STUCK.search(text):
        return [_report(line, text, "stuck", waited_ns=int(stuck[1]) * 10**9)]
    if works := _WORKS.search(text):
        return [_report(line, text, "heartbeat", pending=int(works[1]))]
    if "induced hang" in text:
        return [event("heartbeat", "gil", **whose(line, text))]
    if gloo := _GLOO.search(text):
        waited_ns = int(gloo["waited_ms"]) * _NS_PER_MS if gloo["waited_ms"] else None
        op = f"gloo {gloo['op'] or 'operation'}"
        return [_report(line, text, "timeout", op=op, timeout_ns=waited_ns)]
    return []


WATCHDOG = Recogniser(
    "watchdog",
    (
        "collective operation timeout",
        "last enqueued",
        "Last enqueued",
        " signal due to a collective timeout",
        "global timeout signal",
        "detected by watchdog at work",
        "Timeout at NCCL work",
        "watchdog got stuck",
        "workMetaList_.size",
        "GIL induced hang",
        "ms for recv operation",
        "ms for send operation",
        "timeout caused pair closure",
    ),
    read,
)
