"""No slow verdict without a gain: what costs no time is reported, and not blamed.

The account of lost time says for each rank by how much iterations would be shorter without it.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from oncall.core.diagnosis import Finding, Reason

DELAYS = ("slow", "network")  # classes of fault that cost time, and do not stop a job
_NO_GAIN = Reason(
    "lost time", 1.0, "iterations would take as long without it: others wait for someone else"
)


def weighed(
    findings: Sequence[Finding], costly: Collection[int], *, is_known: bool
) -> tuple[Finding, ...]:
    """The findings; slow ranks and transfers that cost no iteration anything become `info`.

    `costly` are the ranks without whom iterations would be shorter; `is_known`: that was found out.
    Findings that blame no rank are left as they are. What costs nothing explains nothing.
    """
    if not is_known:
        return tuple(findings)
    idle = {
        finding.id
        for finding in findings
        if finding.fault_class in DELAYS and (ranks := _ranks(finding)) and not ranks & {*costly}
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


def _ranks(finding: Finding) -> set[int]:
    return {int(one.where["rank"]) for one in finding.blame if one.where.get("rank") is not None}
