"""What could not be computed or trusted is in every report; its traceback with --explain alone."""

from __future__ import annotations

from dataclasses import replace

import jsonschema
import pytest

from oncall.core.diagnosis import Coverage, Diagnosis
from oncall.render.contract import document, schema
from oncall.render.markdown import to_markdown
from oncall.render.text.report import to_text

FAILED = "could not be computed: progress (Out of Range Error: Overflow)"
TWICE = "2 operations completed twice, on ranks 0-1: AllReduce 5"


@pytest.mark.parametrize("write", [to_text, to_markdown])
def test_reports_say_what_failed_and_what_contradicts(write: object, untrusted: Diagnosis) -> None:
    assert callable(write)
    short, long = write(untrusted), write(untrusted, explain=True)
    for text in (short, long):
        flat = " ".join(text.replace("\\", "").split())
        assert f"hang, waits: {FAILED}" in flat
        assert "Not to be trusted" in flat and TWICE in flat
    assert "Traceback:" in long and "Traceback:" not in short


def test_the_contract_has_it_too(untrusted: Diagnosis) -> None:
    for explain in (False, True):
        found = document(untrusted, explain=explain)
        jsonschema.validate(found, schema())
        coverage = found["coverage"]
        assert ("details" in coverage["gaps"][0]) is explain
        assert coverage["contradictions"][0]["what"] == "2 operations completed twice"
        assert {rule["uncomputed"] for rule in coverage["skipped_rules"]} == {"progress"}


def test_a_contradiction_is_a_doubt_only_where_the_verdict_rests_on_it(
    untrusted: Diagnosis,
) -> None:
    whole: Coverage = replace(untrusted.coverage, skipped_rules=())
    sound = replace(untrusted, coverage=whole)
    assert sound.doubt == "the evidence cannot be trusted: 2 operations completed twice"
    assert replace(sound, rests_on=frozenset(("nics",))).doubt == ""
