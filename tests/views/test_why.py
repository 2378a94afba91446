"""The effect, the witness and the number behind a finding."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.findings import finding

from oncall.core.diagnosis import Blame, Claim, Coverage, Diagnosis, Finding, Lost, Reason
from oncall.render.text.report import why

SLOW = finding(
    rulebook="slow",
    verdict="S1",
    title="Slow computation",
    fault_class="slow",
    confidence=0.8,
    blame=(Blame("rank", {"rank": 3}),),
    claim=Claim("effect", frozenset({"compute"})),
    lost=Lost(0.2, 0.15, 0.25),
)


def explained(finding: Finding, *others: Finding) -> dict[str, str]:
    diagnosis = Diagnosis("j", None, None, Coverage(1, 1, 4, 4), (finding, *others))
    return dict(why(diagnosis, finding))


@pytest.mark.parametrize(
    ("lost", "number"),
    [
        (Lost(0.2, 0.15, 0.25), "20 % of the time is lost, at least 15 % beyond noise: a fault"),
        (Lost(0.2, 0.0), "20 % of the time is lost, and no more than noise could be: information"),
        (Lost(0.2), "20 % of the time is lost; the noise is not known"),
    ],
)
def test_the_number_makes_it_a_fault_or_information(lost: Lost, number: str) -> None:
    assert explained(replace(SLOW, lost=lost))["Number"] == number


def test_an_effect_without_a_cause_is_its_own_witness() -> None:
    other = replace(SLOW, id="F2", rulebook="waits", verdict="W1", explained_by="F1")
    said = explained(SLOW, other)
    assert said["Effect"] == "Slow computation (slow S1)"
    assert said["Witness"] == (
        "no symptom or event of rank 3 explains it; it is shown by waits too"
    )


def test_a_cause_is_the_witness_of_what_it_explains() -> None:
    hot = replace(
        SLOW, rulebook="machines", verdict="THROTTLE", claim=Claim("symptom"), lost=SLOW.lost
    )
    said = explained(hot, replace(SLOW, id="F2", explained_by="F1"))
    assert said["Effect"] == "Slow computation (slow S1)"
    assert said["Witness"] == "machines THROTTLE, a symptom: rank 3"


def test_a_symptom_without_an_effect_is_information() -> None:
    hot = replace(
        SLOW,
        severity="info",
        claim=Claim("symptom"),
        lost=None,
        reasons=(Reason("a", 0.9, "its readings say so"), Reason("b", 0.6, "few readings")),
    )
    said = explained(hot)
    assert said["Effect"] == "none that the evidence shows"
    assert said["Number"] == "confidence 80 %; what lowers it most: few readings"
