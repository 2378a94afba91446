"""What became of each host that was asked: an answer, or why there is none."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from oncall.core.errors import OncallError
from oncall.node.store.catalog import is_node_name

Kind = Literal[
    "ok",
    "no-data",  # it answers, and knows nothing of the job
    "timeout",  # no answer in time
    "refused",  # no connection: refused, unreachable, no such host
    "auth",  # it does not let us in
    "hostkey",  # it is not the host it was, or not known
    "no-agent",  # no oncall there
    "version",  # an oncall too old or too new
    "protocol",  # what it says is no answer
    "interrupted",  # we did not wait for it
    "error",  # it says itself what is wrong
]

REASONS: dict[Kind, str] = {
    "ok": "answered",
    "no-data": "has no evidence of the job",
    "timeout": "did not answer in time",
    "refused": "cannot be reached",
    "auth": "does not let us log in",
    "hostkey": "host key not verified",
    "no-agent": "has no oncall",
    "version": "oncall of another version",
    "protocol": "answered nonsense",
    "interrupted": "not waited for",
    "error": "could not answer",
}


_ADDRESS = re.compile(r"\b\d{1,3}(?:\.\d{1,3}){3}\b|\b[0-9a-f]{1,4}(?:::?[0-9a-f]{1,4}){2,7}\b")


class HostError(OncallError):
    """A host that cannot be asked, or did not answer: raised by transports, shown as an Outcome."""

    def __init__(self, kind: Kind, message: str = "") -> None:
        self.kind = kind
        super().__init__(message or REASONS[kind])


@dataclass(frozen=True)
class Outcome:
    """What became of one host. `status` is what the node said of itself, if it answered."""

    host: str
    kind: Kind
    message: str = ""
    bytes: int = 0
    seconds: float = 0.0
    status: dict[str, Any] = field(default_factory=dict)

    @property
    def node(self) -> str:
        """The node's own name, if it says one that a node can have; else what it was asked by."""
        told = self.status.get("node")
        return told if isinstance(told, str) and is_node_name(told) else self.host


def claimed_twice(outcomes: Iterable[Outcome]) -> dict[str, str]:
    """Host -> why its name is not its own, of hosts that answered and say that they are a node
    which another one is, too. The name is of the host that was asked by it, else of the first."""
    claims: dict[str, list[str]] = defaultdict(list)
    for outcome in outcomes:
        if outcome.kind == "ok":
            claims[outcome.node].append(outcome.host)
    wrong: dict[str, str] = {}
    for node, hosts in claims.items():
        own = node if node in hosts else hosts[0]
        for host in hosts:
            if host != own:
                wrong[host] = f"says it is {node}, as {own} does: ask each node once, by one name"
    return wrong


def jobs_of(outcome: Outcome) -> dict[str, int]:
    """The jobs that a greeted host sees, with the last instant of each."""
    told = outcome.status.get("jobs")
    jobs = told.items() if isinstance(told, dict) else ()
    return {
        name: seen["last_ns"]
        for name, seen in jobs
        if isinstance(seen, dict) and isinstance(seen.get("last_ns"), int)
    }


def jobs_on_our_clock(status: Mapping[str, Any], offset_ns: int) -> dict[str, Any]:
    """The jobs that a node says it sees, their last instants on the console's clock: a node whose
    clock is an hour behind has seen its job just now, too."""
    told = status.get("jobs")
    jobs = told.items() if isinstance(told, dict) else ()
    return {
        name: {**seen, "last_ns": seen["last_ns"] - offset_ns}
        for name, seen in jobs
        if isinstance(seen, dict) and isinstance(seen.get("last_ns"), int)
    }


def alike(told: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    """Hosts by what they told, (host, message); a message that speaks of its own host, or of an
    address, is one with those that differ in nothing else, and then names neither."""
    groups: dict[str, list[tuple[str, str]]] = {}
    for host, message in told:
        own = re.compile(rf"(?<![\w.-]){re.escape(host)}(?![\w-])")
        groups.setdefault(_ADDRESS.sub("ADDRESS", own.sub("HOST", message)), []).append(
            (host, message)
        )
    return {
        general if len(group) > 1 else group[0][1]: [host for host, _ in group]
        for general, group in groups.items()
    }
