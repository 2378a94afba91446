"""`:` go-to: what the reader wants to see, from a line of text, and what there is to see. Pure."""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from oncall.core.errors import UsageError
from oncall.core.nodeset import fold_hosts, fold_ranks
from oncall.core.printable import short
from oncall.core.units import NS_PER_S

if TYPE_CHECKING:
    from oncall.views.snapshot import Snapshot

KINDS = {
    "node": "a node by name, `:node gpu017`",
    "rank": "a rank by number, `:rank 137`",
    "rule": "a rulebook by name or verdict, `:rule H1`",
    "comm": "a communicator by hash, `:comm 0x1f2e`",
    "iteration": "a training iteration, `:iteration 41`",
    "finding": "a finding by number or verdict, `:finding F1`",
    "time": "an instant in UTC, `:time 03:10:00`",
    "job": "a job, `:job llama-70b`",
}
_CLOCK = re.compile(r"(\d{1,2}):(\d{2})(?::(\d{2}(?:\.\d+)?))?")


@dataclass(frozen=True)
class Target:
    """Something to go to. `value`: a rank or communicator as int, Unix ns of a time, else text."""

    kind: str
    value: str | int

    def __str__(self) -> str:
        return f"{self.kind} {hex(int(self.value)) if self.kind == 'comm' else self.value}"


def parse_target(text: str, day_ns: int | None = None) -> Target:
    """`node gpu017` as a Target; a bare number is a rank, a bare clock time a time.

    `day_ns` is an instant of the day meant by a time without a date. Raises UsageError that says
    what can be written.
    """
    kind, _, rest = text.strip().lstrip(":").partition(" ")
    rest = rest.strip()
    if not kind:
        raise UsageError(f"go to what? {', '.join(KINDS)}, such as `node gpu017`")
    if kind not in KINDS and not rest:
        return _bare(kind, day_ns)
    if kind not in KINDS:
        near = difflib.get_close_matches(kind, KINDS, n=1)
        hint = f"did you mean {near[0]}?" if near else f"known: {', '.join(KINDS)}"
        raise UsageError(f"cannot go to `{kind}`; {hint}")
    if not rest:
        raise UsageError(f"which {kind}? It takes {KINDS[kind]}")
    match kind:
        case "rank":
            return Target(kind, _number(rest, 10, "a rank is a number, such as 137"))
        case "iteration":
            return Target(kind, _number(rest, 10, "an iteration is a number, such as 41"))
        case "comm":
            return Target(kind, _number(rest, 16, "a communicator is a hash, such as 0x1f2e"))
        case "time":
            return Target(kind, parse_time_ns(rest, day_ns))
    return Target(kind, rest)


def _bare(word: str, day_ns: int | None) -> Target:
    if word.isdecimal():
        return Target("rank", int(word))
    if word.lower().startswith("0x"):
        return Target("comm", _number(word, 16, "a communicator is a hash, such as 0x1f2e"))
    if _CLOCK.fullmatch(word):
        return Target("time", parse_time_ns(word, day_ns))
    if re.fullmatch(r"[A-Z]+\d+", word):
        return Target("finding", word)
    near = difflib.get_close_matches(word, KINDS, n=1)
    return Target("node", word) if not near else _which(near[0])


def _which(kind: str) -> Target:
    raise UsageError(f"which {kind}? It takes {KINDS[kind]}")


def _number(text: str, base: int, problem: str) -> int:
    try:
        number = int(text, base)
    except ValueError:
        raise UsageError(f"{problem}, not `{text}`") from None
    if number < 0:
        raise UsageError(f"{problem}, not `{text}`")
    return number


def parse_time_ns(text: str, day_ns: int | None) -> int:
    """`03:10`, `03:10:00` on the day of `day_ns`, or `2026-11-20T03:10`: Unix ns, UTC.

    A recording that passes midnight means the last such time before its end.
    """
    if found := _CLOCK.fullmatch(text):
        if day_ns is None:
            raise UsageError("a time of day needs evidence with a date; give the date too")
        hours, minutes, seconds = int(found[1]), int(found[2]), float(found[3] or 0)
        if hours > 23 or minutes > 59 or seconds >= 60:
            raise UsageError(f"`{text}` is not a time of day")
        end = datetime.fromtimestamp(day_ns / NS_PER_S, UTC)
        midnight = end.replace(hour=0, minute=0, second=0, microsecond=0)
        at = midnight + timedelta(hours=hours, minutes=minutes, seconds=seconds)
        if at > end + timedelta(minutes=1):
            at -= timedelta(days=1)
        return int(at.timestamp() * 1000) * 10**6
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        raise UsageError(
            f"`{text}` is not a time; write 03:10, 03:10:00 or 2026-11-20T03:10"
        ) from None
    at = at if at.tzinfo else at.replace(tzinfo=UTC)
    return int(at.timestamp() * 1000) * 10**6


_MOST_LISTED = 60  # characters of the ranks or nodes there are


def places(snapshot: Snapshot | None, jobs: Sequence[str] = ()) -> list[str]:
    """Lines of `:` in the order in which they are suggested: findings, whom they name, the rest."""
    found = [f"job {job}" for job in jobs]
    if snapshot is None:
        return found
    findings = snapshot.diagnosis.findings
    blamed = [one.where for finding in findings for one in finding.blame]
    ranks = [where["rank"] for where in blamed if where.get("rank") is not None]
    nodes = [str(where["node"]) for where in blamed if where.get("node")]
    return list(
        dict.fromkeys(
            (
                *(f"finding {finding.id}" for finding in findings),
                *(
                    f"rank {rank}"
                    for rank in (*ranks, *snapshot.ranks.rank[:_MOST_LISTED].tolist())
                ),
                *(f"node {short(node)}" for node in (*nodes, *snapshot.ranks.node) if node),
                *(f"comm {one.comm:#x}" for one in snapshot.communicators),
                *(f"rule {name}" for name in snapshot.diagnosis.checked),
                *found,
                "iteration ",
                "time ",
                "quit",
            )
        )
    )


def why_not_there(target: Target, snapshot: Snapshot) -> str | None:
    """Why a snapshot does not have it, with what it has; None if it does, or nobody knows yet."""
    ranks = snapshot.ranks
    if target.kind == "rank" and len(ranks) and target.value not in ranks.rank:
        known = _cut(fold_ranks(ranks.rank.tolist()))
        return f"there is no rank {target.value}; the ranks are {known}"
    if target.kind == "node":
        nodes = {node for node in ranks.node if node}
        if nodes and target.value not in nodes:
            return f"no rank runs on {target.value}; the nodes are {_cut(fold_hosts(nodes))}"
    return None


def _cut(folded: str) -> str:
    if len(folded) <= _MOST_LISTED:
        return folded
    return folded[: folded.rfind(",", 0, _MOST_LISTED)] + ", ..."
