"""Whether what is blamed was blamed before: one sentence a finding."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from oncall.core.diagnosis import Finding
from oncall.core.errors import MissingEvidence, RelationFailed
from oncall.core.printable import short
from oncall.core.units import format_duration
from oncall.evidence.incident import Incident

NEEDS_ARCHIVE = ("archived_findings",)  # what a rule lacks where no archive is given


@dataclass(frozen=True)
class _Past:
    """One former fault."""

    rulebook: str
    verdict: str
    node: str | None
    component: str | None
    ago_ns: int
    fixed_by: str | None


def with_history(incident: Incident, findings: Sequence[Finding]) -> tuple[Finding, ...]:
    """The findings, root causes that are faults each with what the archive knows of it."""
    try:
        incident.require(["past_findings"])
    except (MissingEvidence, RelationFailed):
        return tuple(findings)
    from oncall.archive.recall import hosts_of  # without an archive nothing of it is needed

    rows = incident.con.execute(
        "SELECT rulebook, verdict, node, component, ago_ns, fixed_by FROM past_findings "
        "ORDER BY ago_ns, component"
    ).fetchall()
    past = [_Past(*row) for row in rows]
    hosts = hosts_of(incident)
    return tuple(
        finding
        if finding.explained_by is not None or finding.severity == "info"
        else replace(finding, seen_before=_sentence(finding, past, hosts))
        for finding in findings
    )


def _sentence(finding: Finding, past: Sequence[_Past], hosts: Mapping[int, str]) -> str:
    blamed = dict(_components(finding, hosts))
    places = " and ".join(map(short, list(blamed)[:2])) + (" ..." if len(blamed) > 2 else "")
    nodes = set(blamed.values())

    def those(which: Callable[[_Past], bool]) -> list[_Past]:
        return [one for one in past if which(one)]

    names = {f"{finding.rulebook}.{finding.verdict}", *finding.former_names}
    alike = those(lambda one: f"{one.rulebook}.{one.verdict}" in names)
    if here := [one for one in alike if one.component in blamed]:
        return f"{_times(here)} on {places}, {_last(here)}"
    never = f"not on {places}" if blamed else "not by this archive"
    if near := those(lambda one: one.node is not None and one.node in nodes):
        verdicts = ", ".join(dict.fromkeys(f"{one.rulebook} {one.verdict}" for one in near))
        return f"{never}; its host was blamed {_times(near)} ({verdicts}), {_last(near)}"
    if alike:
        return f"{never}; elsewhere {_times(alike)}, {_last(alike)}"
    return f"{never}, nor elsewhere" if blamed else ""


def _components(finding: Finding, hosts: Mapping[int, str]) -> Iterator[tuple[str, str | None]]:
    """The blamed hardware, each with its host."""
    from oncall.archive.incidents import component_of

    for one in finding.blame:
        node = one.where.get("node") or hosts.get(one.where.get("rank", -1))
        component = component_of({**one.where, "kind": one.kind}, node)
        if component is not None:
            yield component, node


def _times(those: Sequence[_Past]) -> str:
    return "once" if len(those) == 1 else f"{len(those)} times"


def _last(those: Sequence[_Past]) -> str:
    """When it was last, and the newest note of what fixed it."""
    fixed = next((one.fixed_by for one in those if one.fixed_by), None)
    last = f"last {format_duration(those[0].ago_ns)} before this"
    return f"{last}; last fixed by: {short(fixed)}" if fixed else last
