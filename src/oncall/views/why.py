"""Why a finding is the verdict that it is: the effect, the witness, and the number that decided."""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncall.core.printable import clean
from oncall.views.words import percent, who

if TYPE_CHECKING:
    from oncall.core.diagnosis import Diagnosis, Finding, Lost

_KINDS = {"symptom": "a symptom", "event": "an event", "effect": "an effect"}


def why(diagnosis: Diagnosis, finding: Finding) -> tuple[tuple[str, str], ...]:
    """What decided a finding, as (label, text): what the job lost, what shows or explains it, and
    the number that made it a fault or information."""
    followers = [one for one in diagnosis.findings if one.explained_by == finding.id]
    above = [one for one in diagnosis.findings if one.id == finding.explained_by]
    shown = [one for one in (finding, *followers, *above) if one.claim.kind == "effect"]
    explains = f"{above[0].id} explains it: {clean(above[0].title)}" if above else ""
    return (
        ("Effect", _effect(finding, shown)),
        ("Witness", explains or _witness(finding, shown)),
        ("Number", _number(finding)),
    )


def _effect(finding: Finding, shown: list[Finding]) -> str:
    if not shown:
        itself = "; an event stands for itself" if finding.claim.kind == "event" else ""
        return f"none that the evidence shows{itself}"
    return f"{clean(shown[0].title)} ({shown[0].rulebook} {shown[0].verdict})"


def _witness(finding: Finding, shown: list[Finding]) -> str:
    name = f"{finding.rulebook} {finding.verdict}"
    if finding.claim.kind != "effect":
        return f"{name}, {_KINDS[finding.claim.kind]}: {who(finding.blame)}"
    others = sorted({one.rulebook for one in shown} - {finding.rulebook})
    too = f"; it is shown by {' and '.join(others)} too" if others else ""
    return f"no symptom or event of {who(finding.blame)} explains it{too}"


def _number(finding: Finding) -> str:
    if finding.lost is not None:
        return _cost(finding.lost)
    if not finding.reasons:
        return f"confidence {percent(finding.confidence)}"
    weakest = min(finding.reasons, key=lambda reason: reason.value)
    return f"confidence {percent(finding.confidence)}; what lowers it most: {clean(weakest.why)}"


def _cost(lost: Lost) -> str:
    share = f"{percent(lost.share)} of the time is lost"
    if lost.low is None:
        return f"{share}; the noise is not known"
    if lost.low > 0:
        return f"{share}, at least {percent(lost.low)} beyond noise: a fault"
    return f"{share}, and no more than noise could be: information"
