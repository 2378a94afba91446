"""`oncall schema`: the evidence tables and relations, and the JSON Schemas of what is answered."""

from __future__ import annotations

import json
import sys
from enum import StrEnum
from typing import Annotated, Any

import typer


class Format(StrEnum):
    """The output format."""

    TEXT = "text"
    MARKDOWN = "markdown"


class Contract(StrEnum):
    """What programs read."""

    DIAGNOSIS = "diagnosis"
    MCP = "mcp"


def schema(
    contract: Annotated[
        Contract | None,
        typer.Argument(
            help="Print a JSON Schema instead: `diagnosis`, of `oncall diagnose --format json`, or "
            "`mcp`, of the answer of each tool of `oncall mcp`.",
        ),
    ] = None,
    format: Annotated[Format, typer.Option(help="Output format.")] = Format.TEXT,  # noqa: A002
) -> None:
    """Print the tables and relations that SQL in rules can read.

    With CONTRACT: the JSON Schema of what programs read.
    """
    if contract is not None:
        sys.stdout.write(json.dumps(json_schema(contract), indent=2, ensure_ascii=False) + "\n")
        return
    from oncall.render import schema as pages

    sys.stdout.write(pages.to_markdown() if format == Format.MARKDOWN else pages.to_text())


def json_schema(contract: Contract) -> dict[str, Any]:
    """The JSON Schema, generated from the types that the answers are written with."""
    if contract is Contract.DIAGNOSIS:
        from oncall.render.contract import schema as of_diagnosis

        return of_diagnosis()
    from oncall.agents.answers import ANSWERS, answer_schema

    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "oncall mcp",
        "description": "The structured answer of each tool of `oncall mcp`, under its name.",
        "$defs": {tool: answer_schema(tool) for tool in ANSWERS},
    }
