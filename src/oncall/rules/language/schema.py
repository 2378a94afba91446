"""The JSON Schema of a rulebook, generated from the model that reads it, for editors."""

from __future__ import annotations

from typing import Any

from oncall.rules.language.rulebook_file import RulebookFile
from oncall.rules.language.shape import record_schema


def rulebook_schema() -> dict[str, Any]:
    """JSON Schema (draft 2020-12) of a rulebook file."""
    defs: dict[str, Any] = {}
    record_schema(RulebookFile, defs)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "oncall rulebook",
        **defs.pop(RulebookFile.__name__),
        "$defs": defs,
    }
