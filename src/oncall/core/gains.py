"""No slow verdict without a gain: what costs no time is reported, and not blamed.

The account of lost time says for each rank by how much iterations would be shorter without it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from oncall.core.diagnosis import Finding, Reason

DELAYS = ("slow", "network")  # classes of fault that cost time, and do not stop a job
_NO_GAIN = Reason(
    "lost time", 1.0, "iterations would take as long without it: others wait for someone else"
)


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
    that blame neither are left as they are. What costs nothing explains nothing.
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
    return tuple(
        replace(
            finding,
            severity="info" if finding.id in idle else finding.severity,
            reasons=(*finding.reasons, _NO_GAIN) if finding.id in idle else finding.reasons,
            explained_by=None if finding.explained_by in idle else finding.explained_by,
        )
        for finding in findings
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
