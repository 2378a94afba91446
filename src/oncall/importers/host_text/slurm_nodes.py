"""Nodes that Slurm has lost or takes out of use: `sinfo -R`, `sinfo -N -l`, `sinfo`, `scontrol show
node`. Healthy nodes leave no row: that Slurm can reach a node says little of its GPUs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from oncall.core.errors import UsageError
from oncall.core.nodeset import expand_hosts
from oncall.importers import files
from oncall.importers.bounds import metered
from oncall.importers.host_text.page import Page
from oncall.importers.logs.clock import Clock

SOURCE = "slurm"
_HEADING = re.compile(r"\s*+(?=.*\b(?:NODELIST|HOSTNAMES)\b)(?=.*\b(?:STATE|REASON)\b)[A-Z:_ ]+$")
_WORD = re.compile(r"\S+")
_NODE = re.compile(r"NodeName=(?P<node>\S+) ")
_STATE = re.compile(r"\bState=(?P<state>\S+)")
_REASON = re.compile(r"^(?>.*?\bReason=)(?P<reason>.*?)(?: \[[^@\[\]]*@(?P<at>[\dT:-]+)\])?$")
_STAMP = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d")
# What slurmctld itself gives as the reason where a node is gone, in any state.
_GONE = re.compile(r"[Nn]ot responding|unexpectedly rebooted|no response", re.IGNORECASE)
_DOWN = re.compile(r"down|fail|unk|no_resp|not_resp|perf", re.IGNORECASE)
_DRAINS = re.compile(r"dr(?:ain|ng)|maint", re.IGNORECASE)
_NO_REASON = ("", "none", "(null)", "n/a")
_MOST_NODES = 65_536
_MOST_COLUMNS = 1 << 16


@dataclass(frozen=True)
class _Node:
    name: str
    state: str  # as printed; empty where the listing has none
    reason: str
    line: int
    at_ns: int | None = None


def recognises(head: str) -> bool:
    """Whether a heading of `sinfo` or the first line of a node's description is in it."""
    lines = files.lines(head)[:40]
    return any(_HEADING.match(line) or _NODE.match(line) for line in lines)


def read(lines: list[str], page: Page) -> None:
    """Add an event for each node that is out of use, once."""
    page.note = "Slurm lists no node as down or drained"
    seen: set[str] = set()
    for node in (*_listed(lines), *_described(lines)):
        code = _code(node)
        if code and node.name not in seen and len(seen) < _MOST_NODES:
            seen.add(node.name)
            reason = "" if node.reason.lower() in _NO_REASON else node.reason
            text = reason or f"state {node.state.lower()}"
            row = page.event(SOURCE, code, None, text, node.line)
            row["node"], row["at_ns"] = node.name, node.at_ns


def _code(node: _Node) -> str | None:
    # A star behind the state: the node does not respond.
    if _DOWN.match(node.state) or node.state.endswith("*") or _GONE.search(node.reason):
        return "node_down"
    if _DRAINS.search(node.state) or (not node.state and node.reason):
        return "node_drained"
    return None


def _listed(lines: list[str]) -> Iterator[_Node]:
    """The rows of `sinfo`'s tables, whose cells stand below their headings."""
    spans: dict[str, tuple[int, int]] = {}
    for number, line in enumerate(metered(lines), start=1):
        if _HEADING.match(line):
            spans = _spans(line)
        elif spans and line.strip():
            cells = {name: _cell(line, name, *span) for name, span in spans.items()}
            names = cells.get("NODELIST") or cells.get("HOSTNAMES") or ""
            stamp = _STAMP.search(cells.get("TIMESTAMP", ""))
            at_ns = Clock(None).iso(stamp[0]) if stamp else None
            for name in _expanded(names):
                yield _Node(name, cells.get("STATE", ""), cells.get("REASON", ""), number, at_ns)


def _spans(heading: str) -> dict[str, tuple[int, int]]:
    """Where each column's heading begins and ends. Reasons have several words: all up to the next
    column."""
    found = list(_WORD.finditer(heading))
    nexts = [one.start() for one in found[1:]] + [_MOST_COLUMNS]
    return {
        one[0]: (one.start(), until if one[0] == "REASON" else one.end())
        for one, until in zip(found, nexts, strict=True)
    }


def _cell(line: str, name: str, start: int, end: int) -> str:
    """What stands below a heading: the word that reaches below it, or a whole reason."""
    if name == "REASON":
        return line[start:end].strip()
    found = (one for one in _WORD.finditer(line) if one.start() < end and one.end() > start)
    return next((one[0] for one in found), "")


def _described(lines: list[str]) -> Iterator[_Node]:
    """The nodes of `scontrol show node`, in several lines each or in one (`-o`)."""
    name, state, place = "", "", 0
    for number, line in enumerate(metered(lines), start=1):
        if found := _NODE.match(line):
            if name:
                yield _Node(name, state, "", place)
            name, state, place = found["node"], "", number
        if name and (found := _STATE.search(line)):
            state, place = found["state"], number
        if name and (found := _REASON.search(line.rstrip())):
            at_ns = Clock(None).iso(found["at"]) if found["at"] else None
            yield _Node(name, _of_states(state), found["reason"].strip(), number, at_ns)
            name = ""
    if name:
        yield _Node(name, _of_states(state), "", place)


def _of_states(state: str) -> str:
    """The graver of the states that are joined by `+`: IDLE+DRAIN, MIXED+DRAIN+NOT_RESPONDING."""
    parts = state.split("+")
    return next((one for one in parts if _DOWN.match(one) or one.endswith("*")), None) or next(
        (one for one in parts if _DRAINS.search(one)), parts[0]
    )


def _expanded(names: str) -> tuple[str, ...]:
    try:
        return expand_hosts(names)
    except UsageError:
        return ()
