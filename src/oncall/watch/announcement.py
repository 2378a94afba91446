"""What is sent about an incident: one announcement, and its words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal

from oncall.core.diagnosis import Diagnosis
from oncall.core.printable import clean
from oncall.core.units import NS_PER_S, format_duration
from oncall.views import coverage_words, words
from oncall.views.lost_gpu_time import Price, losing, phrase
from oncall.watch.course import Kind, Open
from oncall.watch.links import NO_LINKS, Links
from oncall.watch.look import Trouble

TITLE = "[oncall] $job: $headline"
BODY = "$summary"
_MOST_STEPS, _MOST_FRAMES = 3, 4


@dataclass(frozen=True)
class Announcement:
    """One notification. `number` counts those of its incident from 1; `incident/number` is its id,
    the same however often it is sent. `diagnosis` is the JSON contract's document, if there is
    one; `file` the saved incident; `links`: `runbook_url`, `dashboard_url`. Instants are Unix time
    in ns."""

    kind: Kind | Literal["test"]
    job: str
    incident: str
    number: int
    severity: str
    at_ns: int
    opened_ns: int
    headline: str
    summary: str
    verdict: tuple[str, ...] = ()
    file: str = ""
    links: Mapping[str, str] = field(default_factory=dict)
    diagnosis: Mapping[str, Any] | None = field(default=None, repr=False)

    @property
    def id(self) -> str:
        return f"{self.incident}/{self.number}"

    def fields(self) -> dict[str, str]:
        """What a template may name."""
        return {
            "job": clean(self.job),
            "kind": self.kind,
            "severity": self.severity,
            "incident": self.incident,
            "headline": self.headline,
            "summary": self.summary,
            "verdict": "; ".join(self.verdict),
            "file": self.file,
            "runbook_url": self.links.get("runbook_url", ""),
            "dashboard_url": self.links.get("dashboard_url", ""),
            "opened": words.instant(self.opened_ns),
            "at": words.instant(self.at_ns),
            "lasted": format_duration(self.at_ns - self.opened_ns),
        }


FIELDS = tuple(
    Announcement("test", "", "", 0, "", 0, 0, "", "").fields(),
)


def of_trouble(
    kind: Literal["opened", "updated"],
    job: str,
    incident: Open,
    at_ns: int,
    troubles: tuple[Trouble, ...],
    diagnosis: Diagnosis | None,
    file: str,
    price: Price | None = None,
    links: Links = NO_LINKS,
) -> Announcement:
    """That an incident was opened, or that its verdict changed."""
    main = troubles[0]
    more = f"; and {len(troubles) - 1} more" if len(troubles) > 1 else ""
    headline = main.sentence + more
    badge = words.GLYPHS[main.severity]
    lines = [f"{badge} {main.severity.upper()}  {headline}"]
    if diagnosis is not None:
        lines += [clean(phrase(one, at_ns, price)) for one in losing(diagnosis)]
        lines += _details(diagnosis)
    leading = words.leading(diagnosis) if diagnosis is not None else None
    pages = links.of(job, leading, incident.opened_ns)
    lines += [f"{name.removesuffix('_url').capitalize()}: {url}" for name, url in pages.items()]
    if file:
        lines.append(f"Evidence: oncall open {file}")
    document = None
    if diagnosis is not None:
        from oncall.render.contract import document as contract

        document = contract(diagnosis)
    return Announcement(
        kind=kind,
        job=job,
        incident=incident.name,
        number=incident.number,
        severity=main.severity,
        at_ns=at_ns,
        opened_ns=incident.opened_ns,
        headline=headline,
        summary="\n".join(lines),
        verdict=incident.verdict,
        file=file,
        links=pages,
        diagnosis=document,
    )


def of_end(job: str, closed: Open, at_ns: int, ended: str = "") -> Announcement:
    """That the job moves again, or has `ended`."""
    after = format_duration(at_ns - closed.opened_ns)
    headline = f"has ended: {ended}" if ended else f"moves again after {after}"
    return Announcement(
        kind="closed",
        job=job,
        incident=closed.name,
        number=closed.number + 1,
        severity=closed.severity,
        at_ns=at_ns,
        opened_ns=closed.opened_ns,
        headline=headline,
        summary=f"{words.HEALTHY_GLYPH} {headline}; it was: {'; '.join(closed.verdict)}",
        verdict=closed.verdict,
    )


def of_test(job: str, at_ns: int) -> Announcement:
    """A message to try the targets with; it is about no incident."""
    stamp = datetime.fromtimestamp(at_ns // NS_PER_S, UTC).strftime("%Y%m%dT%H%M%SZ")
    headline = "a test of `oncall watch`; nothing is wrong"
    return Announcement(
        "test", job, f"test-{stamp}", 1, "info", at_ns, at_ns, headline, headline.capitalize()
    )


def to_json(announcement: Announcement) -> dict[str, Any]:
    """As plain data, for the state on disk."""
    return asdict(announcement)


def from_json(values: Mapping[str, Any]) -> Announcement:
    """What `to_json` wrote. Raises TypeError for anything else."""
    return Announcement(**{**values, "verdict": tuple(values["verdict"])})


def _details(diagnosis: Diagnosis) -> list[str]:
    """Why, what to do next, and how much was seen: a line each."""
    lines: list[str] = []
    root = words.leading(diagnosis)
    if root is not None:
        lines += filter(None, [words.conclusion(root)])
        lines += [f"Shown by: {clean(one.why)}" for one in root.reasons if one.name == "stopped"]
        for stack in root.stacks[:_MOST_STEPS]:
            frames = "; ".join(stack.frames[:_MOST_FRAMES])
            lines.append(clean(f"Rank {stack.rank} {stack.at}: {frames}"))
        lines += [f"Next: {clean(advice)}" for advice in root.next[:_MOST_STEPS]]
        lines.append(f"What it means: `oncall explain {root.rulebook}.{root.verdict}`")
    elif diagnosis.doubt:
        lines.append(f"Inconclusive: {words.doubt(diagnosis)}")
    lines.append(f"Seen: {coverage_words.seen_phrase(diagnosis.coverage)}")
    return lines
