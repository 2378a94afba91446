"""The JSON Schema of a rulebook, generated from the model that reads it, for editors."""

from __future__ import annotations

from typing import Any

from oncall.rules.rulebook import RulebookFile


def rulebook_schema() -> dict[str, Any]:
    """JSON Schema (draft 2020-12) of a rulebook file."""
    schema = RulebookFile.model_json_schema(by_alias=True)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **schema,
        "title": "oncall rulebook",
    }
