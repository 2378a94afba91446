"""Compare a diagnosis with the injected fault: its class and its ranks."""

from __future__ import annotations

from dataclasses import dataclass

from oncall.core.diagnosis import Diagnosis, Finding
from oncall.demo.faults import Fault
from oncall.views import words


@dataclass(frozen=True)
class Judgement:
    """The injected fault and the diagnosis, in a few words each."""

    truth: str
    found: str
    right: bool


def judge(fault: Fault, diagnosis: Diagnosis) -> Judgement:
    """Compare the root causes with the fault.

    A consequence that names its root is no error, nor is a second rulebook that blames the same
    rank in words of its own; a root that blames anybody else is one.
    """
    roots = [finding for finding in diagnosis.findings if finding.explained_by is None]
    truth = f"{fault.name} {words.ranks_phrase(fault.ranks)}" if fault.ranks else fault.name
    if not roots:
        found = "healthy" if diagnosis.healthy else f"nothing, but {diagnosis.doubt}"
        return Judgement(truth, found, right=found == truth)
    found = "; ".join(f"{root.verdict} {words.who(root.blame)}" for root in roots)
    named = any(root.verdict in fault.verdicts for root in roots)
    blamed = all(_ranks(root) == set(fault.ranks) for root in roots)
    return Judgement(truth, found, named and blamed)


def _ranks(finding: Finding) -> set[int | None]:
    return {one.where.get("rank") for one in finding.blame}
