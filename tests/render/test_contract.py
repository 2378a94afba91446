"""`--format json`: every field is in the schema, and the schema holds for every output."""

from __future__ import annotations

import json
from copy import deepcopy
from dataclasses import replace
from typing import Any

import jsonschema
import pytest

from oncall.core.diagnosis import Diagnosis
from oncall.render.contract import document, schema, to_json

# DESIGN section 8, as printed there.
PROMISED = {
    "": {"schema", "job", "window", "healthy", "coverage", "findings"},
    "coverage": {"nodes", "answered", "ranks", "ranks_seen", "gaps", "skipped_rules"},
    "finding": {
        "id", "rulebook", "verdict", "title", "class", "severity", "confidence", "at_ns",
        "blame", "case", "story", "ruled_out", "explained_by", "next", "sources",
    },
    "step": {"ask", "answer", "say", "fact", "rows"},
}  # fmt: skip


def strict(part: Any) -> Any:
    """The schema with every object closed, so that an undeclared field is an error here."""
    if isinstance(part, dict):
        closed = {key: strict(value) for key, value in part.items()}
        if closed.get("type") == "object" and "properties" in closed:
            closed.setdefault("additionalProperties", False)
        return closed
    return [strict(item) for item in part] if isinstance(part, list) else part


@pytest.mark.parametrize("explain", [False, True])
@pytest.mark.parametrize("name", ["hang", "two_roots", "healthy", "unseen"])
def test_output_keeps_the_schema(name: str, explain: bool, request: pytest.FixtureRequest) -> None:
    written = json.loads(to_json(request.getfixturevalue(name), explain=explain))
    jsonschema.validate(written, schema())
    jsonschema.validate(written, strict(schema()))


def test_the_schema_is_one() -> None:
    jsonschema.Draft202012Validator.check_schema(schema())


def test_the_schema_refuses_what_is_not_promised(hang: Diagnosis) -> None:
    wrong = deepcopy(document(hang))
    wrong["findings"][0]["class"] = "bad luck"
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(wrong, schema())


def test_promised_fields_are_there(hang: Diagnosis) -> None:
    written = document(hang)
    finding = written["findings"][0]
    assert set(written) >= PROMISED[""]
    assert set(written["coverage"]) >= PROMISED["coverage"]
    assert set(finding) >= PROMISED["finding"]
    assert set(finding["story"][0]) == PROMISED["step"]
    assert finding["blame"] == [
        {"kind": "rank", "rank": 5, "node": "gpu017", "comm": "0x1f2e3d4c5b6a7988"}
    ]
    assert written["findings"][1]["explained_by"] == "F1"
    assert set(document(hang, explain=True)["findings"][0]["story"][0]) >= {"sql", "params"}


@pytest.mark.parametrize("bound", [False, True])
def test_a_lower_bound_is_said_to_be_one(hang: Diagnosis, bound: bool) -> None:
    of_texts = replace(hang, coverage=replace(hang.coverage, at_least=bound))
    assert document(of_texts)["coverage"]["at_least"] is bound


def test_round_trip_and_plain_ascii(hang: Diagnosis) -> None:
    text = to_json(hang, explain=True)
    assert json.loads(text) == document(hang, explain=True)
    assert text.isascii()
