"""What `kubectl describe`, `kubectl get pods` and events say of a pod, which they name apart."""

from __future__ import annotations

import re
from collections.abc import Sequence

from oncall.importers.logs.line import Found, Line, Recogniser, event

_OF_POD = re.compile(r"^Name:\s+(\S+)")
_REASON = re.compile(r"^\s+Reason:\s+OOMKilled\b")
_LISTED = re.compile(r"^(?:[a-z0-9-]+\s+)?(?P<pod>[a-z0-9][\w.-]*)\s+\d+/\d+\s+OOMKilled\b")
_EVICTED = re.compile(
    r"\bEvicted\s+pod/(?P<of>\S+)\s+(?P<why>.+)|"
    r"^(?:[a-z0-9-]+\s+)?(?P<pod>[a-z0-9][\w.-]*)\s+\d+/\d+\s+Evicted\b"
)
_MEMORY = re.compile(r"resource: memory|memory usage exceeds")
_NOT_READY = re.compile(
    r"\bNodeNotReady\s+node/(?P<of>\S+)|\bNode (?P<name>\S+) status is now: NodeNotReady|"
    r"\bNodeNotReady\b"
)
_UNSCHEDULED = re.compile(r"\bFailedScheduling\s+(?:pod/)?(?P<pod>[a-z0-9][\w.-]*)\s+(?P<why>.+)")
_PLACED = re.compile(r"\b(?:Scheduled|Started|Pulled)\s")
_MOST_ABOVE = 120  # lines of a description before the state of its containers
_MOST_BELOW = 200  # events


def read(line: Line) -> Sequence[Found]:
    """A pod that ran out of memory, that was evicted, or that no node has room for; a lost node."""
    text = line.text
    if found := _EVICTED.search(text):
        pod, why = found["of"] or found["pod"], found["why"] or ""
        if _MEMORY.search(why):
            return [event("memory", "host", node=pod, text=f"evicted: {why}")]
        return [event("scheduler", "evicted", node=pod, text=why or f"pod {pod} was evicted")]
    if found := _NOT_READY.search(text):
        node = found["of"] or found["name"]
        code = "node_failed" if node else "node_failure"
        again = any("NodeReady" in one and (node or "") in one for one in line.below(_MOST_BELOW))
        return [] if again else [event("scheduler", code, node=node, text=text)]
    if found := _LISTED.match(text):
        return [event("memory", "host", node=found["pod"], text=text)]
    if _REASON.match(text):
        above = (found for one in line.above(_MOST_ABOVE) if (found := _OF_POD.match(one)))
        pod = next(above, None)
        said = f"OOMKilled, a container of pod {pod[1]}" if pod else "OOMKilled"
        return [event("memory", "host", node=pod[1] if pod else None, text=said)]
    if found := _UNSCHEDULED.search(text):
        name = found["pod"]
        placed = any(name in one and _PLACED.search(one) for one in line.below(_MOST_BELOW))
        said = f"pod {name} was not scheduled: {found['why']}"
        return [] if placed else [event("init", "unscheduled", node=name, text=said)]
    return []


KUBERNETES = Recogniser(
    "kubernetes", ("OOMKilled", "Evicted", "NodeNotReady", "FailedScheduling"), read
)
