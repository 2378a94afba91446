"""What is known of whom findings blame: stacks, pipeline stages, and whether they were blamed
before."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from oncall.core.diagnosis import Blame, Finding, Stack
from oncall.core.printable import short
from oncall.core.units import format_duration
from oncall.evidence.incident import Incident
from oncall.use_case.evidence import PastFault, past_faults, stacks_of, stages_of

NEEDS_ARCHIVE = ("archived_findings",)  # what a rule lacks where no archive is given
# Of ranks that are in the same place, one stack is shown; three in all, of the first few ranks.
_MOST_STACKS = 3
_MOST_LOOKED_AT = 64


# -------------------------------------------------------------------------- stacks


def with_stacks(incident: Incident, findings: Sequence[Finding]) -> tuple[Finding, ...]:
    """The findings, each root cause with the stacks of its blamed ranks."""
    blamed = {finding.id: _blamed_ranks(finding) for finding in findings}
    stacks = stacks_of(incident, {rank for of_one in blamed.values() for rank in of_one})
    return tuple(
        replace(
            finding, stacks=_different(stacks[one] for one in blamed[finding.id] if one in stacks)
        )
        for finding in findings
    )


def _blamed_ranks(finding: Finding) -> tuple[int, ...]:
    if finding.explained_by is not None:
        return ()
    ranks = {one.where["rank"] for one in finding.blame if one.where.get("rank") is not None}
    return tuple(sorted(ranks)[:_MOST_LOOKED_AT])


def _different(stacks: Iterable[Stack]) -> tuple[Stack, ...]:
    """The first few stacks that are not like another before."""
    by_frames: dict[tuple[str, ...], Stack] = {}
    for stack in stacks:
        by_frames.setdefault(stack.frames, stack)
    return tuple(by_frames.values())[:_MOST_STACKS]


# -------------------------------------------------------------------------- stages


def with_stages(incident: Incident, findings: Sequence[Finding]) -> tuple[Finding, ...]:
    """The findings, each blamed rank with its pipeline stage, where the job has more than one."""
    if not any(one.where.get("rank") is not None for f in findings for one in f.blame):
        return tuple(findings)
    stages = stages_of(incident)
    return tuple(findings) if len(set(stages.values())) < 2 else on_stages(findings, stages)


def on_stages(findings: Sequence[Finding], stages: Mapping[int, int]) -> tuple[Finding, ...]:
    """The findings, each blamed rank with its stage as far as it is among these."""

    def placed(one: Blame) -> Blame:
        rank = one.where.get("rank")
        stage = None if rank is None else stages.get(rank)
        known = stage is None or one.where.get("stage") is not None
        return one if known else replace(one, where={**one.where, "stage": stage})

    return tuple(replace(f, blame=tuple(map(placed, f.blame))) for f in findings)


# ------------------------------------------------------------------------- history


def with_history(incident: Incident, findings: Sequence[Finding]) -> tuple[Finding, ...]:
    """The findings, root causes that are faults each with what the archive knows of it."""
    past = past_faults(incident)
    if past is None:
        return tuple(findings)
    from oncall.archive.history import hosts_of  # without an archive nothing of it is needed

    hosts = hosts_of(incident)
    return tuple(
        finding
        if finding.explained_by is not None or finding.severity == "info"
        else replace(finding, seen_before=_seen_before(finding, past, hosts))
        for finding in findings
    )


def _seen_before(finding: Finding, past: Sequence[PastFault], hosts: Mapping[int, str]) -> str:
    blamed = dict(_components(finding, hosts))
    places = " and ".join(map(short, list(blamed)[:2])) + (" ..." if len(blamed) > 2 else "")
    nodes = set(blamed.values())

    def those(which: Callable[[PastFault], bool]) -> list[PastFault]:
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


def _times(those: Sequence[PastFault]) -> str:
    return "once" if len(those) == 1 else f"{len(those)} times"


def _last(those: Sequence[PastFault]) -> str:
    """When it was last, and the newest note of what fixed it."""
    fixed = next((one.fixed_by for one in those if one.fixed_by), None)
    last = f"last {format_duration(those[0].ago_ns)} before this"
    return f"{last}; last fixed by: {short(fixed)}" if fixed else last
