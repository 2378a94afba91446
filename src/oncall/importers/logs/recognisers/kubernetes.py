"""What `kubectl describe`, `kubectl get pods` and events say of a pod, which they name apart."""

from __future__ import annotations

import re
from collections.abc import Sequence

from oncall.importers.logs.line import Found, Line, Recogniser, event

_OF_POD = re.compile(r"^Name:\s+(\S+)")
_OF_NODE = re.compile(r"^Node:\s+([\w.-]+)(?:/|\s*$)")
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
_NOT_ADMITTED = re.compile(
    r"\bUnexpectedAdmissionError\s+(?:pod/)?(?P<pod>[a-z0-9][\w.-]*)\s+(?P<why>.+)"
)
_NO_IMAGE = re.compile(
    r"(?P<said>(?:Failed to pull|Back-off pulling) image .+)|"
    r"^(?:[a-z0-9-]+\s+)?(?P<pod>[a-z0-9][\w.-]*)\s+\d+/\d+\s+"
    r"(?P<why>(?:Init:)?(?:ErrImagePull|ImagePullBackOff))\b"
)
_PLACED = re.compile(r"\b(?:Scheduled|Started|Pulled)\s")
_MOST_ABOVE = 120  # lines of a description before the state of its containers
_MOST_BELOW = 200  # events


def read(line: Line) -> Sequence[Found]:
    """A pod that ran out of memory, that was evicted, or that no node has room for; a lost node."""
    text = line.text
    if found := _EVICTED.search(text):
        pod, why = found["of"] or found["pod"], found["why"] or ""
        if _MEMORY.search(why):
            return [event("memory", "pod", text=f"pod {pod} was evicted: {why}")]
        said = f"pod {pod} was evicted" + (why and f": {why}")
        return [event("scheduler", "evicted", text=said)]
    if found := _NOT_READY.search(text):
        node = found["of"] or found["name"]
        code = "node_failed" if node else "node_failure"
        again = any("NodeReady" in one and (node or "") in one for one in line.below(_MOST_BELOW))
        return [] if again else [event("scheduler", code, node=node, text=text)]
    if found := _LISTED.match(text):
        return [event("memory", "pod", text=f"OOMKilled, a container of pod {found['pod']}")]
    if _REASON.match(text):
        pod, node = (_stated(form, line) for form in (_OF_POD, _OF_NODE))
        said = f"OOMKilled, a container of pod {pod}" if pod else "OOMKilled"
        return [event("memory", "pod", node=node, text=said)]
    if found := _UNSCHEDULED.search(text):
        name = found["pod"]
        placed = any(name in one and _PLACED.search(one) for one in line.below(_MOST_BELOW))
        said = f"pod {name} was not scheduled: {found['why']}"
        return [] if placed else [event("init", "unscheduled", text=said)]
    if found := _NO_IMAGE.search(text):
        texts = (text, *line.below(_MOST_BELOW))
        events = (one["said"] for each in texts if (one := _NO_IMAGE.search(each)) and one["said"])
        pod, why = found["pod"] or _stated(_OF_POD, line), next(events, found["why"])
        return [event("init", "unscheduled", text=f"pod {pod}: {why}" if pod else why)]
    if found := _NOT_ADMITTED.search(text):
        said = f"pod {found['pod']} was not admitted by its node: {found['why']}"
        return [event("init", "unscheduled", text=said)]
    return []


def _stated(form: re.Pattern[str], line: Line) -> str | None:
    """What a line of the description above says by that form."""
    found = (match for one in line.above(_MOST_ABOVE) if (match := form.match(one)))
    first = next(found, None)
    return first[1] if first else None


KUBERNETES = Recogniser(
    "kubernetes",
    ("OOMKilled", "Evicted", "NodeNotReady", "FailedScheduling", "UnexpectedAdmission", "mage"),
    read,
)
