"""The outcome of querying a host: an answer, or the reason why there is none."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from oncall.core.errors import OncallError
from oncall.core.nodeset import fold_hosts
from oncall.node.store.catalog import is_node_name

Kind = Literal[
    "ok",
    "no-data",  # it answered, but has no evidence of the job
    "lost",  # it answered, and the evidence of the job that it had is gone
    "timeout",  # no answer in time
    "refused",  # no connection: refused, unreachable, no such host
    "auth",  # login refused
    "hostkey",  # host key unknown or changed
    "no-agent",  # oncall not found there
    "version",  # oncall there is too old or too new
    "protocol",  # the answer is invalid
    "interrupted",  # stopped before it answered
    "error",  # it reported an error
]

ANSWERED: frozenset[Kind] = frozenset(("ok", "no-data", "lost"))

REASONS: dict[Kind, str] = {
    "ok": "answered",
    "no-data": "has no evidence of the job",
    "lost": "no longer has evidence of the job",
    "timeout": "did not answer in time",
    "refused": "cannot be reached",
    "auth": "does not let us log in",
    "hostkey": "host key not verified",
    "no-agent": "oncall not found",
    "version": "has an incompatible oncall version",
    "protocol": "sent an invalid answer",
    "interrupted": "interrupted before it answered",
    "error": "could not answer",
}


_ADDRESS = re.compile(r"\b\d{1,3}(?:\.\d{1,3}){3}\b|\b[0-9a-f]{1,4}(?:::?[0-9a-f]{1,4}){2,7}\b")


class HostError(OncallError):
    """A host that cannot be queried or did not answer: raised by transports, shown as Outcome."""

    def __init__(self, kind: Kind, message: str = "") -> None:
        self.kind = kind
        super().__init__(message or REASONS[kind])


_MOST_S = 86_400  # what a node may say
SLOW_S = 5.0  # from here on it is said how long a host needs to answer


@dataclass(frozen=True)
class Outcome:
    """The outcome of one host. `status` is the node's status, if it answered; `seconds`: how long
    its longest answer took, or takes so far where it is connected, has greeted and is late."""

    host: str
    kind: Kind
    message: str = ""
    bytes: int = 0
    seconds: float = 0.0
    status: dict[str, Any] = field(default_factory=dict)

    @property
    def node(self) -> str:
        """The name the node reports, if it is valid; else the host name it was queried by."""
        name = self.status.get("node")
        return name if isinstance(name, str) and is_node_name(name) else self.host

    @property
    def slow_s(self) -> float:
        """How long it needs to answer, or its collector, where that is long; else 0."""
        stated_s = seconds_of(collector_of(self.status).get("takes_s"))
        seconds = max(self.seconds, stated_s if self.kind in ANSWERED else 0.0)
        return seconds if seconds >= SLOW_S else 0.0

    @property
    def slowness(self) -> str:
        """`needs 12 s to answer`, `needs over 20 s to answer`; empty where it answers soon."""
        return needs_phrase(self.slow_s, self.kind == "timeout")


def seconds_of(stated: object) -> float:
    """For how long something took, as a node or a gateway tells; 0 for what is no such number."""
    is_number = isinstance(stated, int | float) and 0 <= stated <= _MOST_S
    return float(stated) if is_number else 0.0  # type: ignore[arg-type]


def needs_phrase(slow_s: float, is_late: bool) -> str:
    """How long a slow host needs to answer; empty if it is not slow."""
    return f"needs {'over ' if is_late else ''}{slow_s:.0f} s to answer" if slow_s else ""


def claimed_twice(outcomes: Iterable[Outcome]) -> dict[str, str]:
    """Host -> problem, of hosts that report the node name of another host. The name belongs to the
    host that was queried by it, else to the first."""
    claims: dict[str, list[str]] = defaultdict(list)
    for outcome in outcomes:
        if outcome.kind == "ok":
            claims[outcome.node].append(outcome.host)
    wrong: dict[str, str] = {}
    for node, hosts in claims.items():
        own = node if node in hosts else hosts[0]
        for host in hosts:
            if host != own:
                wrong[host] = (
                    f"reports the node name {node}, as {own} does: list each node only once"
                )
    return wrong


def jobs_of(outcome: Outcome) -> dict[str, int]:
    """The jobs of a greeted host, with the time of the last evidence of each."""
    jobs = jobs_on_our_clock(outcome.status, 0)
    return {name: seen["last_ns"] for name, seen in jobs.items()}


def collector_of(status: Mapping[str, Any]) -> Mapping[str, Any]:
    """What a node's status says of its collector; empty if it says nothing that fits."""
    said = status.get("collector")
    return said if isinstance(said, dict) else {}


def jobs_on_our_clock(status: Mapping[str, Any], offset_ns: int) -> dict[str, Any]:
    """The jobs that a node reports, their last times converted to the console's clock."""
    reported = status.get("jobs")
    jobs = reported.items() if isinstance(reported, dict) else ()
    return {
        name: {**seen, "last_ns": seen["last_ns"] - offset_ns}
        for name, seen in jobs
        if isinstance(seen, dict) and isinstance(seen.get("last_ns"), int)
    }


def alike(messages: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    """Hosts grouped by their message. Messages that differ only in their own host name or in an
    address are one group, whose message contains HOST or ADDRESS instead."""
    groups: dict[str, list[tuple[str, str]]] = {}
    for host, message in messages:
        groups.setdefault(of_any_host(host, message), []).append((host, message))
    return {
        general if len(group) > 1 else group[0][1]: [host for host, _ in group]
        for general, group in groups.items()
    }


def of_any_host(host: str, message: str) -> str:
    """The message with HOST for its own name and ADDRESS for addresses."""
    own = re.compile(rf"(?<![\w.-]){re.escape(host)}(?![\w-])")
    return _ADDRESS.sub("ADDRESS", own.sub("HOST", message))


def of_lost_gateways(lost: Mapping[str, str]) -> dict[str, list[str]]:
    """The outcome of gateways that failed, with the reason of each: what -> gateways."""
    return {
        f"{why}; its nodes are asked directly": gateways
        for why, gateways in alike(lost.items()).items()
    }


def lost_gateways_phrases(lost: Mapping[str, str]) -> list[str]:
    """`gateway gw[01-02]: cannot be reached; its nodes are asked directly`."""
    return [
        f"gateway {fold_hosts(gateways)}: {what}"
        for what, gateways in of_lost_gateways(lost).items()
    ]


# Turn the stderr of a program that runs a command elsewhere into a reason to act on.

_MOST_LINE = 200
_ANYTHING = ".{0,300}"  # what `.*` stands for: a name; unbounded, it is sought anew from every word


class TransientError(HostError):
    """A failure that a retry may avoid, such as a server too busy to greet."""


@dataclass(frozen=True)
class ErrorPattern:
    """A phrase of a program's stderr, and the advice: `{line}` is its line, `{host}` the host."""

    kind: Kind
    pattern: re.Pattern[str]
    advice: str = "{line}"
    transient: bool = False


def pattern(
    kind: Kind, words: str, advice: str = "{line}", *, transient: bool = False
) -> ErrorPattern:
    """The pattern of a regular expression that ignores case."""
    compiled = re.compile(words.replace(".*", _ANYTHING), re.IGNORECASE)
    return ErrorPattern(kind, compiled, advice, transient)


def first_match(patterns: Sequence[ErrorPattern], host: str, said: str) -> HostError | None:
    """The reason by the first pattern that matches; None if none does."""
    for one in patterns:
        if match := one.pattern.search(said):
            message = one.advice.format(host=host, line=_line_at(said, match.start()))
            return (TransientError if one.transient else HostError)(one.kind, message)
    return None


def last_line(said: str) -> str:
    """The last line that is not empty, shortened and without control characters."""
    lines = [line for line in plain(said).splitlines() if line.strip()]
    return lines[-1].strip()[:_MOST_LINE] if lines else ""


def plain(text: str) -> str:
    """Untrusted text in which every control character except line feeds is a space."""
    return "".join(c if c.isprintable() or c == "\n" else " " for c in text)


def _line_at(said: str, position: int) -> str:
    start = said.rfind("\n", 0, position) + 1
    return plain(said[start:].partition("\n")[0]).strip()[:_MOST_LINE]
