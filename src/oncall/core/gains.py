"""No slow verdict without a gain: what costs no time is reported, and not blamed.

The account of lost time says for each rank by how much iterations would be shorter without it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from oncall.core.diagnosis import Finding, Reason, Step

DELAYS = ("slow", "network")  # classes of fault that cost time, and do not stop a job
_COSTS_NOTHING = "iterations would take as long without it: others wait for someone else"
_NO_GAIN = Reason("lost time", 1.0, _COSTS_NOTHING)
_CONCLUSION = Step("", "no", "It costs nothing: " + _COSTS_NOTHING + ".", "", 0)


def weighed(
    findings: Sequence[Finding],
    costly: Collection[int],
    stages: Mapping[int, int] = MappingProxyType({}),
    *,
    is_known: bool,
) -> tuple[Finding, ...]:
    """The findings; slow ranks and transfers that cost no iteration anything become `info`.

    `costly` are the ranks without whom iterations would be shorter; `is_known`: that was found out.
    `stages`: the stage of each rank; a blamed stage or group costs what its ranks cost. Findings
    that blame neither are left as they are. What costs nothing explains nothing, asks for nothing,
    and comes last.
    """
    if not is_known:
        return tuple(findings)
    places = {("rank", rank) for rank in costly}
    places |= {("stage", stages[rank]) for rank in costly if rank in stages}
    idle = {
        finding.id
        for finding in findings
        if finding.fault_class in DELAYS
        and (blamed := _places(finding))
        and not blamed & places
        and (stages or any(kind == "rank" for kind, _ in blamed))
    }
    weighted = [_idle(one) if one.id in idle else one for one in findings]
    weighted = [
        replace(one, explained_by=None) if one.explained_by in idle else one for one in weighted
    ]
    return _numbered(sorted(weighted, key=lambda one: one.id in idle))


def _idle(finding: Finding) -> Finding:
    """The finding as one that costs nothing."""
    return replace(
        finding,
        severity="info",
        story=(*finding.story, _CONCLUSION),
        reasons=(*finding.reasons, _NO_GAIN),
        next=(),
    )


def _numbered(findings: Sequence[Finding]) -> tuple[Finding, ...]:
    """The findings with the ids that belong to their order."""
    ids = sorted((one.id for one in findings), key=lambda name: (len(name), name))
    renamed = dict(zip((one.id for one in findings), ids, strict=True))
    return tuple(
        replace(
            one,
            id=renamed[one.id],
            explained_by=renamed.get(one.explained_by or "", one.explained_by),
        )
        for one in findings
    )


def _places(finding: Finding) -> set[tuple[str, int]]:
    """The ranks that it blames, alone or of a group or stage, and the stages whose ranks are not
    known."""
    places = set()
    for blame in finding.blame:
        where = blame.where
        if where.get("rank") is not None:
            places.add(("rank", int(where["rank"])))
        elif where.get("ranks"):
            places |= {("rank", int(rank)) for rank in where["ranks"]}
        elif where.get("stage") is not None:
            places.add(("stage", int(where["stage"])))
    return places
