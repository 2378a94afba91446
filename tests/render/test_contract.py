"""`--format json`: every field is in the schema, and the schema holds for every output."""

from __future__ import annotations

import json
from copy import deepcopy
from typing import Any

import jsonschema
import pytest

from oncall.core.diagnosis import Diagnosis
from oncall.render.contract import document, schema, to_json


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


def test_the_schema_refuses_what_is_not_promised(hang: Diagnosis) -> None:
    wrong = deepcopy(document(hang))
    wrong["findings"][0]["class"] = "bad luck"
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(wrong, schema())


def test_round_trip_and_plain_ascii(hang: Diagnosis) -> None:
    text = to_json(hang, explain=True)
    assert json.loads(text) == document(hang, explain=True)
    assert text.isascii()
