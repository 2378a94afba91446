"""No slow verdict without a gain: what costs no time is told, and not blamed.

The account of lost time says for each rank by how much iterations would be shorter without it.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from oncall.core.diagnosis import Finding, Reason

_NO_GAIN = Reason(
    "lost time", 1.0, "iterations would take as long without it: others wait for someone else"
)


def weighed(
    findings: Sequence[Finding], costly: Collection[int], *, is_known: bool
) -> tuple[Finding, ...]:
    """The findings; slow ranks that cost no iteration anything become `info`.

    `costly` are the ranks without whom iterations would be shorter; `is_known`: that was found out.
    Findings that blame no rank are left as they are.
    """
    if not is_known:
        return tuple(findings)
    return tuple(
        replace(finding, severity="info", reasons=(*finding.reasons, _NO_GAIN))
        if finding.fault_class == "slow" and (ranks := _ranks(finding)) and not ranks & {*costly}
        else finding
        for finding in findings
    )


def _ranks(finding: Finding) -> set[int]:
    return {int(one.where["rank"]) for one in finding.blame if one.where.get("rank") is not None}
