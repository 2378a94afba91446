"""JSON Schemas from types: what the types say, the schema says."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypedDict

import pytest

from oncall.render.json_schema import schema_of


@dataclass(frozen=True)
class Point:
    x: Annotated[int, {"minimum": 0}]
    label: str = ""


class _Always(TypedDict):
    kind: Literal["a", "b"]
    at_ns: Annotated[int | None, "When."]


class Document(_Always, total=False):
    points: Sequence[Point]
    more: Mapping[str, Any]


def test_the_schema_of_nested_types() -> None:
    assert schema_of(Document) == {
        "type": "object",
        "properties": {
            "kind": {"enum": ["a", "b"]},
            "at_ns": {"type": ["integer", "null"], "description": "When."},
            "points": {
                "type": "array",
                "items": {
                    "type": "object",
                    "properties": {
                        "x": {"type": "integer", "minimum": 0},
                        "label": {"type": "string"},
                    },
                    "required": ["x"],
                },
            },
            "more": {"type": "object", "additionalProperties": True},
        },
        "required": ["kind", "at_ns"],
    }


def test_a_type_without_json_is_an_error() -> None:
    with pytest.raises(TypeError, match="no JSON Schema"):
        schema_of(bytes)
